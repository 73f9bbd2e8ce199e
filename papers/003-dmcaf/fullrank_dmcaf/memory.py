"""Fig. 4: a recurrent team whose copies do not keep hidden states of their own.

The same trained team plays the same episodes twice: every copy with its own hidden state, and every
copy with that of the copy beside it, as a worker would serve it that has one state for all actors.
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np

from fullrank.common.types import JSON, BoolArray, FloatArray
from fullrank.local import LocalRun
from fullrank.runs.statistics import bootstrap
from fullrank.training.evaluation import Act, Greedy, evaluate_and_close, random_actions
from fullrank.wiring import environment_of
from fullrank_papers import pictures
from fullrank_papers.cells import Cell
from fullrank_papers.claims import ClaimResult, judge, measured
from fullrank_papers.runs import configured

CELL: Final = "memory"
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


def cell(*, iterations: int, episodes: int) -> Cell:
    """Returns of the same episodes with own and mixed hidden states, and of random play.

    Args:
        iterations: Length of the training.
        episodes: Episodes of each play.
    """
    settings = {"settings": list(SETTINGS), "iterations": iterations, "episodes": episodes}
    compute = partial(_played, iterations, episodes)
    return Cell(name=CELL, settings=settings, compute=compute, weight=0.1 * iterations)


def _played(iterations: int, episodes: int) -> JSON:
    config = configured(*SETTINGS, f"iterations={iterations}")
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


def judge_memory(result: Mapping[str, list[float]]) -> ClaimResult:
    """Judge claim D7."""
    lost = np.subtract(result[OWN], result[MIXED])
    interval = bootstrap(lost)
    learnt = np.mean(result[OWN]) - np.mean(result[RANDOM])
    said = (
        f"the same team earns {np.mean(result[OWN]):.2f} with hidden states of its own, "
        f"{np.mean(result[MIXED]):.2f} with mixed ones, and random play "
        f"{np.mean(result[RANDOM]):.2f}; lost by mixing: {lost.mean():.2f} "
        f"[{interval.low:.2f}, {interval.high:.2f}], {lost.mean() / learnt:.0%} of what it has "
        "learnt"
    )
    against = [said] if interval.low <= 0 else []
    return judge(
        "D7: hidden states must be kept by environment: a team whose states mix loses (Fig. 4).",
        against,
        grounds=said,
        strength=measured(1, interval=True),
    )


def draw(result: Mapping[str, list[float]], path: Path) -> None:
    """Draw the distributions of returns."""
    bins = np.linspace(0.0, max(map(max, result.values())), 25).tolist()
    colours = ("#0072b2", "#e69f00", "#9aa5b1")
    with pictures.panels(path, [""], size=(6.0, 3.4)) as (axes,):
        for (name, label), colour in zip(LABELS.items(), colours, strict=True):
            axes.hist(result[name], bins=bins, histtype="step", color=colour, label=label)
        axes.set(xlabel="return of an episode of 3m", ylabel="episodes")
        axes.legend(frameon=False)
