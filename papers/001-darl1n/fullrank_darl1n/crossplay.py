"""Fig. 4(b) of [DARL1N]: good agents of one method against adversaries of another, in battle.

Each method trains both sides against each other; then every good side meets every adversary side.
Returns of a side are normalised by its lowest and highest return in any episode.
"""

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from fullrank.common.types import JSON, BoolArray, FloatArray
from fullrank.environments import make_environment
from fullrank.training.evaluation import Act, Greedy
from fullrank_darl1n.published import (
    BASELINES,
    BATTLE,
    DARL1N,
    ENGINE_METHODS,
    EPISODES,
    Darl1nScale,
)
from fullrank_darl1n.trials import Trial, policies_again, side_of
from fullrank_papers.cells import Cell, Later, Results
from fullrank_papers.claims import (
    UNBUILT,
    ClaimResult,
    Held,
    Strength,
    some,
    undecided,
)
from fullrank_papers.paper import table

CELL = "crossplay"
SIDES = ("good", "adversary")
PLAYED = ENGINE_METHODS
"""Methods compared in the figure."""
JUDGED = 48
"""Team size M in the paper."""
_EVALUATION_SEED = 1000


def trials(scale: Darl1nScale) -> dict[str, Trial]:
    """Runs of both sides of each method, for the largest trained team."""
    size, seed = BATTLE.sizes[: scale.sizes][-1], scale.seeds[0]
    return {
        method: Trial(task=BATTLE, size=size, method=method, scale=scale, seed=seed, both=True)
        for method in PLAYED
    }


def cells(scale: Darl1nScale) -> list[Cell | Later]:
    """Both sides of each method, then the returns of every pair."""
    sides = trials(scale)
    needs = tuple(trial.name for trial in sides.values())
    games = Later(name=CELL, needs=needs, make=partial(_games, sides))
    return [*(trial.planned() for trial in sides.values()), games]


def _games(sides: Mapping[str, Trial], results: Results) -> Cell:
    """Returns by side, good side's method, adversaries' method, and episode."""
    learnt = {method: results[trial.name]["policies"] for method, trial in sides.items()}
    settings = {
        "policies": learnt,
        "worlds": {method: trial.evaluated() for method, trial in sides.items()},
        "episodes": EPISODES,
    }
    return Cell(name=CELL, settings=settings, compute=partial(_play, sides, learnt))


def _play(trials: Mapping[str, Trial], learnt: Mapping[str, str]) -> JSON:
    acts = {
        method: _acts(trial, policies_again(trial, learnt[method]))
        for method, trial in trials.items()
    }
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
    named = [
        (agent.side, agent, policy) for agent, policy in zip(world.agents, policies, strict=True)
    ]
    acts: dict[str, Act] = {}
    for side in SIDES:
        agents, own = zip(*((a, p) for name, a, p in named if name == side), strict=True)
        acts[side] = Greedy(side_of(agents, own, seed=0).actor)
    return acts


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


def judge_crossplay(results: Results, scale: Darl1nScale) -> list[ClaimResult]:
    """Judge the claims on Fig. 4(b); one seed decides nothing."""
    agents, against = trials(scale)[DARL1N].size.agents, _as_good(results)
    needs = f"needs {JUDGED} agents"
    said = f"M = {agents} of the paper's {JUDGED}; {some(against) or 'as in the paper'}"
    return [
        undecided(
            "Both sides that DARL1N trains do better than all others.",
            said,
            Strength("measured, 1 seed", Held.UNDECIDED),
        ),
        undecided("Both sides that EPC trains do better than MADDPG's and MFAC's.", needs, UNBUILT),
    ]


def _as_good(results: Results) -> list[str]:
    """Methods whose side does at least as well as DARL1N's."""
    against = []
    for side in SIDES:
        means = {method: value.mean() for method, value in normalised(results, side).items()}
        against += [
            f"{side} of {method}: {means[method]:.2f}, of {DARL1N} {means[DARL1N]:.2f}"
            for method in BASELINES
            if means[method] >= means[DARL1N]
        ]
    return against


def crossplay_table(results: Results) -> str:
    """A line for each method: mean and standard deviation over opponents and episodes."""
    found = {side: normalised(results, side) for side in SIDES}
    rows = (
        [method, *(f"{own[method].mean():.2f} ± {own[method].std():.2f}" for own in found.values())]
        for method in PLAYED
    )
    return table(["trained by", "good side", "adversaries"], rows)
