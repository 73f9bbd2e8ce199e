"""Fig. 4(b) of [DARL1N]: good agents of one method against adversaries of another, in battle.

Each method trains both sides against each other; then every good side meets every adversary side.
Returns of a side are normalised by the least and the most that it had in any episode.
"""

from collections.abc import Mapping
from functools import partial

import numpy as np
from numpy.typing import NDArray

from fullrank.reproduction.cells import Cell
from fullrank.reproduction.darl1n.readings import Found
from fullrank.reproduction.darl1n.training.effort import Effort
from fullrank.reproduction.darl1n.training.policies import digest_of, seat
from fullrank.reproduction.darl1n.training.published import BATTLE, DARL1N, EPISODES, OURS
from fullrank.reproduction.darl1n.training.trials import Trial, adversaries_in
from fullrank.reproduction.verdicts import Held, Verdict, judge
from fullrank.types import JSON
from fullrank.wiring import training_of

CELL = "crossplay"
SIDES = ("good", "adversary")
JUDGED = 48
"""M in the paper."""
_EVALUATION_SEED = 1000


def trials(effort: Effort) -> dict[str, Trial]:
    """Both sides of each method, on the largest team that is trained."""
    size = BATTLE.sizes[: effort.sizes][-1]
    return {
        method: Trial(task=BATTLE, size=size, method=method, effort=effort, both=True)
        for method in OURS
    }


def cell(found: Found, effort: Effort) -> Cell:
    """Returns by side, good side's method, adversaries' method, and episode."""
    sides = trials(effort)
    learnt = {method: found[trial.name]["policies"] for method, trial in sides.items()}
    return Cell(
        name=CELL,
        settings={
            "policies": {method: digest_of(policies) for method, policies in learnt.items()},
            "worlds": {method: trial.evaluated() for method, trial in sides.items()},
            "episodes": EPISODES,
        },
        compute=partial(_play, sides, learnt),
    )


def _play(sides: Mapping[str, Trial], learnt: Mapping[str, list[str]]) -> JSON:
    games = {
        good: {other: _game(sides[good], learnt[good], learnt[other]) for other in learnt}
        for good in learnt
    }
    return {
        side: {
            good: {other: game[side] for other, game in row.items()} for good, row in games.items()
        }
        for side in SIDES
    }


def _game(trial: Trial, good: list[str], adversary: list[str]) -> JSON:
    """Episodes in which the good side sees as far as its method lets it."""
    algorithm = training_of(trial.config()).algorithm
    opponents = adversaries_in({"policies": adversary})
    seat(algorithm, dict(enumerate(good)) | opponents)
    played = trial.play(algorithm.act_greedily, seed=_EVALUATION_SEED)
    return {side: played.side_returns[side].tolist() for side in SIDES}


def normalised(found: Found, side: str) -> dict[str, NDArray[np.float64]]:
    """Every episode of a side from 0 to 1, by the method that trained the side."""
    returns = np.array([[found[CELL][side][good][other] for other in OURS] for good in OURS])
    spread = returns.max() - returns.min()
    scaled = (returns - returns.min()) / (spread or 1.0)
    own = scaled if side == "good" else scaled.swapaxes(0, 1)
    return {method: rows.ravel() for method, rows in zip(OURS, own, strict=True)}


def judge_crossplay(found: Found, effort: Effort) -> list[Verdict]:
    """Fig. 4(b)."""
    claim = "Both sides that DARL1N trains do better than those of MADDPG and MFAC."
    agents = next(iter(trials(effort).values())).size.agents
    if agents < JUDGED:
        reason = f"M = {agents} where the paper has {JUDGED}; {effort.short}"
        return [Verdict(claim=claim, held=Held.NOT_TESTABLE, reason=reason)]
    against = []
    for side in SIDES:
        means = {method: each.mean() for method, each in normalised(found, side).items()}
        against += [
            f"{side} of {method}: {mean:.2f}, of DARL1N {means[DARL1N]:.2f}"
            for method, mean in means.items()
            if method != DARL1N and mean >= means[DARL1N]
        ]
    return [judge(claim, against, grounds="means over all opponents")]


def of_crossplay(found: Found) -> str:
    """A line for each method: mean and standard deviation over opponents and episodes."""
    lines = ["| trained by | good side | adversaries |", "|---|---|---|"]
    for method in OURS:
        values = [normalised(found, side)[method] for side in SIDES]
        cells = " | ".join(f"{each.mean():.2f} ± {each.std():.2f}" for each in values)
        lines.append(f"| {method} | {cells} |")
    return "\n".join(lines)
