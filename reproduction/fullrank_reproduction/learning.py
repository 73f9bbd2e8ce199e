"""Fig. 3 of [Wang21]: learning curves of centralised and coded runs, compared bit by bit.

The paper shows that centralised and coded curves look alike; the file names behind its plots show
that the "coded" ones are of uncoded runs. Here every coded run is separate, has stragglers, and is
compared with the centralised one bit for bit at every iteration. A code that is never exact
(``vandermonde``) is measured by its distance from the true updates instead.
"""

import warnings
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial

import numpy as np

from fullrank.algorithms import Algorithm
from fullrank.codes import Decoder
from fullrank.common.errors import Corrupted, NotDecodable
from fullrank.common.types import JSON, Matrix
from fullrank.config.layers import load
from fullrank.config.tree import RunConfig, as_tables
from fullrank.local import LocalRun
from fullrank.replay.storage import MemoryStorage
from fullrank.replay.table import Table
from fullrank.runs.statistics import bootstrap
from fullrank.training.evaluation import Act, Greedy, evaluate
from fullrank.wiring import code_of, delays_of, environment_of, training_of
from fullrank_reproduction import wang21
from fullrank_reproduction.acting import exploring, soft_actions
from fullrank_reproduction.cells import Cell
from fullrank_reproduction.wang21 import PublishedPanel

AGENTS = wang21.AGENTS[0]
AS_STATED = tuple(panel for panel in wang21.PANELS if panel.adversaries in (0, wang21.ADVERSARIES))
"""One panel for each task, with the adversaries of Sec. V-B."""
CENTRALISED = "centralised"
EXACT = ("uncoded", "mds", "random_sparse", "replication", "ldpc", "cyclic")
INEXACT = "vandermonde"
EPISODES, EVALUATION_SEED = 200, 1000
"""Episodes that the policies of a centralised run play at its end, and their seed."""
UNIT_S = 0.05
"""Emulated computing time, which only orders the arrivals."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wang21Budget:
    """A training budget."""

    iterations: int
    """Iterations of the centralised run, for every seed."""
    cyclic: int
    """Iterations of the run with ``cyclic``, for every seed."""
    compared: int
    """Iterations of the runs with other codes, for the first seed."""
    payload: int
    """Iterations of the runs whose parameters are coded, for every seed."""
    seeds: int
    batch: int
    warmup: int
    panels: tuple[PublishedPanel, ...]


def cells(budget: Wang21Budget) -> list[Cell]:
    """The runs of all panels, the centralised ones first and seed by seed."""
    runs = [
        centralised(panel, budget, seed=seed)
        for seed in range(budget.seeds)
        for panel in budget.panels
    ]
    for panel in budget.panels:
        for code in EXACT:
            cyclic = code == "cyclic"
            for seed in range(budget.seeds if cyclic else 1):
                length = budget.cyclic if cyclic else budget.compared
                runs.append(_cell(panel, budget, code, seed=seed, iterations=length))
        config = configured(panel, budget, code=INEXACT, seed=0, iterations=budget.compared)
        runs.append(
            Cell(
                name=f"{panel.name}-{INEXACT}-distance",
                settings={"run": as_tables(config)},
                compute=partial(_distance, config),
            )
        )
    return runs


def centralised(panel: PublishedPanel, budget: Wang21Budget, *, seed: int) -> Cell:
    """The centralised run of a panel."""
    return _cell(panel, budget, CENTRALISED, seed=seed, iterations=budget.iterations)


def _cell(
    panel: PublishedPanel, budget: Wang21Budget, code: str, *, seed: int, iterations: int
) -> Cell:
    config = configured(panel, budget, code=code, seed=seed, iterations=iterations)
    coded, digests = code != CENTRALISED, max(budget.cyclic, budget.compared)
    return Cell(
        name=f"{panel.name}-{code}-seed{seed}",
        settings={"run": as_tables(config), "coded": coded, "digests": digests},
        compute=partial(_curve, config, coded=coded, digests=digests),
        weight=iterations * budget.batch / 1e6,
        beside=True,
    )


def configured(
    panel: PublishedPanel, budget: Wang21Budget, *, code: str, seed: int, iterations: int
) -> RunConfig:
    """Configuration of a run of a panel, trained with a code or centralised."""
    task, adversaries = panel.task, panel.adversaries
    competitive = [f"environment.adversaries={adversaries}"] if task.competitive else []
    overrides = [
        *(f"{key}={value}" for key, value in wang21.SETTINGS.items()),
        f"seed={seed}",
        f"iterations={iterations}",
        f"learners={wang21.LEARNERS}",
        f"environment.name={task.name}",
        f"environment.agents={AGENTS}",
        *competitive,
        f"algorithm.batch_size={budget.batch}",
        f"collect.warmup={budget.warmup}",
        f"code.name={'uncoded' if code == CENTRALISED else code}",
        *(["code.tolerance=2"] if code == "cyclic" else []),
        "stragglers.name=fixed_k",
        f"stragglers.k={task.stragglers[1]}",
        f"stragglers.delay_s={task.delay_s}",
        f"compute.emulate_unit_s={UNIT_S}",
    ]
    return load(None, environ={}, overrides=overrides).check().config


def _curve(config: RunConfig, *, coded: bool, digests: int) -> JSON:
    """Returns by iteration (null where no episode ended), and the digests of the first updates.

    ``computed_on`` is the numeric identity of this process: others may have other digests.
    The policies of a centralised run also play ``EPISODES`` episodes at its end: greedily, with
    soft actions, and exploring.
    """
    run = LocalRun(config, coded=coded)
    try:
        iterations = run.train()
    finally:
        run.training.collector.close()
    returns = [iteration.return_mean for iteration in iterations]
    return {
        "returns": [None if value is None else round(value, 4) for value in returns],
        "digests": [iteration.update_digest for iteration in iterations[:digests]],
        "computed_on": run.training.algorithm.gradients.fingerprint(),
        "late": sum(len(iteration.late) for iteration in iterations),
        "parameters": run.parameter_digest(),
        "played": {} if coded else _played(config, run.training.algorithm),
    }


def _played(config: RunConfig, algorithm: Algorithm) -> JSON:
    """Mean return with a 95 % interval of each way to act, from the same initial states."""
    environment = environment_of(config, copies=50)
    acts: dict[str, Act] = {
        "greedy": Greedy(algorithm.actor),
        "soft": soft_actions(algorithm.actor, environment.agents),
        "exploring": exploring(algorithm),
    }
    with closing(environment):
        return {
            name: bootstrap(evaluate(environment, act, EPISODES, EVALUATION_SEED).returns)._asdict()
            for name, act in acts.items()
        }


def _distance(config: RunConfig) -> JSON:
    """Relative errors of decoded updates by iteration, in the state of the centralised run."""
    training = training_of(config)
    algorithm = training.algorithm
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the bad condition is measured here
        code = code_of(config, units=AGENTS)
    delays, errors, refused = delays_of(config), [], 0
    warm = training.collector.warm_up()
    collected = config.iterations * config.environment.copies * config.collect.steps
    capacity = len(warm) + collected
    table = Table(MemoryStorage(capacity, training.collector.layout.row_size), capacity=capacity)
    table.append(0, warm)
    for iteration in range(config.iterations):
        table.append(table.head, training.collector.collect(iteration).rows)
        sample = training.trainer.sample(iteration, tail=table.tail, head=table.head)
        batch = table.minibatch(sample)
        truth = np.zeros((AGENTS, algorithm.problem.vector_size), np.float32)
        for unit, update in algorithm.gradients.compute(batch, range(AGENTS), iteration=iteration):
            truth[unit, : len(update)] = update
        delay_s = delays.delays(seed=config.seed, iteration=iteration, learners=config.learners)
        order = np.argsort(delay_s, kind="stable")
        error, accepted = _decoded(code.matrix, truth, order.tolist())
        errors.append(error)
        refused += not accepted
        training.trainer.apply(truth, iteration=iteration)
    training.collector.close()
    return {"errors": errors, "refused": refused}


def _decoded(matrix: Matrix, truth: np.ndarray, order: Sequence[int]) -> tuple[float, bool]:
    """Largest error relative to the largest entry, and whether the certificate accepts it."""
    plain, guarded = Decoder(matrix, grid=None), Decoder(matrix)
    for row in order:
        for decoder in (plain, guarded):
            decoder.offer(row=row, vector=matrix[row] @ truth)
        if plain.decodable:
            break
    error = float(np.abs(plain.decode() - truth).max() / np.abs(truth).max())
    try:
        guarded.decode()
    except (Corrupted, NotDecodable):
        return error, False
    return error, guarded.exact
