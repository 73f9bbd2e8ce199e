"""Runs of [Wang21]: centralised, with codes, and with coded parameters.

The paper shows that centralised and coded curves look alike; the file names behind its plots show
that the "coded" ones are of uncoded runs. Here every coded run is separate, has stragglers, and is
compared with the centralised one bit for bit at every iteration. A code that is never exact
(``vandermonde``) is measured by its distance from the true updates instead.

A learner of the paper returns a combination of updated networks: critic, policy and both targets of
every agent, in float32, with rows of a Vandermonde matrix; the controller solves the first M rows
that arrive. In the runs with coded parameters a run is trained without a code, and after every
iteration its parameters pass through that code, so that its errors are all that differs from the
centralised run. Encoding and solving take place in float64, which favours the code.
"""

import warnings
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from itertools import count

import numpy as np
from scipy.special import softmax

from fullrank.algorithms import Actor, Algorithm
from fullrank.algorithms.roles import RecurrentLayers
from fullrank.codes import Decoder, make_code
from fullrank.common.errors import ConfigError, Corrupted, NotDecodable
from fullrank.common.seeding import stream
from fullrank.common.types import JSON, BoolArray, FloatArray, Matrix
from fullrank.config.code import code_of
from fullrank.config.tree import RunConfig
from fullrank.environments import AgentSpec
from fullrank.local import LocalRun
from fullrank.replay.storage import MemoryStorage
from fullrank.replay.table import Table
from fullrank.runs.statistics import mean_interval
from fullrank.training.evaluation import Act, Greedy, evaluate
from fullrank.wiring.plugins import delays_of, environment_of
from fullrank.wiring.training import training_of
from fullrank_coded_maddpg.published import (
    AGENTS,
    LEARNERS,
    MATRIX,
    PANELS,
    TASKS,
    PublishedPanel,
    Wang21Scale,
)
from fullrank_papers.cells import Cell, settings_of
from fullrank_papers.runs import SETTINGS, configured

CENTRALISED = "centralised"
EXACT = ("uncoded", "mds", "random_sparse", "replication", "ldpc", "cyclic")
PARAMETERS = "parameters"
PAYLOAD_TASKS = ("cooperative_navigation", "keep_away")
EPISODES, EVALUATION_SEED = 200, 1000
"""Episodes that the policies of a centralised run play at its end, and their seed."""
UNIT_S = 0.05
"""Emulated computing time, which only orders the arrivals."""


def panels(scale: Wang21Scale) -> list[PublishedPanel]:
    """The panels of Fig. 3 that are run."""
    return [PANELS[name] for name in scale.panels]


def payload_panels(scale: Wang21Scale) -> list[PublishedPanel]:
    """The panels whose parameters pass through the code."""
    return [panel for panel in panels(scale) if panel.name in PAYLOAD_TASKS]


def name_of(panel: PublishedPanel, kind: str, seed: int) -> str:
    """Name of the cell of a run."""
    return f"{panel.name}-{kind}-seed{seed}"


def cells(scale: Wang21Scale) -> list[Cell]:
    """The runs of Fig. 3, the centralised ones first and seed by seed."""
    seeds, every = scale.seeds, panels(scale)
    runs = [_run(panel, scale, CENTRALISED, seed) for seed in seeds for panel in every]
    runs += [
        _run(panel, scale, CENTRALISED, seed)
        for panel in every
        for seed in scale.curve_seeds(panel)[len(seeds) :]
    ]
    for panel in every:
        runs += [
            _run(panel, scale, code, seed)
            for code in EXACT
            for seed in (seeds if code == "cyclic" else seeds[:1])
        ]
        config = config_of(panel, scale, MATRIX, 0, scale.compared)
        runs.append(
            Cell(
                name=f"{panel.name}-{MATRIX}-distance",
                settings={"run": settings_of(config)},
                compute=partial(_distance, config),
            )
        )
    return runs


def payload_cells(scale: Wang21Scale) -> list[Cell]:
    """The centralised runs of some panels and, seed by seed, those through the code."""
    return [
        _run(panel, scale, kind, seed)
        for seed in scale.seeds
        for panel in payload_panels(scale)
        for kind in (CENTRALISED, PARAMETERS)
    ]


def _run(panel: PublishedPanel, scale: Wang21Scale, kind: str, seed: int) -> Cell:
    lengths = {CENTRALISED: scale.iterations, "cyclic": scale.cyclic, PARAMETERS: scale.payload}
    iterations = lengths.get(kind, scale.compared)
    config = config_of(panel, scale, kind, seed, iterations)
    digests = max(scale.cyclic, scale.compared)
    coded: JSON = {"coded": kind != CENTRALISED, "digests": digests}
    return Cell(
        name=name_of(panel, kind, seed),
        settings={"run": settings_of(config)}
        | ({"payload": kind} if kind == PARAMETERS else coded),
        compute=partial(_trained, config)
        if kind == PARAMETERS
        else partial(_curve, config, coded=kind != CENTRALISED, digests=digests),
        weight=iterations * scale.batch / 1e6,
        beside=True,
    )


def config_of(
    panel: PublishedPanel, scale: Wang21Scale, kind: str, seed: int, iterations: int
) -> RunConfig:
    """Configuration of a run of a panel, trained with a code or without."""
    task = TASKS[panel.task]
    options = {
        **SETTINGS,
        "seed": seed,
        "iterations": iterations,
        "learners": LEARNERS,
        "environment.name": task.name,
        "environment.agents": AGENTS[0],
        "algorithm.batch_size": scale.batch,
        "collect.warmup": scale.warmup,
        "code.name": "uncoded" if kind in (CENTRALISED, PARAMETERS) else kind,
        "code.tolerance": 2 if kind == "cyclic" else None,
        "environment.adversaries": panel.adversaries if task.competitive else None,
        "stragglers.name": "fixed_k",
        "stragglers.k": task.stragglers[1],
        "stragglers.delay_s": task.delay_s,
        "compute.emulate_unit_s": UNIT_S,
    }
    return configured(options=options)


def _curve(config: RunConfig, *, coded: bool, digests: int) -> JSON:
    """Returns by iteration (null where no episode ended), and the digests of the first updates.

    ``computed_on`` is the numeric identity of this process: others may have other digests.
    The policies of a centralised run also play ``EPISODES`` episodes at its end: greedily, with
    soft actions, and exploring.
    """
    run = LocalRun(config, coded=coded)
    with closing(run.training.collector):
        iterations = run.train()
    return {
        "returns": [_rounded(iteration.return_mean) for iteration in iterations],
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
            name: mean_interval(
                evaluate(environment, act, EPISODES, EVALUATION_SEED).returns
            ).facts()
            for name, act in acts.items()
        }


def _distance(config: RunConfig) -> JSON:
    """Relative errors of decoded updates by iteration, in the state of the centralised run."""
    training = training_of(config)
    algorithm = training.algorithm
    with warnings.catch_warnings(action="ignore"):  # the bad condition is measured here
        code = code_of(config, units=AGENTS[0])
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
        truth = np.zeros((AGENTS[0], algorithm.problem.vector_size), np.float32)
        for unit, update in algorithm.gradients.compute(
            batch, range(AGENTS[0]), iteration=iteration
        ):
            gradient = update[: -algorithm.problem.statistics]
            truth[unit, : len(gradient)] = gradient
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


def _rounded(mean: float | None) -> float | None:
    return None if mean is None else round(mean, 4)


def _trained(config: RunConfig) -> JSON:
    """Returns by iteration, and errors by iteration relative to the largest parameter."""
    run = LocalRun(config, coded=False)
    algorithm = run.training.algorithm
    agents = len(algorithm.problem.units)
    with warnings.catch_warnings(action="ignore"):  # the bad condition is measured here
        matrix = make_code(MATRIX, rows=LEARNERS, units=agents, seed=0).matrix
    returns, errors = list[float | None](), list[float]()
    with closing(run.training.collector):
        for iteration in run:
            returns.append(_rounded(iteration.return_mean))
            arrivals = stream(config.seed, "arrivals", iteration.iteration)
            first = arrivals.permutation(LEARNERS)[:agents].tolist()
            errors.append(_pass_through(algorithm, matrix[first]))
    return {"returns": returns, "errors": errors}


def _pass_through(algorithm: Algorithm, coefficients: Matrix) -> float:
    """Replace all parameters by the decoded ones; return the largest error of an entry.

    Agents of unlike sizes are padded with zeros. The error is relative to the largest parameter.
    """
    by_agent: dict[int, list[FloatArray]] = {}
    for section in sorted(algorithm.problem.sections, key=lambda each: each.role):
        by_agent.setdefault(section.agents[0], []).append(algorithm.parameters.view(section.id))
    flat = [np.concatenate([view.ravel() for view in views]) for views in by_agent.values()]
    sent = np.zeros((len(flat), max(map(len, flat))), dtype=np.float32)
    for vector, own in zip(sent, flat, strict=True):
        vector[: len(own)] = own
    received = decoded(coefficients, sent)
    for vector, views in zip(received, by_agent.values(), strict=True):
        start = 0
        for view in views:
            view[...] = vector[start : start + view.size].reshape(view.shape)
            start += view.size
    algorithm.parameters.written()
    return float(np.abs(received - sent).max() / np.abs(sent).max())


def decoded(coefficients: Matrix, vectors: FloatArray) -> FloatArray:
    """The vectors after coding, float32 on the wire, and solving, shape (M, P)."""
    wire = (coefficients @ vectors.astype(np.float64)).astype(np.float32)
    return np.linalg.solve(coefficients, wire.astype(np.float64)).astype(np.float32)


def exploring(side: Algorithm) -> Act:
    """Exploring actions of a side that never dies, keyed by its seed and the call."""
    calls = count()

    def act(observation: FloatArray, available: BoolArray | None = None, /) -> FloatArray:
        alive = np.ones((len(observation), len(side.problem.units)), dtype=bool)
        actions, _ = side.actor.act(
            observation, (), iteration=next(calls), step=0, alive=alive, available=available
        )
        return actions

    return act


def soft_actions(actor: Actor, agents: Sequence[AgentSpec]) -> Act:
    """Probabilities of the actions in place of the most probable one.

    Worlds that move an agent by a mixture of forces take them as they are.

    Raises:
        ConfigError: A policy is not a perceptron.
    """
    ends = np.cumsum([agent.observation_size for agent in agents])[:-1]
    policies = [_layers(actor, index) for index in range(len(agents))]

    def act(observation: FloatArray, available: BoolArray | None = None, /) -> FloatArray:
        seen = np.split(observation, ends, axis=1)
        pairs = zip(policies, seen, strict=True)
        return np.concatenate([softmax(_logits(*pair), axis=1) for pair in pairs], axis=1)

    return act


def _layers(actor: Actor, agent: int) -> tuple[FloatArray, ...]:
    layers = actor.policy(agent)
    if isinstance(layers, RecurrentLayers):
        raise ConfigError("soft actions need perceptrons as policies")
    return layers


def _logits(layers: tuple[FloatArray, ...], values: FloatArray) -> FloatArray:
    *hidden, last = layers
    for layer in hidden:
        values = np.maximum(values @ layer[:, :-1].T + layer[:, -1], 0.0)
    return values @ last[:, :-1].T + last[:, -1]
