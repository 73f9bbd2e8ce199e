"""Fig. 2 of [DARL1N]: the time of an iteration against M.

Food Collection at one density (24 agents and pieces of food in a square of side 5), in which agents
see the six nearest pieces and up to six neighbours, so that an observation is as long in any team.
An iteration has the updates of all units, Adam and the targets; DARL1N's also B samples of each
unit by local interaction, the others' 4 copies x 25 steps of the environment.
"""

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from fullrank.config import RunConfig, as_tables, load
from fullrank.local import LocalRun
from fullrank.reproduction.cells import Cell
from fullrank.reproduction.darl1n.training.published import DARL1N, OURS
from fullrank.reproduction.timing import Clock
from fullrank.reproduction.verdicts import Verdict, judge
from fullrank.types import JSON

CELL = "scaling"
LINEAR = 1.1
"""The largest exponent that counts as linear: a machine is never quite as fast twice."""
BATCH = 256

Spent = Mapping[str, Sequence[float]]
"""Seconds of an iteration by method, for each team."""


def cell(teams: Sequence[int], iterations: int, clock: Clock) -> Cell:
    """All teams and methods in one run, so that one machine's times are compared.

    Args:
        teams: M, ascending.
        iterations: Timed with each.
        clock: Measures them.
    """
    runs = [as_tables(config(method, agents, iterations)) for agents in teams for method in OURS]
    return Cell(
        name=CELL,
        settings={"runs": runs},
        compute=partial(measured, OURS, teams, iterations, clock),
    )


def measured(
    methods: Sequence[str], teams: Sequence[int], iterations: int, clock: Clock
) -> dict[str, list[float]]:
    """Median seconds of an iteration, methods in turns; the first one does not count."""
    spent: dict[str, list[float]] = {method: [] for method in methods}
    for agents in teams:
        for method, seconds in _iteration_s(methods, agents, iterations, clock).items():
            spent[method].append(seconds)
    return spent


def _iteration_s(
    methods: Sequence[str], agents: int, iterations: int, clock: Clock
) -> dict[str, float]:
    configs = {method: config(method, agents, iterations + 1) for method in methods}
    runs = {method: iter(LocalRun(each, coded=False)) for method, each in configs.items()}
    for run in runs.values():
        next(run)
    times: dict[str, list[float]] = {method: [] for method in methods}
    for _ in range(iterations):
        for method, run in runs.items():
            times[method].append(_timed(run, clock))
    return {method: statistics.median(each) for method, each in times.items()}


def _timed(run: Iterator[object], clock: Clock) -> float:
    began = clock()
    next(run)
    return clock() - began


def config(method: str, agents: int, iterations: int) -> RunConfig:
    """Of a run."""
    options = {
        "iterations": iterations,
        "environment.name": "food_collection",
        "environment.agents": agents,
        "environment.half_width": 2.5 * math.sqrt(agents / 24),
        "environment.distance": 0.3,
        "environment.food_distance": 0.6,
        "environment.food_seen": 6,
        "environment.neighbours_seen": 6,
        "environment.moving_start": True,
        "collect.warmup": BATCH,
        "algorithm.name": method,
        "algorithm.batch_size": BATCH,
        "learners": agents,
    }
    if method == DARL1N:
        options["algorithm.evaluate_every"] = iterations
    return load(options=options).check().config


def exponent(teams: Sequence[int], seconds: Sequence[float]) -> float:
    """Of M, by which times grow from the second team on.

    In the first one agents are so often near a wall that they have fewer around them.
    """
    return math.log(seconds[-1] / seconds[1]) / math.log(teams[-1] / teams[1])


def judge_scaling(teams: Sequence[int], spent: JSON) -> list[Verdict]:
    """Fig. 2."""
    growth = {method: exponent(teams, seconds) for method, seconds in spent.items()}
    own = growth.pop(DARL1N)
    said = f"from {teams[1]} to {teams[-1]} agents as M^{own:.2f}"
    others = ", ".join(f"{method} as M^{other:.2f}" for method, other in growth.items())
    slower = [method for method, other in growth.items() if other <= own]
    together = [method for method in growth if spent[method][-1] <= spent[DARL1N][-1]]
    ratio = max(spent[DARL1N][-1] / spent[method][-1] for method in growth) / teams[-1]
    return [
        judge(
            "DARL1N's time of an iteration grows linearly in M, or slower.",
            [] if own <= LINEAR else [said],
            grounds=said,
        ),
        judge(
            "That of MADDPG and MFAC grows faster.",
            [f"{method} does not" for method in slower],
            grounds=others,
        ),
        judge(
            f"With {teams[-1]} agents DARL1N takes the least time, on one processor.",
            [f"{method} takes less" for method in together],
            grounds="all units in turn",
        ),
        judge(
            "It takes the least time where each learner has a machine and they have one.",
            [] if ratio < 1 else ["a learner's share is longer"],
            grounds=f"a learner's share is {ratio:.1%} of their time",
        ),
    ]


def of_scaling(teams: Sequence[int], spent: JSON) -> str:
    """A line for each team."""
    lines = ["| M | " + " | ".join(OURS) + " |", "|---|" + "---|" * len(OURS)]
    for index, agents in enumerate(teams):
        cells = " | ".join(f"{spent[method][index]:.3f}" for method in OURS)
        lines.append(f"| {agents} | {cells} |")
    return "\n".join(lines)
