"""The runs behind Tables I to IV, and their curves.

Convergence is a settling time, the time to a return, or the final return. The paper's criterion
[DARL1N, Sec. VI-A] compares a variance with a mean, and so depends on the unit of rewards: of two
curves of one shape the one with larger returns settles later. A method that learns nothing settles
at once. A fixed return has neither fault.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fullrank.common.types import JSON, Array
from fullrank_darl1n.population import grown
from fullrank_darl1n.published import (
    DARL1N,
    ENGINE_METHODS,
    EPC,
    SETTLED,
    WINDOW,
    Darl1nScale,
    Darl1nTask,
    TeamSpec,
)
from fullrank_darl1n.trials import Trial
from fullrank_papers.cells import Results

OURS = "darl1n, ours"
"""DARL1N without replay, beside runs that have the paper's."""

WAY = 0.9
"""Position of the fixed return between the lowest start and the best end."""

SMOOTHED = 3
"""Number of evaluations whose mean must reach the fixed return."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LearningCurve:
    """Mean evaluations over the seeds of a run."""

    iterations: Array
    """Iterations before each evaluation, from 0 on, shape (n,)."""
    seconds: Array
    """Processor seconds before each evaluation, shape (n,)."""
    returns: Array
    """Mean returns, shape (n,)."""

    @property
    def end(self) -> float:
        """Mean return of the last 90 iterations, or of all if there are fewer."""
        return float(self.returns[self._window(len(self.iterations) - 1)].mean())

    @property
    def iteration_s(self) -> float:
        """Seconds of an iteration, the warm-up included."""
        return float(self.seconds[-1] / self.iterations[-1])

    def until(self, iteration: int) -> "LearningCurve":
        """The curve up to an iteration."""
        begin = self.iterations <= iteration
        return LearningCurve(
            iterations=self.iterations[begin],
            seconds=self.seconds[begin],
            returns=self.returns[begin],
        )

    def settled(self) -> int | None:
        """Index of the first evaluation that ends 90 iterations meeting the criterion."""
        for index in np.flatnonzero(self.iterations >= WINDOW).tolist():
            recent = self.returns[self._window(index)]
            if recent.var() <= SETTLED * abs(recent.mean()):
                return int(index)
        return None

    def reached(self, level: float) -> int | None:
        """Index of the last of the first three evaluations whose mean return reaches the level."""
        sums = np.convolve(self.returns, np.ones(SMOOTHED))[SMOOTHED - 1 : len(self.returns)]
        reaching = np.flatnonzero(sums >= SMOOTHED * level)
        return int(reaching[0]) + SMOOTHED - 1 if reaching.size else None

    def _window(self, index: int) -> NDArray[np.bool_]:
        end = self.iterations[index]
        window: NDArray[np.bool_] = (self.iterations > end - WINDOW) & (self.iterations <= end)
        return window


def mean_curve(runs: Sequence[JSON]) -> LearningCurve:
    """Mean curve of runs evaluated after the same iterations."""
    seconds, returns = (
        np.mean([run[name] for run in runs], axis=0) for name in ("seconds", "returns")
    )
    return LearningCurve(
        iterations=np.array(runs[0]["iterations"], float), seconds=seconds, returns=returns
    )


def fixed_return(curves: Sequence[LearningCurve]) -> float:
    """The return that compared methods must reach."""
    begin = min(float(curve.returns[0]) for curve in curves)
    best = max(curve.end for curve in curves)
    return begin + WAY * (best - begin)


def trials(scale: Darl1nScale, team: TeamSpec, method: str) -> list[Trial]:
    """One run for each seed."""
    return [trial(scale, team, method, seed) for seed in scale.end_seeds(team)]


def trial(scale: Darl1nScale, team: TeamSpec, method: str, seed: int) -> Trial:
    """The run of a seed."""
    return Trial(task=team.task, size=team.size, method=method, scale=scale, seed=seed)


def learners(scale: Darl1nScale, task: Darl1nTask) -> list[Trial]:
    """All runs of a table except those of the adversaries, small teams first."""
    teams = [TeamSpec(task, size) for size in scale.sizes_of(task)]
    return [
        trial
        for team in teams
        for method in dict.fromkeys((*ENGINE_METHODS, *scale.compared(team).values()))
        for trial in trials(scale, team, method)
    ]


def adversaries(runs: Iterable[Trial]) -> list[Trial]:
    """Runs of the adversaries that some runs meet."""
    needed = (trial.adversaries for trial in runs)
    return list({trial.name: trial for trial in needed if trial is not None}.values())


def seeds(
    results: Results, scale: Darl1nScale, team: TeamSpec, wanted: Sequence[int] | None = None
) -> list[int]:
    """Seeds, by default of the timed ones, from which all compared methods have trained a team."""
    methods = scale.compared(team).values()
    return [
        seed
        for seed in wanted or scale.seeds_of(team.task)
        if all(trial(scale, team, method, seed).name in results for method in methods)
    ]


def trained(results: Results, scale: Darl1nScale) -> list[TeamSpec]:
    """Teams of all tables that have a seed."""
    return [team for team in scale.teams() if seeds(results, scale, team)]


def _runs(
    results: Results, scale: Darl1nScale, team: TeamSpec, wanted: Sequence[int] | None = None
) -> dict[str, list[JSON]]:
    """Runs of the ``seeds`` by method, ours beside the paper's, and those of EPC."""
    compared, whole = scale.compared(team), seeds(results, scale, team, wanted)
    if compared[DARL1N] != DARL1N:
        compared[OURS] = DARL1N
    found = {
        method: [results[trial(scale, team, run, seed).name] for seed in whole]
        for method, run in compared.items()
    }
    return {**found, EPC: grown(results, scale, team)}


def curves(results: Results, scale: Darl1nScale, team: TeamSpec) -> dict[str, LearningCurve]:
    """Mean curves by method."""
    found = _runs(results, scale, team)
    return {method: mean_curve(runs) for method, runs in found.items() if runs}


def by_seed(
    results: Results, scale: Darl1nScale, team: TeamSpec, wanted: Sequence[int]
) -> dict[str, list[LearningCurve]]:
    """Curves of the ``seeds`` by method; those of EPC may be fewer."""
    found = _runs(results, scale, team, wanted)
    return {method: [mean_curve([run]) for run in runs] for method, runs in found.items()}
