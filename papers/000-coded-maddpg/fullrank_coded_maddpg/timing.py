"""Figs. 4 and 5 of [Wang21]: the time of an iteration against the number of stragglers.

Times come from virtual time with the computing times of this machine, from virtual time with those
of the paper's machines (solved from three published cells; all others are predictions), and from
real processes with emulated computing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from time import process_time
from typing import Any, NamedTuple

import numpy as np

from fullrank.codes import Code, codes, make_code
from fullrank.common.seeding import stream
from fullrank.common.types import JSON, Times
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
    MATRIX,
    TASKS,
    TOTALLED,
    Wang21Scale,
    Wang21Task,
)
from fullrank_papers.cells import Cell, Later, Results, settings_of
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
    slower: float = 1.0
    """Its delays in those of the paper."""

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
        return FixedK(k=k, delay_s=self.task.delay_s * self.slower)

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
    rows: Sequence[tuple[Wang21Task, int]] = ROWS,
    *,
    codes: Sequence[str] = ALL_CODES,
    slower: float = 1.0,
) -> list[Setting]:
    """Settings of the table, in its order."""
    return [
        Setting(task=task, agents=agents, code=code, stragglers=k, slower=slower)
        for task, agents in rows
        for code in codes
        for k in task.stragglers
    ]


def real_settings(scale: Wang21Scale) -> list[Setting]:
    """Settings that are measured on processes."""
    tasks = list(TASKS.values())[: scale.real_tasks]
    rows = [(task, agents) for task in tasks for agents in scale.real_agents]
    return [
        setting
        for row in rows
        for setting in settings([row], codes=scale.real_codes, slower=slower_emulated(*row))
    ]


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
    # Beside other work few repeats may seem to take less time for more units.
    return {"unit_s": max(float(unit_s), 0.0), "shared_s": max(float(shared_s), 0.0)}


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
            name=f"predicted-scaled-{task.name}-{agents}",
            needs=(f"compute-{task.name}-{agents}",),
            make=partial(_predicted_here, task, agents),
        )
        for task, agents in ROWS
    ]
    return [*papers, *simpler, *here]


def _predicted_here(task: Wang21Task, agents: int, results: Results) -> Cell:
    slower = slower_here(task, agents, results)
    machines, codes = machines_here(task, agents, results), (*ALL_CODES, MATRIX)
    return predicted("scaled", task, agents, machines, codes=codes, slower=slower)


def machines_here(task: Wang21Task, agents: int, results: Results) -> ComputeTimes:
    """This machine's times of a row."""
    return ComputeTimes(**results[f"compute-{task.name}-{agents}"])


def slower_here(task: Wang21Task, agents: int, results: Results) -> float:
    """An uncoded iteration of this machine in that of the paper's, which scales the delays."""
    unit_s, shared_s, learner_s = machines_here(task, agents, results)
    uncoded_s = unit_s + shared_s + agents * learner_s
    return uncoded_s * TOTALLED / task.published[str(agents)]["uncoded"][0]


def slower_emulated(task: Wang21Task, agents: int) -> float:
    """The emulated time of a unit in that of the paper's machines, which scales the delays."""
    return EMULATED_UNIT_S / published_machines(task, agents).unit_s


def apart_s(setting: Setting) -> float:
    """The part of the paper's iteration beside units, where a unit takes the emulated time."""
    machines = published_machines(setting.task, setting.agents)
    share = machines.shared_s + setting.learners * machines.learner_s
    return share * slower_emulated(setting.task, setting.agents)


def predicted(
    source: str,
    task: Wang21Task,
    agents: int,
    machines: ComputeTimes,
    *,
    codes: Sequence[str] = ALL_CODES,
    slower: float = 1.0,
) -> Cell:
    """``simulated`` for the codes and every k of a task and M, by the setting's name."""

    def compute() -> JSON:
        every = settings([(task, agents)], codes=codes, slower=slower)
        return {setting.name: simulated(setting, machines) for setting in every}

    return Cell(
        name=f"predicted-{source}-{task.name}-{agents}",
        settings={
            **machines._asdict(),
            "rounds": ROUNDS,
            "codes": list(codes),
            "slower": slower,
        },
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
        "stragglers.delay_s": setting.delays.delay_s,
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
