"""The claims of [DARL1N, Sec. VI-A] on training, tested on the runs of this reproduction."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

from fullrank_reproduction.claim_results import ClaimResult, judge, measured, untested
from fullrank_reproduction.darl1n.results import Results
from fullrank_reproduction.darl1n.training import scaling
from fullrank_reproduction.darl1n.training.budget import Darl1nBudget
from fullrank_reproduction.darl1n.training.convergence import LearningCurve, fixed_return
from fullrank_reproduction.darl1n.training.crossplay import judge_crossplay
from fullrank_reproduction.darl1n.training.neighbour_distance import judge_distances
from fullrank_reproduction.darl1n.training.published import DARL1N, ENGINE_METHODS, EPC, FOOD, ISING
from fullrank_reproduction.darl1n.training.runs import TeamSpec, curves, teams
from fullrank_reproduction.darl1n.training.scaling import judge_scaling
from fullrank_reproduction.darl1n.training.wireless import judge_wireless

ALIKE = 0.05
"""Share of the best return within which returns count as equal."""

MethodCurves: TypeAlias = Mapping[str, LearningCurve]
"""Curves by method."""

Against: TypeAlias = Callable[[MethodCurves], list[str]]
"""Evidence against a claim in a team's curves."""


def judged(results: Results, budget: Darl1nBudget) -> dict[str, list[ClaimResult]]:
    """Results by source."""
    return {
        "Tables I to IV": judge_learning(results, budget),
        "Fig. 2": judge_scaling(budget.timed_teams, results[scaling.CELL]),
        "Fig. 4(a)": [
            untested(
                "DARL1N learns best from a global reward, too.",
                "the paper defines neither that reward nor the transitions of its variant of Food "
                "Collection, and its authors' code has none",
            )
        ],
        "Fig. 4(b)": judge_crossplay(results, budget),
        "Fig. 5": judge_wireless(results, budget),
        "Fig. 6": judge_distances(results, budget),
    }


def judge_learning(results: Results, budget: Darl1nBudget) -> list[ClaimResult]:
    """Results for Tables I to IV."""
    every = teams(budget)
    ising = [team for team in every if team.task is ISING]
    food = [team for team in every if team.task is FOOD]
    claims: list[tuple[str, Sequence[TeamSpec], Against]] = [
        ("Ising: all methods end alike with 9 agents.", ising[:1], _alike),
        (
            "DARL1N converges before MADDPG and MFAC, by the paper's criterion.",
            every,
            lambda learnt: _sooner(_settled(learnt), DARL1N, ENGINE_METHODS),
        ),
        (
            "It reaches the fixed return before them.",
            every,
            lambda learnt: _sooner(_reached(learnt), DARL1N, ENGINE_METHODS),
        ),
        (
            "Food Collection: MADDPG and MFAC end below DARL1N with 12 agents and more.",
            food[2:],
            lambda learnt: _as_high(learnt, DARL1N, ENGINE_METHODS),
        ),
        (
            "DARL1N converges before EPC, too, but in Ising.",
            [team for team in every if team.task is not ISING],
            lambda learnt: _sooner(_settled(learnt), DARL1N, [EPC]),
        ),
        (
            "Ising: EPC converges first with 16 agents and more.",
            ising[1:],
            lambda learnt: _sooner(_settled(learnt), EPC, learnt),
        ),
        (
            "Ising: EPC ends highest with 64 agents.",
            ising[3:],
            lambda learnt: _as_high(learnt, EPC, learnt),
        ),
    ]
    return [
        *(_in_full(results, budget, *claim) for claim in claims),
        untested(
            "Grassland and Adversarial Battle: the rewards of the tables.",
            "they depend on the authors' adversaries, which are published for M = 6 alone; "
            "ours are other ones",
        ),
    ]


def _in_full(
    results: Results, budget: Darl1nBudget, claim: str, judged: Sequence[TeamSpec], against: Against
) -> ClaimResult:
    """Result of a claim from the teams that were trained for as long as the paper's."""
    whole = [team for team in judged if budget.whole(team.size)]
    if not whole:
        return untested(claim, budget.short)
    speaking = [
        f"{team}: {text}" for team in whole for text in against(curves(results, budget, team))
    ]
    grounds = f"{len(whole)} teams, {budget.seeds} seeds"
    return judge(claim, speaking, grounds=grounds, strength=measured(budget.seeds))


def _alike(learnt: MethodCurves) -> list[str]:
    best = max(curve.end for curve in learnt.values())
    return [
        f"{method} ends at {curve.end:.1f}, the best at {best:.1f}"
        for method, curve in learnt.items()
        if curve.end < best - ALIKE * abs(best)
    ]


def _settled(learnt: MethodCurves) -> dict[str, float]:
    return {method: curve.second(curve.settled()) for method, curve in learnt.items()}


def _reached(learnt: MethodCurves) -> dict[str, float]:
    fixed = fixed_return(list(learnt.values()))
    return {method: curve.second(curve.reached(fixed)) for method, curve in learnt.items()}


def _sooner(times: Mapping[str, float], own: str, others: Iterable[str]) -> list[str]:
    """Methods that reach the level before the given method; all methods if it never does."""
    return [
        f"{other} after {times[other]:.0f} s, {own} after {times[own]:.0f}"
        for other in others
        if other != own and times[other] <= times[own]
    ]


def _as_high(learnt: MethodCurves, own: str, others: Iterable[str]) -> list[str]:
    """Methods whose final return is at least that of the given method."""
    return [
        f"{other} ends at {learnt[other].end:.1f}, {own} at {learnt[own].end:.1f}"
        for other in others
        if other != own and learnt[other].end >= learnt[own].end
    ]
