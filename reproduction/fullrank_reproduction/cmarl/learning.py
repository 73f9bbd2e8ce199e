"""Learning at equal virtual time: cells, and readings of their results."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from itertools import product
from typing import Final

import numpy as np

from fullrank.common.types import JSON, Array
from fullrank.config.tree import as_tables
from fullrank.planning.virtual_learning import learn_in_virtual_time
from fullrank_reproduction.cells import Cell
from fullrank_reproduction.cmarl.systems import SYSTEMS, CmarlBudget
from fullrank_reproduction.darl1n.results import Results

BEST_RETURN: Final = 20.0
"""Return of a battle that is won without remainder, by SMAC's scale of rewards."""
CHANNELS: Final = ("time_s", "iteration", "episodes", "env_steps", "return_mean", "win_rate")
"""Columns kept of an evaluation."""


def cell(name: str, scenario: str, seed: int, budget: CmarlBudget) -> Cell:
    """The course of a system on a map.

    Args:
        name: The system.
        scenario: The map.
        seed: The seed.
        budget: Sizes of the run.
    """
    config = budget.config(name, scenario, seed)
    containers = config.containers if config.collectors.containers else None
    settings = {
        "run": as_tables(config),
        "containers": None if containers is None else asdict(containers),
        "durations": asdict(budget.durations_of(name)),
        **{key: getattr(budget, key) for key in ("until_s", "points", "episodes")},
    }
    return Cell(
        name=cell_name(name, scenario, seed),
        settings=settings,
        compute=partial(_course, name, scenario, seed, budget),
        weight=budget.until_s * (3.0 if containers is not None else 1.0),
    )


def cell_name(name: str, scenario: str, seed: int) -> str:
    """The name of a cell."""
    return f"learning-{scenario}-{name}-{seed}"


def cells(budget: CmarlBudget) -> list[Cell]:
    """All courses, system by system, so that an interrupted comparison can judge some claims."""
    seeds = range(1, budget.seeds + 1)
    return [
        cell(name, scenario, seed, budget)
        for name, scenario, seed in product(SYSTEMS, budget.maps, seeds)
    ]


def _course(name: str, scenario: str, seed: int, budget: CmarlBudget) -> JSON:
    history = learn_in_virtual_time(
        budget.config(name, scenario, seed),
        budget.durations_of(name),
        until_s=budget.until_s,
        every_s=budget.until_s / budget.points,
        episodes=budget.episodes,
    )
    points = [[getattr(point, each) for each in CHANNELS] for point in history.points]
    return {"points": points, "facts": dict(history.facts), "digest": history.digest}


class Courses:
    """The courses of a comparison that have been computed.

    Args:
        results: Results of cells by name.
        budget: The comparison.
    """

    def __init__(self, results: Results, budget: CmarlBudget) -> None:
        self._results, self._budget = results, budget

    @property
    def computed(self) -> int:
        """Number of courses."""
        return sum(len(self.pairs([name])) for name in SYSTEMS)

    def pairs(self, names: Sequence[str]) -> list[tuple[str, int]]:
        """Return the maps and seeds for which all of some systems have a course."""
        return [
            (scenario, seed)
            for scenario, seed in product(self._budget.maps, range(1, self._budget.seeds + 1))
            if all(cell_name(name, scenario, seed) in self._results for name in names)
        ]

    def seeds(self, name: str, scenario: str) -> list[int]:
        """Return the seeds of which a system has a course on a map."""
        return [seed for found, seed in self.pairs([name]) if found == scenario]

    def curve(self, name: str, scenario: str, seed: int, channel: str) -> Array:
        """Return a channel of the evaluations, shape (points,)."""
        place = CHANNELS.index(channel)
        points = self._results[cell_name(name, scenario, seed)]["points"]
        return np.array([point[place] for point in points], np.float64)

    def area(self, name: str, scenario: str, seed: int) -> float:
        """Return the mean over the evaluations of the return, as a share of the best one."""
        return float(self.curve(name, scenario, seed, "return_mean").mean() / BEST_RETURN)

    def won(self, name: str, scenario: str, seed: int) -> float:
        """Return the win rate of the last evaluation."""
        return float(self.curve(name, scenario, seed, "win_rate")[-1])

    def facts(self, name: str) -> list[Mapping[str, float]]:
        """Return the counts of a system's courses."""
        return [self._results[cell_name(name, *pair)]["facts"] for pair in self.pairs([name])]
