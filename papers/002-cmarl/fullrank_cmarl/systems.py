"""The systems that [CMARL] compares, as topologies, and what they learn in equal virtual time."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import product
from types import MappingProxyType
from typing import Final

import numpy as np

from fullrank.common.types import JSON, Array
from fullrank.config.collection import ContainerSettings
from fullrank.config.tree import RunConfig
from fullrank_papers.cells import Cell, Results, settings_of
from fullrank_papers.paper import toml
from fullrank_papers.runs import configured
from fullrank_papers.smax import battle
from fullrank_papers.virtual import CHANNELS, Evaluations, VirtualDurations
from fullrank_papers.virtual_learning import learn_in_virtual_time

BEST_RETURN: Final = 20.0
"""Return of a battle that is won without remainder, by SMAC's scale of rewards."""
PACKAGE: Final = "fullrank_cmarl"


@dataclass(frozen=True, slots=True, kw_only=True)
class CmarlSystem:
    """A system of Figs. 2 and 5 to 7."""

    label: str
    topology: str
    actors: int
    settings: tuple[str, ...] = ()
    """Settings besides those of the topology."""
    crowd: float = 1.0
    """Actors to a core; with more than one, the learner has as small a share of it."""
    colour: str
    """Colour in pictures."""


SYSTEMS: Final[Mapping[str, CmarlSystem]] = MappingProxyType(
    {name: CmarlSystem(**facts) for name, facts in toml(PACKAGE, "systems.toml").items()}
)
"""Systems by name."""
SPREAD: Final = ("cmarl", "apex")
"""Beginnings of the names of systems whose actors explore by epsilons of their own, and whose
learners draw by priority."""
INDEPENDENT: Final = ("cmarl", "apex")
"""Systems that are compared on SMAX, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CmarlScale:
    """Sizes of the reproduction."""

    maps: tuple[str, ...]
    seeds: tuple[int, ...]
    fewer: int = 0
    """Seeds of systems of Fig. 5 alone, with fewer actors, the first ones; 0: all."""
    more_curves: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """More seeds of a system, by its name."""
    independent: tuple[str, ...] = ()
    """Maps of SMAX, on which CMARL meets one other system."""
    until_s: float
    """Length of a run, virtual seconds."""
    points: int
    """Evaluations of a run, at equal intervals."""
    episodes: int = 32
    """Episodes of an evaluation."""
    settings: tuple[str, ...]
    """Settings of all systems but that of PyMARL2."""
    v2_settings: tuple[str, ...]
    """Settings of PyMARL2's system."""
    own_settings: tuple[str, ...] = ()
    """Draws and exploration of ``SPREAD`` systems."""
    containers: Mapping[str, float] = field(default_factory=dict)
    """Settings of containers where they are not the paper's."""
    container_update_s: float
    """Virtual time of a container's update."""
    seconds: float
    """Length of the measurement of waits at replay."""
    turns: int
    """Turns of each way of storing episodes."""
    iterations: int
    """Counted iterations of each fleet of collectors."""
    step_s: float = 0.04
    """Emulated time of their steps."""
    short: str = ""
    """Why no claim on learning is held at this scale; empty: it may be."""
    outlook: str = ""
    """A paragraph for the page: what this scale cannot decide."""

    def seeds_of(self, name: str) -> tuple[int, ...]:
        """Seeds of a system."""
        if fewer_actors(name):
            return self.seeds[: self.fewer or None]
        return (*self.seeds, *self.more_curves.get(name, ()))

    @property
    def all_seeds(self) -> tuple[int, ...]:
        """Seeds of any system."""
        more = (seed for own in self.more_curves.values() for seed in own)
        return tuple(dict.fromkeys((*self.seeds, *more)))

    @property
    def durations(self) -> VirtualDurations:
        """Durations in virtual time, of systems with a core for each actor."""
        return VirtualDurations(
            step_s=0.02,
            acting_s=0.005,
            update_s=0.25,
            container_update_s=self.container_update_s,
            wire_s=0.01,
        )

    @property
    def container_settings(self) -> ContainerSettings:
        """Settings of containers."""
        return ContainerSettings(**self.containers)  # type: ignore[arg-type]

    def config(self, name: str, scenario: str, seed: int) -> RunConfig:
        """Return the configuration of a system on a map."""
        system = SYSTEMS[name]
        config = configured(
            *battle(scenario),
            *("algorithm.name=qmix", f"seed={seed}", "iterations=1000000"),
            *("compute.threads=1", "compute.device=cpu", "metrics.sinks=[]"),
            f"collect.warmup_copies={system.actors}",
            *(self.v2_settings if name == "parallel-v2" else self.settings),
            *system.settings,
            *(self.own_settings if name.startswith(SPREAD) else ()),
            topology=system.topology,
        )
        containers = replace(self.container_settings, learn=config.containers.learn)
        return replace(config, containers=containers)

    def durations_of(self, name: str) -> VirtualDurations:
        """Return the durations of a system."""
        durations, crowd = self.durations, SYSTEMS[name].crowd
        return replace(
            durations,
            step_s=crowd * durations.step_s,
            acting_s=crowd * durations.acting_s,
            update_s=crowd * durations.update_s,
        )


SCALES = {name: CmarlScale(**sizes) for name, sizes in toml(PACKAGE, "scales.toml").items()}


def cell(name: str, scenario: str, seed: int, scale: CmarlScale) -> Cell:
    """The course of a system on a map.

    Args:
        name: The system.
        scenario: The map.
        seed: The seed.
        scale: Sizes of the run.
    """
    config = scale.config(name, scenario, seed)
    containers = config.containers if config.collectors.containers else None
    settings = {
        "run": settings_of(config),
        "containers": None if containers is None else asdict(containers),
        "durations": asdict(scale.durations_of(name)),
        **{key: getattr(scale, key) for key in ("until_s", "points", "episodes")},
    }
    return Cell(
        name=cell_name(name, scenario, seed),
        settings=settings,
        compute=partial(_course, name, scenario, seed, scale),
        weight=scale.until_s * (3.0 if containers is not None else 1.0),
    )


def cell_name(name: str, scenario: str, seed: int) -> str:
    """The name of a cell."""
    return f"learning-{scenario}-{name}-{seed}"


def cells(scale: CmarlScale) -> list[Cell]:
    """All courses, seed by seed; those of fewer actors, which Fig. 5 alone has, at the end."""
    order = sorted(
        product(scale.all_seeds, scale.maps, SYSTEMS), key=lambda each: fewer_actors(each[2])
    )
    return [
        cell(name, scenario, seed, scale)
        for seed, scenario, name in order
        if seed in scale.seeds_of(name)
    ]


def fewer_actors(name: str) -> bool:
    """True of systems that only Fig. 5 has."""
    return "-actor" in name or "-container" in name


def _course(name: str, scenario: str, seed: int, scale: CmarlScale) -> JSON:
    asked = Evaluations(points=scale.points, episodes=scale.episodes, until_s=scale.until_s)
    config = scale.config(name, scenario, seed)
    return learn_in_virtual_time(config, scale.durations_of(name), asked).told()


def independent_cells(scale: CmarlScale) -> list[Cell]:
    """The courses on battles of another project."""
    order = product(scale.seeds, scale.independent, INDEPENDENT)
    return [cell(name, scenario, seed, scale) for seed, scenario, name in order]


class Courses:
    """The courses of a comparison that have been computed.

    Args:
        results: Results of cells by name.
        scale: The comparison.
    """

    def __init__(self, results: Results, scale: CmarlScale) -> None:
        self._results, self._scale = results, scale

    @property
    def computed(self) -> int:
        """Number of courses."""
        return sum(len(self.pairs([name])) for name in SYSTEMS)

    def pairs(self, names: Sequence[str]) -> list[tuple[str, int]]:
        """Return the maps and seeds for which all of some systems have a course."""
        return [
            (scenario, seed)
            for scenario, seed in product(self._scale.maps, self._scale.all_seeds)
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
        """Return the win rate over time: the mean over the evaluations."""
        return float(self.curve(name, scenario, seed, "win_rate").mean())

    def facts(self, name: str) -> list[Mapping[str, float]]:
        """Return the counts of a system's courses."""
        return [self._results[cell_name(name, *pair)]["facts"] for pair in self.pairs([name])]
