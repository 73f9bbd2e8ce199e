"""The claims of [DARL1N, Sec. VI-A] on Tables I to IV, Fig. 2(a, c, d) and Fig. 3.

Rewards of the contests depend on the adversaries, and the authors' are published for 6 agents
alone; the order of methods that meet the same adversaries can be judged. In Fig. 3 DARL1N (Full
Range) has all agents as neighbours. All comparisons are by seed.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from fullrank.common.types import Array
from fullrank_darl1n.published import (
    AGENTS,
    BASELINES,
    BATTLE,
    DARL1N,
    ENGINE_METHODS,
    EPC,
    FOOD,
    GRASSLAND,
    ISING,
    TASKS,
    Darl1nScale,
    Darl1nTask,
    TeamSpec,
)
from fullrank_darl1n.runs import (
    WAY,
    LearningCurve,
    by_seed,
    mean_curve,
    seeds,
    trial,
    trials,
)
from fullrank_darl1n.trials import UNLIMITED, Trial
from fullrank_papers.cells import Results
from fullrank_papers.claims import (
    DIGITS,
    UNBUILT,
    ClaimResult,
    Whose,
    by_samples,
    undecided,
    untested,
)

ALIKE = 0.05
"""Share of a team's largest gain within which returns count as equal."""
SMALL, APART = 6, 10.0
"""Food Collection is small up to so many agents; its rewards in Table II are then so far apart."""
TEAM = TeamSpec(FOOD, next(size for size in FOOD.sizes if size.agents == AGENTS))
"""The team of Fig. 3 and of Table VI."""
NO_EPC, BEFORE_EPC = "no run of EPC", "DARL1N converges before EPC, too, but in Ising."
LARGE = {
    "Ising: EPC converges at once with 16 agents and more.": "needs 16 to 64 spins",
    "Ising: EPC ends highest with 64 agents.": "needs 64 spins",
}
"""Claims on EPC, which is built for Food Collection alone, and the teams that they need."""

SeedCurves: TypeAlias = Mapping[str, Sequence[LearningCurve]]
"""Curves of the seeds by method."""
LearningParts: TypeAlias = Mapping[str, Array | None]
"""Samples by name, None where a run ended too early to tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningClaim:
    """A claim about the curves of some teams."""

    claim: str
    whose: Whose = Whose.PAPER
    teams: Sequence[TeamSpec]
    parts: Callable[[SeedCurves, TeamSpec], LearningParts]
    """Samples in a team's curves."""
    low: float = 0.0
    high: float = np.inf
    ends: bool = False
    """True if it compares final returns alone, which may have more seeds than times have."""
    said: str

    def judged(self, results: Results, scale: Darl1nScale) -> ClaimResult:
        """Judge the claim by the teams that have all seeds of the compared methods."""
        if not scale.judges:
            return undecided(self.claim, scale.short, whose=self.whose)
        found, censored = dict[str, Array](), list[str]()
        for team in self.teams:
            wanted = scale.end_seeds(team) if self.ends else scale.timed_seeds(team)
            if len(seeds(results, scale, team, wanted)) < len(wanted):
                censored.append(f"{team} for want of seeds")
                continue
            short = f"{team.task.name} {team.size.agents}"
            for name, values in self.parts(by_seed(results, scale, team, wanted), team).items():
                if values is None:
                    censored.append(f"{short} {name}")
                else:
                    found[f"{short} {name}"] = values
        return by_samples(
            self.claim,
            found,
            low=self.low,
            high=self.high,
            censored=censored,
            whose=self.whose,
            said=self.said,
        )


def judge_learning(results: Results, scale: Darl1nScale) -> list[ClaimResult]:
    """Results for Tables I to IV."""
    every = scale.teams()
    food = [team for team in every if team.task is FOOD]
    claims = [
        LearningClaim(
            claim="Ising: all methods end alike with 9 agents.",
            teams=every[:1],
            parts=lambda learnt, team: _leads(learnt, 100 / gain(learnt)),
            ends=True,
            low=-100 * ALIKE,
            high=100 * ALIKE,
            said=f"lead in % of the gain, bound {ALIKE:.0%}",
        ),
        LearningClaim(
            claim="DARL1N, with a machine for each learner, converges before MADDPG and MFAC, by "
            "the paper's criterion.",
            teams=every,
            parts=lambda learnt, team: sooner(learnt, LearningCurve.settled, team.size.agents),
            said="seconds sooner",
        ),
        LearningClaim(
            claim="It reaches the fixed return before them.",
            teams=every,
            parts=lambda learnt, team: _reached(learnt, team.size.agents),
            said="seconds sooner",
        ),
        LearningClaim(
            claim="It does on one processor, too.",
            whose=Whose.OURS,
            teams=every,
            parts=lambda learnt, team: _reached(learnt, 1),
            said="seconds sooner",
        ),
        LearningClaim(
            claim="Food Collection: MADDPG and MFAC end below DARL1N with 12 agents and more.",
            teams=[team for team in food if team.size.agents > SMALL],
            parts=lambda learnt, team: _leads(learnt),
            ends=True,
            said="lead",
        ),
        LearningClaim(
            claim=f"Food Collection: with up to {SMALL} agents they end alike, within the "
            f"{APART:g} points of Table II.",
            teams=[team for team in food if team.size.agents <= SMALL],
            parts=lambda learnt, team: _leads(learnt),
            ends=True,
            low=-APART,
            high=APART,
            said="lead",
        ),
    ]
    contests = [
        LearningClaim(
            claim=f"{team}: DARL1N ends as high as MADDPG and MFAC, or higher.",
            teams=[team],
            parts=lambda learnt, team: _leads(learnt, 100 / gain(learnt)),
            ends=True,
            low=-100 * ALIKE,
            said=f"% of the gain, at least -{ALIKE:.0%}",
        )
        for team in (TeamSpec(t, size) for t in (GRASSLAND, BATTLE) for size in scale.sizes_of(t))
    ]
    return [
        *(claim.judged(results, scale) for claim in (*claims, *contests, *_with_epc(scale))),
        *(() if scale.populations else (undecided(BEFORE_EPC, NO_EPC, UNBUILT),)),
        *(undecided(claim, needs, UNBUILT) for claim, needs in LARGE.items()),
        untested(
            "Grassland and Adversarial Battle: the rewards of the tables.",
            "the authors' adversaries are published for M = 6 alone",
        ),
    ]


def _with_epc(scale: Darl1nScale) -> list[LearningClaim]:
    """Claims on EPC, which has a processor for each agent if DARL1N has; none without its runs."""
    teams = [team for team in scale.teams() if team.task is not ISING]
    small = [team for team in teams if team.task is FOOD and team.size.agents <= SMALL]

    def told(of: Callable[[SeedCurves], Array | None]) -> Callable[..., LearningParts]:
        return lambda learnt, team: {
            EPC: of(learnt) if len(learnt[EPC]) == len(learnt[DARL1N]) else None
        }

    def sooner_than_epc(learnt: SeedCurves) -> Array | None:
        return sooner(learnt, LearningCurve.settled, 1, others=(EPC,))[EPC]

    def lead(learnt: SeedCurves) -> Array:
        own = [each.until(learnt[EPC][0].iterations[-1]) for each in learnt[DARL1N]]
        return _ends(own) - _ends(learnt[EPC])

    claims = [
        LearningClaim(
            claim=BEFORE_EPC, teams=teams, parts=told(sooner_than_epc), said="seconds sooner"
        ),
        LearningClaim(
            claim=f"Food Collection: with up to {SMALL} agents DARL1N ends as high as EPC, within "
            f"the {APART:g} points of Table II, or higher.",
            teams=small,
            parts=told(lead),
            low=-APART,
            said=f"lead after {scale.grown} iterations",
        ),
    ]
    return claims if scale.populations else []


def _ends(curves: Sequence[LearningCurve]) -> Array:
    return np.array([curve.end for curve in curves])


def _leads(learnt: SeedCurves, unit: float = 1.0) -> LearningParts:
    own = _ends(learnt[DARL1N])
    return {method: unit * (own - _ends(learnt[method])) for method in BASELINES}


def _spread(learnt: SeedCurves) -> tuple[float, float]:
    """The lowest mean beginning and the best mean end of any method, but for EPC."""
    curves = [learnt[method] for method in ENGINE_METHODS]
    begin = min(float(np.mean([each.returns[0] for each in own])) for own in curves)
    return begin, max(float(_ends(own).mean()) for own in curves)


def gain(learnt: SeedCurves) -> float:
    """Size of the largest gain of a team."""
    begin, best = _spread(learnt)
    return max(abs(best - begin), DIGITS)


def _reached(learnt: SeedCurves, machines: int) -> LearningParts:
    fixed = _spread(learnt)[0] + WAY * gain(learnt)
    return sooner(learnt, lambda curve: curve.reached(fixed), machines)


def sooner(
    learnt: SeedCurves,
    reached: Callable[[LearningCurve], int | None],
    machines: int,
    *,
    others: Sequence[str] = BASELINES,
) -> LearningParts:
    """Seconds by which DARL1N is there before each baseline, or a bound of them.

    A run of DARL1N that never arrives leaves an upper bound, one of a baseline a lower one. A mean
    with upper bounds counts if it is below zero even so, one with lower bounds if it is above.

    Args:
        learnt: Curves of the seeds by method.
        reached: The index of an evaluation, or None.
        machines: DARL1N's seconds are those of one of so many learners, all alike.
        others: The baselines.
    """
    parts: dict[str, Array | None] = {}
    for other in others:
        leads, above, below = [], False, False
        for own, base in zip(learnt[DARL1N], learnt[other], strict=True):
            own_at, base_at = reached(own), reached(base)
            above, below = above or own_at is None, below or base_at is None
            own_s = float(own.seconds[-1 if own_at is None else own_at]) / machines
            base_s = float(base.seconds[-1 if base_at is None else base_at])
            told = own_s <= base_s if base_at is None else base_s <= own_s
            if (own_at is None or base_at is None) and not (told and own_at != base_at):
                break
            leads.append(base_s - own_s)
        hidden = (above and sum(leads) >= 0) or (below and sum(leads) <= 0)
        whole = len(leads) == len(learnt[other])
        parts[other] = np.array(leads) if whole and not hidden else None
    return parts


def judge_paces(results: Results, scale: Darl1nScale) -> list[ClaimResult]:
    """Judge Fig. 2 (a, c, d): DARL1N takes the least time for an iteration."""
    return [
        _quickest(results, scale, task, apart=apart)
        for task in TASKS
        if task is not FOOD
        for apart in (True, False)
    ]


def _quickest(
    results: Results, scale: Darl1nScale, task: Darl1nTask, *, apart: bool
) -> ClaimResult:
    """Judge one task; ``apart``: DARL1N has a machine for each learner, as in the paper."""
    where = "with a machine for each learner" if apart else "on one processor"

    def paces(curves: Sequence[LearningCurve]) -> Array:
        return np.array([1e3 * curve.iteration_s for curve in curves])

    def parts(learnt: SeedCurves, team: TeamSpec) -> LearningParts:
        own = paces(learnt[DARL1N]) / (team.size.agents if apart else 1)
        return {method: paces(learnt[method]) - own for method in BASELINES}

    return LearningClaim(
        claim=f"{task.name}: {where} DARL1N takes the least time for an iteration.",
        whose=Whose.PAPER if apart else Whose.OURS,
        teams=[TeamSpec(task, size) for size in scale.sizes_of(task)],
        parts=parts,
        said="ms less",
    ).judged(results, scale)


def full_range_trials(scale: Darl1nScale) -> list[Trial]:
    """One run for each seed."""
    own, changes = replace(scale, iterations=scale.full_range), {"distance": UNLIMITED}
    return [
        replace(trial(own, TEAM, DARL1N, seed), changes=changes)
        for seed in (scale.seeds if scale.full_range else ())
    ]


def judge_full_range(results: Results, scale: Darl1nScale) -> list[ClaimResult]:
    """Judge Fig. 3 by as many iterations with and without a neighbour distance, seed by seed."""
    pairs = [
        (
            mean_curve([results[near.name]]).until(full.iterations),
            mean_curve([results[full.name]]),
        )
        for near, full in zip(trials(scale, TEAM, DARL1N), full_range_trials(scale), strict=False)
        if near.name in results and full.name in results
    ]
    lost = np.array([near.end - full.end for near, full in pairs])
    longer = np.array([full.iteration_s - near.iteration_s for near, full in pairs])
    missing = [scale.short] if len(pairs) < len(scale.seeds) else []
    return [
        by_samples(claim, {"": values} if pairs else {}, censored=missing, said=said)
        for claim, values, said in (
            (
                "Food Collection, M = 12: with all agents as neighbours (Full Range) DARL1N ends "
                "lower.",
                lost,
                "",
            ),
            ("Its iterations take longer (Fig. 2(b)).", longer, "in seconds"),
        )
    ]
