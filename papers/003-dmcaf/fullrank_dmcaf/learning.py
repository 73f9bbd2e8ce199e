"""Figs. 4 and 8: what hidden states are worth, and learning of Qmix, AW and AWL.

For Fig. 4 each seed's trained team plays the same episodes twice: every copy with its own hidden
state, and every copy with that of the copy beside it, as a worker would serve it that has one state
for all actors.

For Fig. 8 all systems, and COMA, learn from the same number of environment steps. Episodes of AW
and AWL are played by blocks; AWL's with parameters that are one update older, which stands for its
asynchrony and is the same in every run. Learning rates and networks are those of PyMARL2, the games
those of SMAC-lite.

Differences from the paper:

- Hidden states are mixed when trained teams play (Fig. 4); the paper mixes while it learns.
- AWL's asynchrony is one update's lag, and it updates once for 12 episodes (Fig. 8).
- COMA plays 8 episodes at once and updates twice, with the library's settings and the rate of all.
"""

from collections.abc import Mapping
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np

from fullrank.common.types import JSON, Array, BoolArray, FloatArray
from fullrank.local import LocalRun
from fullrank.training.evaluation import Act, Greedy, evaluate_and_close, random_actions
from fullrank.wiring.plugins import environment_of
from fullrank_dmcaf.speed import COLOURS, NAMES, SYSTEMS, DmcafScale
from fullrank_papers import pictures
from fullrank_papers.cells import Cell, Results
from fullrank_papers.claims import ClaimResult, by_samples, undecided
from fullrank_papers.runs import configured

MEMORY: Final = "memory"
COPIES: Final = 16
EVALUATION_SEED: Final = 1000
OWN, MIXED, RANDOM = "own", "mixed", "random"
LABELS: Final = {OWN: "own hidden states", MIXED: "mixed hidden states", RANDOM: "random play"}
SETTINGS: Final = (
    "environment.name=smac_lite",
    "environment.map=3m",
    "algorithm.name=qmix",
    "algorithm.optimiser=adam",
    "algorithm.learning_rate=0.001",
    "algorithm.trace=0.6",
    "algorithm.exploration_steps=20000",
)


class _OneState(Greedy):
    """Hands the hidden state of every copy on to the next one."""

    def __call__(
        self, observation: FloatArray, available: BoolArray | None = None, /
    ) -> FloatArray:
        """Return greedy joint actions."""
        action = super().__call__(observation, available)
        state, *others = self._memory
        self._memory = (np.roll(state, 1, axis=0), *others)
        return action


def memory_cells(scale: DmcafScale) -> list[Cell]:
    """Returns of the same episodes with own and mixed hidden states, and of random play."""
    return [
        Cell(
            name=f"{MEMORY}-{seed}",
            settings={
                "settings": [*SETTINGS, f"seed={seed}"],
                "iterations": scale.trained,
                "episodes": scale.episodes,
            },
            compute=partial(_played, scale.trained, scale.episodes, seed),
            weight=0.1 * scale.trained,
            beside=True,
        )
        for seed in scale.seeds
    ]


def _played(iterations: int, episodes: int, seed: int) -> JSON:
    config = configured(*SETTINGS, f"seed={seed}", f"iterations={iterations}")
    run = LocalRun(config, coded=False)
    run.train()
    actor = run.training.algorithm.actor

    def play(act: Act) -> list[float]:
        environment = environment_of(config, copies=COPIES)
        played = evaluate_and_close(environment, act, episodes, EVALUATION_SEED)
        return [float(value) for value in played.returns]

    agents = run.training.collector.agents
    return {
        OWN: play(Greedy(actor)),
        MIXED: play(_OneState(actor)),
        RANDOM: play(random_actions(agents, seed=0)),
    }


def memory(results: Results, scale: DmcafScale) -> dict[str, Array]:
    """Returns by play, shape (seeds, episodes)."""
    found = [results[f"{MEMORY}-{seed}"] for seed in scale.seeds]
    return {play: np.array([each[play] for each in found]) for play in LABELS}


def judge_memory(played: Mapping[str, Array]) -> ClaimResult:
    """Judge claim D7 by the share of what a team has learnt that it loses, seed by seed."""
    own, mixed, random = (played[play].mean(axis=1) for play in (OWN, MIXED, RANDOM))
    return by_samples(
        "D7: hidden states must be kept by environment: a team whose states mix loses (Fig. 4).",
        {"": 100 * (own - mixed) / (own - random).mean()},
        said="% of what the teams have learnt",
    )


def draw_memory(played: Mapping[str, Array], path: Path) -> None:
    """Draw the distributions of returns of all seeds."""
    bins = np.linspace(0.0, max(float(values.max()) for values in played.values()), 25).tolist()
    colours = ("#0072b2", "#e69f00", "#9aa5b1")
    with pictures.panels(path, [""], size=(6.0, 3.4)) as (axes,):
        for (name, label), colour in zip(LABELS.items(), colours, strict=True):
            axes.hist(played[name].ravel(), bins=bins, histtype="step", color=colour, label=label)
        axes.set(xlabel="return of an episode of 3m", ylabel="episodes")
        axes.legend(frameon=False)


COMA: Final = "coma"
LEARNERS: Final = (*SYSTEMS, COMA)
LOOKS: Final = {
    **{system: (NAMES[system], COLOURS[system]) for system in SYSTEMS},
    COMA: ("COMA", "#cc79a7"),
}
"""Labels and colours."""
PLAYING: Final = {
    "episode": (*SETTINGS, "environment.copies=1"),
    "aw": (*SETTINGS, "environment.copies=4", "collect.mode=keyed", "collect.block=4"),
    "awl": (
        *SETTINGS,
        *("environment.copies=12", "collect.mode=keyed", "collect.block=3", "collect.lag=1"),
    ),
    COMA: (
        *("environment.name=smac_lite", "algorithm.name=coma", "algorithm.learning_rate=0.001"),
        "environment.copies=8",
    ),
}
D4: Final = "D4: with equal interactions AW and AWL learn sooner than Qmix (Fig. 8)."
D5: Final = "D5: COMA is poor everywhere (Fig. 8): all three are ahead of it."
POINTS: Final = 40
"""Points of a stored curve."""
MEAN_STEPS: Final = 20
"""Steps of a short episode, from which the number of iterations is bounded."""


def cells(scale: DmcafScale) -> list[Cell]:
    """Learning curves on each map, seed by seed."""
    return [
        Cell(
            name=_name(name, system, seed),
            settings={
                "settings": list(PLAYING[system]),
                "steps": scale.steps,
                "seed": seed,
            },
            compute=partial(_curve, name, system, scale.steps, seed),
            weight=scale.steps / 100,
        )
        for name in scale.learnt
        for seed in scale.seeds
        for system in LEARNERS
    ]


def _name(name: str, system: str, seed: int) -> str:
    return f"learning-{name}-{system}-{seed}"


def _curve(name: str, system: str, steps: int, seed: int) -> JSON:
    """Win rates of exploring policies at equal distances, and the updates made."""
    overrides = [
        *PLAYING[system],
        f"environment.map={name}",
        f"seed={seed}",
        f"iterations={2 * -(-steps // (2 * MEAN_STEPS))}",  # COMA makes two over a collection
    ]
    played, won = [0.0], [0.0]
    for iteration in LocalRun(configured(*overrides), coded=False):
        played.append(iteration.statistics["env_steps"])
        won.append(iteration.statistics["battle_won_mean"])
        if played[-1] >= steps:
            break
    bounds = np.linspace(0, steps, POINTS + 1)
    at = np.digitize(played[1:], bounds)
    rates = [
        np.mean(np.array(won[1:])[at == place]) if (at == place).any() else None
        for place in range(1, POINTS + 1)
    ]
    known = 0.0
    curve = [known := float(known if rate is None else rate) for rate in rates]
    return {"won": curve, "updates": len(won) - 1}


def _won(results: Results, scale: DmcafScale, name: str, system: str) -> Array:
    """Win rates, shape (seeds, points)."""
    return np.array([results[_name(name, system, seed)]["won"] for seed in scale.seeds])


def judge_learning(results: Results, scale: DmcafScale) -> list[ClaimResult]:
    """Judge D4 on each map, that a system learns sooner than the one before it, and D5 on all."""
    if not scale.learnt:
        reason = "needs learning curves, which `--scale standard` has"
        return [undecided(claim, reason) for claim in (D4, D5)]
    judged, ahead = list[ClaimResult](), dict[str, Array]()
    for name in scale.learnt:
        areas = {each: 100 * _won(results, scale, name, each).mean(axis=1) for each in LEARNERS}
        ahead |= {f"{name} {NAMES[each]}": areas[each] - areas[COMA] for each in SYSTEMS}
        judged.append(
            by_samples(
                f"D4: with equal interactions AW learns {name} sooner than Qmix, AWL than AW.",
                {
                    f"{NAMES[latter]} - {NAMES[former]}": areas[latter] - areas[former]
                    for former, latter in pairwise(SYSTEMS)
                },
                said="points of the mean win rate",
            )
        )
    return [*judged, by_samples(D5, ahead, said="points of the mean win rate above COMA's")]


def draw_learning(results: Results, scale: DmcafScale, path: Path) -> None:
    """Draw the win rates, a line for each seed and one for their mean."""
    with pictures.panels(path, scale.learnt) as every:
        for axes, name in zip(every, scale.learnt, strict=True):
            for system, (label, colour) in LOOKS.items():
                won = _won(results, scale, name, system)
                axes.plot(won.T, color=colour, linewidth=0.6, alpha=0.5)
                axes.plot(won.mean(axis=0), color=colour, label=label)
            axes.set_xlabel(f"environment steps, {POINTS} parts of equal size")
            axes.set_ylabel("win rate while exploring")
            axes.legend(frameon=False)
