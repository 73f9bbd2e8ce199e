"""Claims of [DARL1N, Sec. VI-A2] on EPC in Ising, whose optimum is known.

All spins that are alike earn 2 each in every one of the 26 steps of an episode: 52 M. A grown team
that starts there has converged before its first update, and no method can end higher, so that its
stage needs no training.
"""

from collections.abc import Sequence

from fullrank_reproduction.claim_results import (
    ClaimResult,
    Held,
    measured,
    undecided,
    untested,
)
from fullrank_reproduction.darl1n.results import Results
from fullrank_reproduction.darl1n.training import epc_runs
from fullrank_reproduction.darl1n.training.budget import Darl1nBudget
from fullrank_reproduction.darl1n.training.published import EPC, ISING, Size

OPTIMUM = 2 * 26
"""Best return of an episode for each agent."""
NEAR = 0.01
"""Share of the optimum within which a team is at it: EPC's 831 with 16 agents are."""


def judge_growth(results: Results, budget: Darl1nBudget) -> list[ClaimResult]:
    """Judge the starts of grown teams; one below the optimum may still end highest."""
    at_once = "Ising: EPC converges at once with 16 agents and more."
    highest = "Ising: EPC ends highest with 64 agents."
    return [
        _at_the_optimum(results, budget, at_once, ISING.sizes[1:], low=Held.NOT_HELD),
        _at_the_optimum(results, budget, highest, ISING.sizes[3:], low=Held.UNDECIDED),
    ]


def _at_the_optimum(
    results: Results, budget: Darl1nBudget, claim: str, sizes: Sequence[Size], *, low: Held
) -> ClaimResult:
    """Judge the runs of each stage that EPC keeps; ``low``: what a start below it means."""
    if not budget.judges:
        return untested(claim, budget.short)
    names = {size.agents: epc_runs.names(ISING, size)[EPC] for size in sizes}
    starts = {
        agents: sorted((run["returns"][0] for run in results[name]["runs"]), reverse=True)
        for agents, name in names.items()
        if name in results
    }
    if len(starts) < len(sizes):
        return undecided(claim, f"EPC has grown {len(starts)} of {len(sizes)} teams")
    reached = all(
        runs[epc_runs.SELECTED - 1] >= (1 - NEAR) * OPTIMUM * agents
        for agents, runs in starts.items()
    )
    strength = measured(budget.seeds)
    said = "; ".join(
        f"M = {agents}: {', '.join(f'{run:.0f}' for run in runs)} of {OPTIMUM * agents}"
        for agents, runs in starts.items()
    )
    return ClaimResult(
        claim=claim,
        held=strength.best if reached else low,
        reason=f"returns before the first update, of which EPC keeps the best "
        f"{epc_runs.SELECTED}: {said}",
        strength=strength,
    )
