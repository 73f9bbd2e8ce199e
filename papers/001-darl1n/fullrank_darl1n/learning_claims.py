"""The claims of [DARL1N, Sec. VI-A] on Tables I to IV, Fig. 2(a, c, d) and Fig. 3.

Rewards of the contests depend on the adversaries, and the authors' are published for 6 agents
alone; the order of methods that meet the same adversaries can be judged. In Fig. 3 DARL1N (Full
Range) has all agents as neighbours.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from fullrank.runs.statistics import student
from fullrank_darl1n.published import (
    AGENTS,
    BASELINES,
    BATTLE,
    DARL1N,
    FOOD,
    GRASSLAND,
    TASKS,
    Darl1nScale,
    Darl1nTask,
    TeamSpec,
)
from fullrank_darl1n.runs import (
    LearningCurve,
    curves,
    ends,
    fixed_return,
    mean_curve,
    seeds,
    trials,
)
from fullrank_darl1n.trials import UNLIMITED, Trial
from fullrank_papers.cells import Results
from fullrank_papers.claims import (
    ClaimResult,
    Whose,
    by_interval,
    judge,
    measured,
    undecided,
    untested,
)

ALIKE = 0.05
"""Share of the best return within which returns count as equal."""
SMALL, APART = 6, 10.0
"""Food Collection is small up to so many agents; its rewards in Table II are then so far apart."""
AS_GOOD = 0.05
"""Share of the others' best return by which DARL1N may end lower and still be as good."""
TEAM = TeamSpec(FOOD, next(size for size in FOOD.sizes if size.agents == AGENTS))
"""The team of Fig. 3 and of Table VI."""
NO_EPC = "EPC is not built; the tables have the paper's numbers"
EPC = (
    "DARL1N converges before EPC, too, but in Ising.",
    "Ising: EPC converges at once with 16 agents and more.",
    "Ising: EPC ends highest with 64 agents.",
)

MethodCurves: TypeAlias = Mapping[str, LearningCurve]
"""Curves by method."""

Sooner: TypeAlias = list[str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningClaim:
    """A claim about the curves of some teams."""

    claim: str
    whose: Whose = Whose.PAPER
    teams: Sequence[TeamSpec]
    against: Callable[[MethodCurves, TeamSpec], list[str] | None]
    """Evidence against the claim in a team's curves; None if they tell nothing."""


def judge_learning(results: Results, scale: Darl1nScale) -> list[ClaimResult]:
    """Results for Tables I to IV, but for rankings of sides."""
    every = scale.teams()
    food = [team for team in every if team.task is FOOD]
    claims = [
        LearningClaim(
            claim="Ising: all methods end alike with 9 agents.",
            teams=every[:1],
            against=lambda learnt, team: _alike(learnt),
        ),
        LearningClaim(
            claim="DARL1N, with a machine for each learner, converges before MADDPG and MFAC, by "
            "the paper's criterion.",
            teams=every,
            against=lambda learnt, team: _sooner(learnt, LearningCurve.settled, team),
        ),
        LearningClaim(
            claim="It reaches the fixed return before them.",
            teams=every,
            against=lambda learnt, team: _reached(learnt, team),
        ),
        LearningClaim(
            claim="It does on one processor, too.",
            whose=Whose.OURS,
            teams=every,
            against=lambda learnt, team: _reached(learnt, None),
        ),
        LearningClaim(
            claim="Food Collection: MADDPG and MFAC end below DARL1N with 12 agents and more.",
            teams=[team for team in food if team.size.agents > SMALL],
            against=lambda learnt, team: _as_high(learnt),
        ),
        LearningClaim(
            claim=f"Food Collection: with up to {SMALL} agents they end alike, within the "
            f"{APART:g} points of Table II.",
            teams=[team for team in food if team.size.agents <= SMALL],
            against=lambda learnt, team: _apart(learnt),
        ),
    ]
    return [_in_full(results, scale, claim) for claim in claims]


def _in_full(results: Results, scale: Darl1nScale, asked: LearningClaim) -> ClaimResult:
    """Result of a claim from the teams that have all seeds of the compared methods."""
    claim, whose = asked.claim, asked.whose
    if not scale.judges:
        return untested(claim, scale.short, whose=whose)
    whole = [team for team in asked.teams if len(seeds(results, scale, team)) == scale.seeds]
    learnt = {team: curves(results, scale, team) for team in whole}
    if not learnt:
        return undecided(claim, f"none of {len(asked.teams)} teams has all runs", whose=whose)
    told = {team: asked.against(found, team) for team, found in learnt.items()}
    if all(texts is None for texts in told.values()):
        reason = "DARL1N's runs end before it, and before the others"
        return undecided(claim, reason, measured(scale.seeds), whose=whose)
    speaking = [f"{team}: {text}" for team, texts in told.items() for text in texts or []]
    grounds = "; ".join(
        f"{team}, {found[DARL1N].iterations[-1]:.0f} of the paper's {team.size.iterations} "
        "iterations"
        for team, found in learnt.items()
        if told[team] is not None
    )
    return judge(claim, speaking, grounds=grounds, strength=measured(scale.seeds), whose=whose)


def _alike(learnt: MethodCurves) -> list[str]:
    best = max(curve.end for curve in learnt.values())
    return [
        f"{method} ends at {curve.end:.1f}, the best at {best:.1f}"
        for method, curve in learnt.items()
        if curve.end < best - ALIKE * abs(best)
    ]


def _apart(learnt: MethodCurves) -> list[str]:
    gaps = {method: learnt[method].end - learnt[DARL1N].end for method in BASELINES}
    return [
        f"{method} ends {gap:+.1f} from DARL1N" for method, gap in gaps.items() if abs(gap) > APART
    ]


def _reached(learnt: MethodCurves, team: TeamSpec | None) -> Sooner:
    fixed = fixed_return(list(learnt.values()))
    return _sooner(learnt, lambda curve: curve.reached(fixed), team)


def _sooner(
    learnt: MethodCurves,
    reached: Callable[[LearningCurve], int | None],
    team: TeamSpec | None,
) -> Sooner:
    """Methods that are there before DARL1N; None if its run ends before it and they are.

    Args:
        learnt: Curves by method.
        reached: The index of an evaluation, or None.
        team: With a team, DARL1N's seconds are those of one of its learners, all alike.
    """
    machines = team.size.agents if team else 1
    own, curve = reached(learnt[DARL1N]), learnt[DARL1N]
    until = (curve.seconds[-1] if own is None else curve.second(own)) / machines
    times = {other: learnt[other].second(reached(learnt[other])) for other in BASELINES}
    said = "not within" if own is None else "after"
    before = [
        f"{other} after {second:.1f} s, DARL1N {said} {until:.1f} s"
        for other, second in times.items()
        if second <= until
    ]
    return None if own is None and not before else before


def _as_high(learnt: MethodCurves) -> list[str]:
    """Baselines whose final return is at least DARL1N's."""
    return [
        f"{other} ends at {learnt[other].end:.1f}, DARL1N at {learnt[DARL1N].end:.1f}"
        for other in BASELINES
        if learnt[other].end >= learnt[DARL1N].end
    ]


def judge_rankings(results: Results, scale: Darl1nScale) -> list[ClaimResult]:
    """Judge the rankings of the contests, one claim for each team."""
    judged = [
        _as_good(results, scale, TeamSpec(task, size))
        for task in (GRASSLAND, BATTLE)
        for size in scale.sizes_of(task)
    ]
    return [
        *judged,
        untested(
            "Grassland and Adversarial Battle: the rewards of the tables.",
            "they depend on the authors' adversaries, which are published for M = 6 alone; "
            "ours are other ones",
        ),
    ]


def _as_good(results: Results, scale: Darl1nScale, team: TeamSpec) -> ClaimResult:
    claim = f"{team}: DARL1N ends as high as MADDPG and MFAC, or higher."
    if not scale.judges:
        return untested(claim, scale.short)
    there = len(seeds(results, scale, team))
    if there < scale.seeds:
        return undecided(claim, f"{there} of {scale.seeds} seeds of all methods are there")
    own, *others = ends(results, scale, team, [DARL1N, *BASELINES])
    best = max(others, key=lambda returns: float(returns.mean()))
    lead = student(own - best)
    limit = -AS_GOOD * abs(float(best.mean()))
    said = f"its lead over the better one is {lead}, at least {limit:.1f} is asked"
    return by_interval(claim, lead, limit, said, strength=measured(there, interval=True))


def judge_paces(results: Results, scale: Darl1nScale) -> list[ClaimResult]:
    """Judge Fig. 2 (a, c, d): DARL1N takes the least time for an iteration."""
    return [
        judged
        for task in TASKS
        if task is not FOOD
        for judged in (_quickest(results, scale, task, apart=apart) for apart in (True, False))
    ]


def _quickest(
    results: Results, scale: Darl1nScale, task: Darl1nTask, *, apart: bool
) -> ClaimResult:
    """Judge one task; ``apart``: DARL1N has a machine for each learner, as in the paper."""
    where = "with a machine for each learner" if apart else "on one processor"
    claim = f"{task.name}: {where} DARL1N takes the least time for an iteration."
    whose = Whose.PAPER if apart else Whose.OURS
    paces, against = [], []
    for team in (TeamSpec(task, size) for size in scale.sizes_of(task)):
        if len(seeds(results, scale, team)) < scale.seeds:
            continue
        found = curves(results, scale, team)
        own = found[DARL1N].iteration_s / (team.size.agents if apart else 1)
        least = min(found[method].iteration_s for method in BASELINES)
        paces.append(f"M = {team.size.agents}: {own:.4f} s, the others {least:.4f} s or more")
        against += [paces[-1]] if own >= least else []
    if not paces:
        return undecided(claim, "no team has all seeds", whose=whose)
    return judge(
        claim, against, grounds="; ".join(paces), strength=measured(scale.seeds), whose=whose
    )


def full_range_trials(scale: Darl1nScale) -> list[Trial]:
    """One run for each seed."""
    own, changes = replace(scale, iterations=scale.full_range), {"distance": UNLIMITED}
    return [
        Trial(task=FOOD, size=TEAM.size, method=DARL1N, scale=own, seed=seed, changes=changes)
        for seed in range(scale.seeds if scale.full_range else 0)
    ]


def judge_full_range(results: Results, scale: Darl1nScale) -> list[ClaimResult]:
    """Judge Fig. 3 by as many iterations with and without a neighbour distance, seed by seed."""
    claims = (
        "Food Collection, M = 12: with all agents as neighbours (Full Range) DARL1N ends lower.",
        "Its iterations take longer (Fig. 2(b)).",
    )
    if not scale.full_range:
        return [untested(claim, scale.short) for claim in claims]
    pairs = [
        (
            mean_curve([results[near.name]]).until(full.iterations),
            mean_curve([results[full.name]]),
        )
        for near, full in zip(trials(scale, TEAM, DARL1N), full_range_trials(scale), strict=True)
        if near.name in results and full.name in results
    ]
    if len(pairs) < scale.seeds:
        done = f"{len(pairs)} of {scale.seeds} seeds are computed"
        return [undecided(claim, done) for claim in claims]
    lost = student(np.array([near.end - full.end for near, full in pairs]))
    longer = student(np.array([full.iteration_s - near.iteration_s for near, full in pairs]))
    strength = measured(len(pairs), interval=True)
    return [
        by_interval(
            claim,
            gap,
            0.0,
            f"difference {gap.mean:.3g} [{gap.low:.3g}, {gap.high:.3g}]",
            strength=strength,
        )
        for claim, gap in zip(claims, (lost, longer), strict=True)
    ]
