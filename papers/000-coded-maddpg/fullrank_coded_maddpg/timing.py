"""Figs. 4 and 5 of [Wang21]: the time of an iteration against the number of stragglers.

Times come from virtual time with the computing times of this machine, from virtual time with those
of the paper's machines (solved from three published cells; all others are predictions), and from
real processes with emulated computing.

The cost of decoding [Wang21, Sec. III-C] is that of peeling, possible with LDPC, against least
squares. Peeling takes a row with one unknown unit, subtracts that unit from all others that hold
it, and goes on: one operation on vectors for each non-zero entry of C_J. Least squares factors C_J
and multiplies all received vectors by the pseudo-inverse.
"""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from time import process_time
from typing import Any, NamedTuple

import numpy as np

from fullrank.codes import Code, codes, make_code
from fullrank.common.seeding import stream
from fullrank.common.types import JSON, Array, Matrix, Times
from fullrank.config.auto_code import AutoCodeSettings
from fullrank.config.tree import RunConfig
from fullrank.planning.cluster import Cluster, Regime
from fullrank.planning.costs import Payload
from fullrank.planning.simulation import play_planned, simulate
from fullrank.stragglers import FixedK
from fullrank.wiring.training import training_of
from fullrank_coded_maddpg.published import (
    AGENTS,
    ALL_CODES,
    CODES,
    HEDGED,
    LEARNERS,
    TASKS,
    TOTALLED,
    Wang21Scale,
    Wang21Task,
)
from fullrank_papers.cells import Cell, Later, Results, settings_of
from fullrank_papers.claims import ClaimResult, Strength, judge
from fullrank_papers.paper import table
from fullrank_papers.runs import SETTINGS, configured, observe

ROUNDS = 200
"""Simulated rounds of each cell; the paper has 50."""
LEARNT = 50
"""Iterations in which the planner learns the delays."""
BATCH = 1024
EMULATED_UNIT_S = 0.05
REAL_BATCH = 64
"""Batch size at which real computing stays within the emulated time."""


ROWS = [(task, agents) for task in TASKS.values() for agents in AGENTS]
"""Lines of the paper's table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One cell of the paper's table."""

    task: Wang21Task
    agents: int
    code: str
    stragglers: int

    @property
    def name(self) -> str:
        """Name of the cell's file."""
        return f"{self.task.name}-{self.agents}-{self.code}-{self.stragglers}"

    @property
    def learners(self) -> int:
        """N; an uncoded run has no more learners than agents."""
        return self.agents if self.code == "uncoded" else LEARNERS

    @property
    def delays(self) -> FixedK:
        """The delay model."""
        k = min(self.stragglers, self.learners)
        return FixedK(k=k, delay_s=self.task.delay_s)

    @property
    def family(self) -> str:
        """Registered name of the code."""
        return "uncoded" if self.code == HEDGED else self.code

    @property
    def tolerance(self) -> int:
        """Tolerance of ``cyclic``: the most stragglers of the experiment, up to N - M."""
        return min(max(self.task.stragglers), LEARNERS - self.agents)

    def make_code(self) -> Code:
        """The code of the setting."""
        params = codes.get(self.family).tolerating(self.tolerance) or {}
        return make_code(self.family, rows=self.learners, units=self.agents, seed=0, **params)


def settings(
    rows: Sequence[tuple[Wang21Task, int]] = ROWS, *, codes: Sequence[str] = ALL_CODES
) -> list[Setting]:
    """Settings of the table, in its order."""
    return [
        Setting(task=task, agents=agents, code=code, stragglers=k)
        for task, agents in rows
        for code in codes
        for k in task.stragglers
    ]


def real_settings(scale: Wang21Scale) -> list[Setting]:
    """Settings that are measured on processes."""
    tasks = list(TASKS.values())[: scale.real_tasks]
    rows = [(task, agents) for task in tasks for agents in scale.real_agents]
    return settings(rows, codes=scale.real_codes)


def compute_cell(task: Wang21Task, agents: int, scale: Wang21Scale) -> Cell:
    """Measured seconds of a learner: ``shared_s`` once and ``unit_s`` for each unit."""
    config = _config(task, agents, {"algorithm.batch_size": BATCH})
    return Cell(
        name=f"compute-{task.name}-{agents}",
        settings={"run": settings_of(config), "repeats": scale.repeats},
        compute=partial(_measure, config, scale.repeats),
    )


def _config(task: Wang21Task, agents: int, options: Mapping[str, Any]) -> RunConfig:
    named = {"environment.name": task.name, "environment.agents": agents}
    return configured(options={**SETTINGS, **named, **options})


def _measure(config: RunConfig, repeats: int) -> JSON:
    training = training_of(config)
    training.collector.close()
    algorithm = training.algorithm
    batch = stream(0, "measured_compute").random(
        (config.algorithm.params["batch_size"], training.collector.layout.row_size),
        dtype=np.float32,
    )
    loads = range(1, len(algorithm.problem.units) + 1)
    times = np.empty((repeats + 1, len(algorithm.problem.units)))
    for repeat in range(repeats + 1):
        for load_ in loads:
            started = process_time()
            for _ in algorithm.gradients.compute(batch, range(load_), iteration=repeat):
                pass
            times[repeat, load_ - 1] = process_time() - started
    medians = np.median(times[1:], axis=0)  # the first round allocates the buffers
    unit_s, shared_s = np.polyfit(list(loads), medians, 1)
    return {"unit_s": float(unit_s), "shared_s": float(max(shared_s, 0.0))}


class ComputeTimes(NamedTuple):
    """Seconds that an iteration spends on computing."""

    unit_s: float
    """For each unit of a learner."""
    shared_s: float = 0.0
    """Once in an iteration, for every code alike."""
    learner_s: float = 0.0
    """For each learner that takes part."""


INPUTS = (("uncoded", 0), ("mds", 0), ("replication", 0))
"""Published cells, (code, k), from which ``published_machines`` solves the paper's machines."""


def published_machines(task: Wang21Task, agents: int, *, learners: bool = True) -> ComputeTimes:
    """The paper's machines, from published times without stragglers.

    An uncoded learner computes one unit, and so does each of all N learners with replication; an
    MDS learner computes all M.

    Args:
        task: The task.
        agents: M.
        learners: False to do without the cost of a learner, and without the cell of replication.
    """
    uncoded, mds, replication = (
        task.published[str(agents)][code][k] / TOTALLED for code, k in INPUTS
    )
    more = LEARNERS - agents
    learner_s = (replication - uncoded) / more if learners else 0.0
    unit_s = (mds - uncoded - more * learner_s) / (agents - 1)
    return ComputeTimes(unit_s, uncoded - unit_s - agents * learner_s, learner_s)


def predicted_cells() -> list[Cell | Later]:
    """Cells in virtual time, for the paper's machines and for learners like this one."""
    papers = [predicted("paper", *row, published_machines(*row)) for row in ROWS]
    simpler = [
        predicted("simpler", *row, published_machines(*row, learners=False), codes=CODES)
        for row in ROWS
    ]
    here = [
        Later(
            name=f"predicted-here-{task.name}-{agents}",
            needs=(f"compute-{task.name}-{agents}",),
            make=partial(_predicted_here, task, agents),
        )
        for task, agents in ROWS
    ]
    return [*papers, *simpler, *here]


def _predicted_here(task: Wang21Task, agents: int, results: Results) -> Cell:
    measured = ComputeTimes(**results[f"compute-{task.name}-{agents}"])
    return predicted("here", task, agents, measured)


def predicted(
    source: str,
    task: Wang21Task,
    agents: int,
    machines: ComputeTimes,
    *,
    codes: Sequence[str] = ALL_CODES,
) -> Cell:
    """``simulated`` for the codes and every k of a task and M, by the setting's name."""

    def compute() -> JSON:
        every = settings([(task, agents)], codes=codes)
        return {setting.name: simulated(setting, machines) for setting in every}

    return Cell(
        name=f"predicted-{source}-{task.name}-{agents}",
        settings={**machines._asdict(), "rounds": ROUNDS, "codes": list(codes)},
        compute=compute,
    )


def simulated(setting: Setting, machines: ComputeTimes) -> float:
    """Mean seconds of the iterations that the paper adds up, in virtual time."""
    play = _planned if setting.code == "auto" else _fixed
    round_s = float(play(setting, machines.unit_s).mean())
    apart_s = machines.shared_s + machines.learner_s * setting.learners
    return TOTALLED * (apart_s + round_s)


def _fixed(setting: Setting, unit_s: float) -> Times:
    played = simulate(
        Cluster(unit_s=unit_s),
        setting.make_code(),
        setting.delays,
        iterations=ROUNDS,
        seed=0,
        hedged=setting.code == HEDGED,
    )
    return played.round_s


def _planned(setting: Setting, unit_s: float) -> Times:
    """Round times with the planner, after its first iterations."""
    delays = {"name": "fixed_k", "k": setting.delays.k, "delay_s": setting.delays.delay_s}
    regime = Regime(
        learners=setting.learners, agents=setting.agents, unit_s=unit_s, stragglers=delays
    )
    played = play_planned(
        lambda _: regime, Payload(), auto=AutoCodeSettings(), iterations=LEARNT + ROUNDS, seed=0
    )
    return played.round_s[LEARNT:]


def real_cell(setting: Setting, rounds: int) -> Cell:
    """The same on processes, with ``compute.emulate_unit_s`` in place of the machines.

    The first round, in which sockets and caches warm up, is left out; of planned runs the first
    ``LEARNT`` rounds are.
    """
    left_out = LEARNT if setting.code == "auto" else 1
    options = {
        "iterations": left_out + rounds - 1,
        "learners": setting.learners,
        "code.name": setting.family,
        "code.tolerance": setting.tolerance if setting.code == "cyclic" else None,
        "stragglers.name": "fixed_k",
        "stragglers.k": setting.delays.k,
        "stragglers.delay_s": setting.task.delay_s,
        "compute.emulate_unit_s": EMULATED_UNIT_S,
        "algorithm.batch_size": REAL_BATCH,
        "collect.warmup": 640,
        "replay.capacity": 100_000,
        "metrics.sinks": [],
    }
    if setting.code == HEDGED:
        options["controller.undecodable"] = "hedge"
    config = _config(setting.task, setting.agents, options)
    return Cell(
        name=f"real-{setting.name}",
        settings={"run": settings_of(config)},
        compute=partial(_real, config, left_out),
        beside=True,
    )


def _real(config: RunConfig, left_out: int) -> JSON:
    """Seconds of the iterations that the paper adds up, and the number of measured rounds."""
    times = [record.round_s for _, record in observe(config)][left_out:]
    return {"seconds": TOTALLED * float(np.mean(times)), "rounds": len(times)}


SIZES = ((15, 8), (15, 10), (30, 17), (60, 39))
"""(N, M): those of the paper, and two larger ones that there are."""
LENGTH = 100_000
"""Entries of a vector; those of navigation with M = 8 and the paper's networks have 50,000."""
DECODING = "decoding-cost"


def decoding_cell(repeats: int) -> Cell:
    """Seconds of both decoders and of the factorisation alone, for every size."""
    return Cell(
        name=DECODING,
        settings={"sizes": [list(size) for size in SIZES], "length": LENGTH, "repeats": repeats},
        compute=partial(_decoding_costs, repeats),
    )


def _decoding_costs(repeats: int) -> JSON:
    results = []
    for rows, units in SIZES:
        code = make_code("ldpc", rows=rows, units=units, seed=0).matrix
        generator = stream(0, "decoding_cost", rows, units)
        updates = generator.standard_normal((units, LENGTH))
        received = _peelable(code, generator)
        vectors = code[received] @ updates
        coefficients = code[received]
        spent: dict[str, list[float]] = {"peeling": [], "least squares": [], "factorisation": []}
        ways: dict[str, Callable[[], object]] = {
            "peeling": partial(peel, coefficients, vectors),
            "least squares": partial(solve, coefficients, vectors),
            "factorisation": partial(np.linalg.pinv, coefficients),
        }
        for _ in range(repeats):
            for way, compute in ways.items():
                began = process_time()
                compute()
                spent[way].append(process_time() - began)
        results.append({way: statistics.median(seconds) for way, seconds in spent.items()})
    return {"spent": results}


def _peelable(code: Matrix, generator: np.random.Generator) -> list[int]:
    """Rows received in random order until they can be peeled."""
    order = generator.permutation(len(code)).tolist()
    for count in range(code.shape[1], len(code) + 1):
        if peel(code[order[:count]], np.zeros((count, 1))) is not None:
            return list(order[:count])
    raise AssertionError("all rows of an LDPC code can be peeled")


def solve(coefficients: Matrix, vectors: Array) -> Array:
    """The units by least squares, shape (M, P)."""
    return np.linalg.pinv(coefficients) @ vectors


def peel(coefficients: Matrix, vectors: Array) -> Array | None:
    """The units one by one, shape (M, P); None if no row with one unknown is left.

    Args:
        coefficients: C_J, shape (|J|, M).
        vectors: Received vectors, shape (|J|, P).
    """
    left, rest = coefficients.copy(), vectors.copy()
    units = np.empty((coefficients.shape[1], vectors.shape[1]))
    for _ in range(coefficients.shape[1]):
        single = np.flatnonzero(np.count_nonzero(left, axis=1) == 1)
        if not single.size:
            return None
        row = int(single[0])
        unit = int(np.flatnonzero(left[row])[0])
        units[unit] = rest[row] / left[row, unit]
        for holder in np.flatnonzero(left[:, unit]).tolist():
            if np.count_nonzero(left[holder]) > 1:
                rest[holder] -= left[holder, unit] * units[unit]
        left[:, unit] = 0.0
    return units


def judge_decoding(measured: JSON) -> ClaimResult:
    """Judge if LDPC's decoding is cheaper, and by its order: O(M) instead of O(M^3)."""
    ratios = [spent["least squares"] / spent["peeling"] for spent in measured["spent"]]
    shares = [spent["factorisation"] / spent["least squares"] for spent in measured["spent"]]
    text = ", ".join(f"{ratio:.1f} times" for ratio in ratios)
    grounds = f"least squares takes {text} as long; its factorisation {max(shares):.1%} at most"
    return judge(
        "LDPC is decoded quickly by an iterative algorithm, in O(M) where others take O(M^3).",
        [] if min(ratios) > 1.0 else [grounds],
        grounds=grounds,
        strength=Strength("measured, medians on one processor"),
    )


def decoding_table(measured: JSON) -> str:
    """Milliseconds of both decoders, in Markdown."""
    heads = ["N", "M", "peeling, ms", "least squares, ms", "its factorisation, ms"]
    return table(
        heads,
        (
            [*size, *(f"{1e3 * seconds:.2f}" for seconds in spent.values())]
            for size, spent in zip(SIZES, measured["spent"], strict=True)
        ),
    )
