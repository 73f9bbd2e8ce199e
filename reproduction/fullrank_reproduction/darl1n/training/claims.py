"""The claims of [DARL1N, Sec. VI-A] on training, tested on the runs of this reproduction."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from fullrank_reproduction.claim_results import (
    ClaimResult,
    Whose,
    judge,
    measured,
    undecided,
    untested,
)
from fullrank_reproduction.darl1n.results import Results
from fullrank_reproduction.darl1n.training import (
    coded_rewards,
    contact_distance,
    crossplay,
    full_range,
    halved_distance,
    neighbour_distance,
    rankings,
    scaling,
    wireless,
)
from fullrank_reproduction.darl1n.training.budget import Darl1nBudget
from fullrank_reproduction.darl1n.training.convergence import LearningCurve, fixed_return
from fullrank_reproduction.darl1n.training.epc_claims import judge_growth
from fullrank_reproduction.darl1n.training.published import (
    BASELINES,
    DARL1N,
    EPC,
    FOOD,
    ISING,
)
from fullrank_reproduction.darl1n.training.runs import TeamSpec, curves, seeds, teams

ALIKE = 0.05
"""Share of the best return within which returns count as equal."""
SMALL, APART = 6, 10.0
"""Food Collection is small up to so many agents; its rewards in Table II are then so far apart."""

MethodCurves: TypeAlias = Mapping[str, LearningCurve]
"""Curves by method."""

Sooner: TypeAlias = list[str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningClaim:
    """A claim about the curves of some teams."""

    claim: str
    whose: Whose = Whose.PAPER
    teams: Sequence[TeamSpec]
    others: Sequence[str] = BASELINES
    """Methods that DARL1N is compared with."""
    against: Callable[[MethodCurves, TeamSpec], list[str] | None]
    """Evidence against the claim in a team's curves; None if they tell nothing."""


def judged(results: Results, budget: Darl1nBudget) -> dict[str, list[ClaimResult]]:
    """Results by source; figures without any result are left out."""
    found = {
        "Tables I to IV": [
            *judge_learning(results, budget),
            *judge_growth(results, budget),
            *rankings.judge_rankings(results, budget),
        ]
    }
    if scaling.CELL in results:
        found["Fig. 2"] = scaling.judge_scaling(budget.timed_teams, results[scaling.CELL])
    found["Fig. 2(a, c, d)"] = rankings.judge_paces(results, budget)
    found["Fig. 3"] = full_range.judge_full_range(results, budget)
    found["Fig. 4(a)"] = [
        untested(
            "DARL1N learns best from a global reward, too.",
            "the paper defines neither that reward nor the transitions of its variant of Food "
            "Collection, and its authors' code has none",
        )
    ]
    if crossplay.CELL in results:
        found["Fig. 4(b)"] = crossplay.judge_crossplay(results, budget)
    if wireless.computed(results, budget):
        found["Fig. 5"] = wireless.judge_wireless(results, budget)
    if neighbour_distance.curves(results, budget):
        found["Fig. 6"] = neighbour_distance.judge_distances(results, budget)
    found["Sec. VII"] = [
        *contact_distance.judge_contact(results, budget),
        *halved_distance.judge_halving(results, budget),
    ]
    found["Table VI, rewards"] = coded_rewards.judge_rewards(results, budget)
    return found


def judge_learning(results: Results, budget: Darl1nBudget) -> list[ClaimResult]:
    """Results for Tables I to IV, but for rankings of sides and for EPC in Ising."""
    every = teams(budget)
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
            against=lambda learnt, team: _settled(learnt, team, BASELINES),
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
        LearningClaim(
            claim="DARL1N converges before EPC, too, but in Ising.",
            teams=[team for team in every if team.task is not ISING],
            others=[EPC],
            against=lambda learnt, team: _settled(learnt, team, [EPC]),
        ),
    ]
    return [_in_full(results, budget, claim) for claim in claims]


def _in_full(results: Results, budget: Darl1nBudget, asked: LearningClaim) -> ClaimResult:
    """Result of a claim from the teams that have all seeds of the compared methods."""
    claim, whose = asked.claim, asked.whose
    if not budget.judges:
        return untested(claim, budget.short, whose=whose)
    whole = [team for team in asked.teams if len(seeds(results, budget, team)) == budget.seeds]
    learnt = {team: curves(results, budget, team) for team in whole}
    learnt = {team: found for team, found in learnt.items() if found.keys() >= set(asked.others)}
    if not learnt:
        return undecided(claim, f"none of {len(asked.teams)} teams has all runs", whose=whose)
    told = {team: asked.against(found, team) for team, found in learnt.items()}
    if all(texts is None for texts in told.values()):
        reason = "DARL1N's runs end before it, and before the others"
        return undecided(claim, reason, measured(budget.seeds), whose=whose)
    speaking = [f"{team}: {text}" for team, texts in told.items() for text in texts or []]
    grounds = "; ".join(
        f"{team}, {found[DARL1N].iterations[-1]:.0f} of the paper's {team.size.iterations} "
        "iterations"
        for team, found in learnt.items()
        if told[team] is not None
    )
    return judge(claim, speaking, grounds=grounds, strength=measured(budget.seeds), whose=whose)


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


def _settled(learnt: MethodCurves, team: TeamSpec | None, others: Sequence[str]) -> Sooner:
    return _sooner(learnt, LearningCurve.settled, team, others)


def _reached(learnt: MethodCurves, team: TeamSpec | None) -> Sooner:
    fixed = fixed_return(list(learnt.values()))
    return _sooner(learnt, lambda curve: curve.reached(fixed), team, BASELINES)


def _sooner(
    learnt: MethodCurves,
    reached: Callable[[LearningCurve], int | None],
    team: TeamSpec | None,
    others: Sequence[str],
) -> Sooner:
    """Methods that are there before DARL1N; None if its run ends before it and they are.

    Args:
        learnt: Curves by method.
        reached: The index of an evaluation, or None.
        team: With a team, DARL1N's seconds are those of one of its learners, all alike.
        others: The methods that it is compared with.
    """
    machines = team.size.agents if team else 1
    own, curve = reached(learnt[DARL1N]), learnt[DARL1N]
    until = (curve.seconds[-1] if own is None else curve.second(own)) / machines
    times = {other: learnt[other].second(reached(learnt[other])) for other in others}
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
