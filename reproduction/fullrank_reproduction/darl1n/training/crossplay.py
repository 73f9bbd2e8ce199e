"""Fig. 4(b) of [DARL1N]: good agents of one method against adversaries of another, in battle.

Each method trains both sides against each other; then every good side meets every adversary side.
Returns of a side are normalised by its lowest and highest return in any episode.
"""

from collections.abc import Collection, Mapping, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from fullrank.common.types import JSON, BoolArray, FloatArray
from fullrank.environments import AgentSpec, make_environment
from fullrank.training.evaluation import Act, Greedy
from fullrank_reproduction.baselines.epc.team import Team, sides_of
from fullrank_reproduction.cells import Cell
from fullrank_reproduction.claim_results import (
    ClaimResult,
    Held,
    Strength,
    judge,
    measured,
    undecided,
    untested,
)
from fullrank_reproduction.darl1n.results import Results
from fullrank_reproduction.darl1n.training.budget import Darl1nBudget
from fullrank_reproduction.darl1n.training.policies import array_of, digest_of, side_of
from fullrank_reproduction.darl1n.training.published import (
    BASELINES,
    BATTLE,
    DARL1N,
    EPC,
    EPISODES,
)
from fullrank_reproduction.darl1n.training.trials import Trial
from fullrank_reproduction.entities import Entities, entities_of

CELL = "crossplay"
SIDES = ("good", "adversary")
PLAYED = tuple(BATTLE.printed)
"""Methods compared in the figure."""
JUDGED = 48
"""Team size M in the paper."""
_EVALUATION_SEED = 1000


def trials(budget: Darl1nBudget) -> dict[str, Trial]:
    """Runs of both sides of each method, for the largest trained team."""
    size = BATTLE.sizes[: budget.sizes][-1]
    return {
        method: Trial(task=BATTLE, size=size, method=method, budget=budget, both=True)
        for method in PLAYED
    }


def cells(results: Results, budget: Darl1nBudget) -> list[Cell]:
    """Returns by side, good side's method, adversaries' method, and episode.

    No cell before all sides are trained.
    """
    sides = trials(budget)
    if not all(trial.name in results for trial in sides.values()):
        return []
    learnt = {method: results[trial.name]["policies"] for method, trial in sides.items()}
    settings = {
        "policies": {method: digest_of(policies) for method, policies in learnt.items()},
        "worlds": {method: trial.evaluated() for method, trial in sides.items()},
        "episodes": EPISODES,
    }
    return [Cell(name=CELL, settings=settings, compute=partial(_play, sides, learnt))]


def _play(trials: Mapping[str, Trial], learnt: Mapping[str, list[str]]) -> JSON:
    acts = {method: _acts(trial, learnt[method]) for method, trial in trials.items()}
    games = {
        good: {other: _game(trials[good], acts[other]["adversary"], own["good"]) for other in acts}
        for good, own in acts.items()
    }
    return {
        side: {
            good: {other: game[side] for other, game in row.items()} for good, row in games.items()
        }
        for side in SIDES
    }


def _acts(trial: Trial, policies: Sequence[str]) -> dict[str, Act]:
    """Actions of each side of a method, from its own observations."""
    world = make_environment(
        trial.task.name, agents=trial.size.agents, copies=1, **trial.evaluated()
    )
    acts: dict[str, Act] = {}
    for span in sides_of(world.agents):
        agents, own = world.agents[span], policies[span]
        if trial.method == EPC:
            acts[agents[0].side] = _grown(agents, entities_of(world, trial.task.name).of(span), own)
        else:
            acts[agents[0].side] = Greedy(side_of(agents, own, seed=0).actor)
    return acts


def _grown(agents: Sequence[AgentSpec], entities: Entities, policies: Sequence[str]) -> Act:
    team = Team(agents, entities, seed=0)
    team.networks["policy"].begin(np.stack([array_of(policy) for policy in policies]))
    return Greedy(team)


def _game(trial: Trial, adversary: Act, good: Act) -> JSON:
    """Episodes in which the good side observes as its method does; adversaries see all."""

    def act(observation: FloatArray, available: BoolArray | None = None, /) -> FloatArray:
        seen = np.split(observation, 2, axis=1)
        parts = [own(part) for own, part in zip((adversary, good), seen, strict=True)]
        return np.concatenate(parts, axis=1)

    played = trial.play(act, seed=_EVALUATION_SEED)
    return {side: played.side_returns[side].tolist() for side in SIDES}


def normalised(results: Results, side: str) -> dict[str, NDArray[np.float64]]:
    """Returns of a side scaled to [0, 1], by the method that trained it."""
    returns = np.array([[results[CELL][side][good][other] for other in PLAYED] for good in PLAYED])
    spread = returns.max() - returns.min()
    scaled = (returns - returns.min()) / (spread or 1.0)
    own = scaled if side == "good" else scaled.swapaxes(0, 1)
    return {method: rows.ravel() for method, rows in zip(PLAYED, own, strict=True)}


def judge_crossplay(results: Results, budget: Darl1nBudget) -> list[ClaimResult]:
    """Judge the claim on Fig. 4(b)."""
    claims = {
        "Both sides that DARL1N trains do better than all others.": (DARL1N, PLAYED),
        "Both sides that EPC trains do better than those of MADDPG and MFAC.": (EPC, BASELINES),
    }
    agents = trials(budget)[DARL1N].size.agents
    if agents < JUDGED:
        reason = f"M = {agents} where the paper has {JUDGED}"
        if not budget.judges:
            return [untested(claim, f"{reason}; {budget.short}") for claim in claims]
        small = Strength(f"measured, 1 seed, {reason}", Held.UNDECIDED)
        return [
            undecided(claim, "; ".join(_as_good(results, *compared)) or "as in the paper", small)
            for claim, compared in claims.items()
        ]
    return [
        judge(
            claim,
            _as_good(results, *compared),
            grounds="means over all opponents",
            strength=measured(budget.seeds),
        )
        for claim, compared in claims.items()
    ]


def _as_good(results: Results, own: str, others: Collection[str]) -> list[str]:
    """Methods whose side does at least as well as that of the given method."""
    against = []
    for side in SIDES:
        means = {method: value.mean() for method, value in normalised(results, side).items()}
        against += [
            f"{side} of {method}: {means[method]:.2f}, of {own} {means[own]:.2f}"
            for method in others
            if method != own and means[method] >= means[own]
        ]
    return against


def of_crossplay(results: Results) -> str:
    """A line for each method: mean and standard deviation over opponents and episodes."""
    lines = ["| trained by | good side | adversaries |", "|---|---|---|"]
    for method in PLAYED:
        values = [normalised(results, side)[method] for side in SIDES]
        cells = " | ".join(f"{value.mean():.2f} ± {value.std():.2f}" for value in values)
        lines.append(f"| {method} | {cells} |")
    return "\n".join(lines)
