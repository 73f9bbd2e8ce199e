"""Fig. 2 of [DARL1N]: the time of an iteration against M.

Food Collection at one density: 24 agents and pieces of food in a square of side 5. Agents see the
six nearest pieces and up to six neighbours, so that an observation has the same length in any team.
An iteration has the updates of all units, Adam and the targets; DARL1N's also B samples of each
unit by local interaction, the others' 4 copies x 25 steps of the environment. Methods are timed on
one processor. DARL1N is also timed as in the paper, with a machine for each learner: the longest of
M learners that compute a unit each, followed by Adam and the targets, without the network.

Growth is judged by teams within a factor of four of the largest, 24 to 96. An agent's samples
involve the agents in a square of side 3 around it: in smaller arenas that is most of the team or
all of it. There, DARL1N's learners simulate almost all agents, and the other methods spend most of
their time on steps of the environment, whose calls take the same time in any team.
"""

import math
import statistics
from collections.abc import Sequence
from functools import partial
from time import process_time

import numpy as np

from fullrank.common.types import JSON, Array, Interval
from fullrank.config.tree import RunConfig
from fullrank.local import LocalRun
from fullrank_darl1n.published import DARL1N, ENGINE_METHODS
from fullrank_papers.cells import Cell, settings_of
from fullrank_papers.claims import ClaimResult, Whose, by_samples, interval
from fullrank_papers.paper import table
from fullrank_papers.runs import SETTINGS, configured

CELL = "scaling"
APART = f"{DARL1N}, a machine for each learner"
TIMED = (*ENGINE_METHODS, APART)
LINEAR = 1.1
"""The largest exponent that counts as linear: in larger squares fewer agents are near a wall, so
that more are around them; from 24 to 96 that alone makes the share of the square of side 3 within
the walls grow as M^0.12."""
JUDGED = 4
"""Growth is judged by teams within this factor of the largest."""
BATCH = 256


def cell(teams: Sequence[int], rounds: int) -> Cell:
    """All teams and methods in one run, so that one machine's times are compared.

    Args:
        teams: Team sizes M, ascending.
        rounds: Timed iterations of each team with each method.
    """
    runs = [
        settings_of(config(method, agents, rounds)) for agents in teams for method in ENGINE_METHODS
    ]
    return Cell(
        name=CELL,
        settings={"runs": runs},
        compute=partial(measured, teams, rounds),
        weight=(rounds + 1) * sum(teams) / 30,
    )


def measured(teams: Sequence[int], rounds: int) -> JSON:
    """Seconds of an iteration, see ``TIMED``, for each team in each round.

    A round has one iteration of every run, methods and teams in turn, so that a temporary slowdown
    of the machine affects all of them; the iteration before the first round does not count.
    """
    runs = {
        (method, agents): LocalRun(config(method, agents, rounds + 1), coded=False)
        for agents in teams
        for method in ENGINE_METHODS
    }
    going = {key: iter(run) for key, run in runs.items()}
    spent: dict[tuple[str, int], list[float]] = {
        (method, agents): [] for agents in teams for method in TIMED
    }
    for number in range(rounds + 1):
        for method, agents in runs:
            began = process_time()
            next(going[method, agents])
            spent[method, agents].append(process_time() - began)
        for agents in teams:
            spent[APART, agents].append(_apart(runs[DARL1N, agents], number))
    return {method: [spent[method, agents][1:] for agents in teams] for method in TIMED}


def _apart(run: LocalRun, number: int) -> float:
    """Seconds of the slowest learner plus those of the controller, which waits for it."""
    algorithm, training = run.training.algorithm, run.training
    updates = np.zeros((len(algorithm.problem.units), algorithm.problem.vector_size), np.float32)
    nothing = np.empty((0, training.collector.layout.row_size), np.float32)
    longest_s = 0.0
    for unit in range(len(algorithm.problem.units)):
        began = process_time()
        for _, update in algorithm.gradients.compute(nothing, [unit], iteration=number):
            updates[unit, : len(update)] = update
        longest_s = max(longest_s, process_time() - began)
    began = process_time()
    training.trainer.apply(updates, iteration=number)
    return longest_s + process_time() - began


def config(method: str, agents: int, iterations: int) -> RunConfig:
    """Configuration of a timed run."""
    options = {
        **SETTINGS,
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
    return configured(options=options)


def judged(teams: Sequence[int]) -> slice:
    """Slice of the teams by which growth is judged."""
    small = sum(JUDGED * agents < teams[-1] for agents in teams)
    return slice(small, len(teams))


def slopes(teams: Sequence[int], seconds: Sequence[Sequence[float]]) -> Array:
    """Exponents of M in the growth of times: least squares on logarithmic axes, round by round.

    Args:
        teams: Team sizes M.
        seconds: Seconds for each team in each round.
    """
    found: Array = np.polyfit(np.log(teams), np.log(seconds), 1)[0]
    return found


def growth(teams: Sequence[int], seconds: Sequence[Sequence[float]]) -> Interval:
    """Mean exponent over the rounds."""
    return interval(slopes(teams, seconds))


def medians(seconds: Sequence[Sequence[float]]) -> list[float]:
    """Median over the rounds for each team."""
    return [statistics.median(value) for value in seconds]


def power(exponent: Interval) -> str:
    """The exponent and its interval as text."""
    return f"M^{exponent.mean:.2f} ({exponent.low:.2f} to {exponent.high:.2f})"


def judge_scaling(teams: Sequence[int], spent: JSON) -> list[ClaimResult]:
    """Judge the claims on Fig. 2."""
    larger = judged(teams)
    grown = {method: slopes(teams[larger], value[larger]) for method, value in spent.items()}
    longest = {method: 1e3 * np.array(value[-1]) for method, value in spent.items()}
    others = [method for method in ENGINE_METHODS if method != DARL1N]
    span = f"exponent of M from {teams[larger][0]} to {teams[-1]} agents, bound {LINEAR}"
    faster = {method: grown[method] - grown[APART] for method in others}

    def least(own: str) -> dict[str, Array]:
        return {method: longest[method] - longest[own] for method in others}

    rounds = partial(by_samples, unit="rounds")
    ours = partial(rounds, whose=Whose.OURS)
    said = "ms less"
    return [
        rounds(
            "DARL1N's time of an iteration grows linearly in M, or slower.",
            {"": grown[APART]},
            low=-math.inf,
            high=LINEAR,
            said=span,
        ),
        rounds("That of MADDPG and MFAC grows faster.", faster, said="difference of the exponents"),
        ours(
            "DARL1N's grows linearly on one processor, too.",
            {"": grown[DARL1N]},
            low=-math.inf,
            high=LINEAR,
            said=span,
        ),
        rounds(f"With {teams[-1]} agents DARL1N takes the least time.", least(APART), said=said),
        ours(
            f"With {teams[-1]} agents it takes the least on one processor, too.",
            least(DARL1N),
            said=said,
        ),
    ]


def scaling_table(teams: Sequence[int], spent: JSON) -> str:
    """A row for each team, and two for growth."""
    columns = zip(*(medians(spent[method]) for method in TIMED), strict=True)
    rows: list[list[object]] = [
        [agents, *(f"{value:.3f}" for value in seconds)]
        for agents, seconds in zip(teams, columns, strict=True)
    ]
    for part in (slice(None), judged(teams)):
        growths = (power(growth(teams[part], spent[method][part])) for method in TIMED)
        rows.append([f"{teams[part][0]} to {teams[-1]}", *growths])
    return table(["M", *TIMED], rows)
