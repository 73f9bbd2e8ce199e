"""Rankings of Tables III and IV of [DARL1N], and the times of an iteration of Fig. 2(a, c, d).

Rewards of the contests depend on the adversaries, and the authors' are published for 6 agents
alone; the order of methods that meet the same adversaries can be judged.
"""

from fullrank.runs.statistics import student
from fullrank_reproduction.claim_results import (
    ClaimResult,
    Whose,
    by_interval,
    judge,
    measured,
    undecided,
    untested,
)
from fullrank_reproduction.darl1n.results import Results
from fullrank_reproduction.darl1n.training.budget import Darl1nBudget
from fullrank_reproduction.darl1n.training.published import (
    BASELINES,
    BATTLE,
    DARL1N,
    FOOD,
    GRASSLAND,
    TASKS,
    Darl1nTask,
)
from fullrank_reproduction.darl1n.training.runs import TeamSpec, curves, ends, seeds

AS_GOOD = 0.05
"""Share of the others' best return by which DARL1N may end lower and still be as good."""


def judge_rankings(results: Results, budget: Darl1nBudget) -> list[ClaimResult]:
    """Judge the rankings of the contests, one claim for each team."""
    judged = [
        _as_good(results, budget, TeamSpec(task, size))
        for task in (GRASSLAND, BATTLE)
        for size in budget.sizes_of(task)
    ]
    return [
        *judged,
        untested(
            "Grassland and Adversarial Battle: the rewards of the tables.",
            "they depend on the authors' adversaries, which are published for M = 6 alone; "
            "ours are other ones",
        ),
    ]


def _as_good(results: Results, budget: Darl1nBudget, team: TeamSpec) -> ClaimResult:
    claim = f"{team}: DARL1N ends as high as MADDPG and MFAC, or higher."
    if not budget.judges:
        return untested(claim, budget.short)
    there = len(seeds(results, budget, team))
    if there < budget.seeds:
        return undecided(claim, f"{there} of {budget.seeds} seeds of all methods are there")
    own, *others = ends(results, budget, team, [DARL1N, *BASELINES])
    best = max(others, key=lambda returns: float(returns.mean()))
    lead = student(own - best)
    limit = -AS_GOOD * abs(float(best.mean()))
    said = f"its lead over the better one is {lead}, at least {limit:.1f} is asked"
    return by_interval(claim, lead, limit, said, strength=measured(there, interval=True))


def judge_paces(results: Results, budget: Darl1nBudget) -> list[ClaimResult]:
    """Judge Fig. 2 (a, c, d): DARL1N takes the least time for an iteration."""
    return [
        judged
        for task in TASKS
        if task is not FOOD
        for judged in (_quickest(results, budget, task, apart=apart) for apart in (True, False))
    ]


def _quickest(
    results: Results, budget: Darl1nBudget, task: Darl1nTask, *, apart: bool
) -> ClaimResult:
    """Judge one task; ``apart``: DARL1N has a machine for each learner, as in the paper."""
    where = "with a machine for each learner" if apart else "on one processor"
    claim = f"{task.name}: {where} DARL1N takes the least time for an iteration."
    whose = Whose.PAPER if apart else Whose.OURS
    paces, against = [], []
    for team in (TeamSpec(task, size) for size in budget.sizes_of(task)):
        if len(seeds(results, budget, team)) < budget.seeds:
            continue
        found = curves(results, budget, team)
        own = found[DARL1N].iteration_s / (team.size.agents if apart else 1)
        least = min(found[method].iteration_s for method in BASELINES)
        paces.append(f"M = {team.size.agents}: {own:.4f} s, the others {least:.4f} s or more")
        against += [paces[-1]] if own >= least else []
    if not paces:
        return undecided(claim, "no team has all seeds", whose=whose)
    return judge(
        claim, against, grounds="; ".join(paces), strength=measured(budget.seeds), whose=whose
    )
