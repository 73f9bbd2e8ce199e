"""The systems that [CMARL] compares, as topologies, and the sizes at which they are run."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from fullrank.config.collection import ContainerSettings
from fullrank.config.layers import load
from fullrank.config.tree import RunConfig
from fullrank.planning.virtual_time import VirtualDurations

CORES: Final = 10
"""Cores of APE-X, which 10 actors use up."""
APEX: Final = (
    *("environment.copies=1", "collect.window=1000000"),
    *("sampling.method=uniform", "sampling.priority_gain=1.0"),
)
"""Its actors and learner wait for each other as little as those of CMARL, and draw like them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CmarlSystem:
    """A system of Figs. 2 and 5 to 7."""

    label: str
    topology: str
    actors: int
    settings: tuple[str, ...] = ()
    """Settings besides those of the topology."""
    cores: int = 0
    """Cores that the actors share; 0: one for each."""


SYSTEMS: Final[Mapping[str, CmarlSystem]] = MappingProxyType(
    {
        "cmarl": CmarlSystem(label="CMARL", topology="cmarl", actors=39),
        "qmix": CmarlSystem(label="QMIX", topology="episode", actors=1),
        "cmarl-no-diversity": CmarlSystem(
            label="no diversity", topology="cmarl-no-diversity", actors=39
        ),
        "parallel-v2": CmarlSystem(label="QMIX-BETA-v2", topology="parallel-v2", actors=8),
        "parallel": CmarlSystem(label="QMIX-BETA", topology="parallel", actors=39),
        "apex": CmarlSystem(label="APE-X", topology="apex", actors=10, settings=APEX, cores=CORES),
        "apex-overload": CmarlSystem(
            label="APE-X, overload",
            topology="apex",
            actors=30,
            settings=(*APEX, "collect.block=30"),
            cores=CORES,
        ),
        "cmarl-2-containers": CmarlSystem(
            label="2 containers", topology="cmarl-2-containers", actors=26
        ),
        "cmarl-8-actors": CmarlSystem(label="8 actors", topology="cmarl-8-actors", actors=24),
        "cmarl-1-container": CmarlSystem(
            label="1 container", topology="cmarl-1-container", actors=13
        ),
        "cmarl-2-actors": CmarlSystem(label="2 actors", topology="cmarl-2-actors", actors=6),
    }
)
"""Systems by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CmarlBudget:
    """Sizes of the comparison at equal virtual time."""

    maps: tuple[str, ...]
    seeds: int
    until_s: float
    """Length of a run, virtual seconds."""
    points: int
    """Evaluations of a run, at equal intervals."""
    episodes: int
    """Episodes of an evaluation."""
    settings: tuple[str, ...] = ()
    """Settings of all systems but those of PyMARL2."""
    v2_settings: tuple[str, ...] = ()
    """Settings of PyMARL2's system."""
    containers: ContainerSettings = field(default_factory=ContainerSettings)
    durations: VirtualDurations = field(default_factory=VirtualDurations)

    def config(self, name: str, scenario: str, seed: int) -> RunConfig:
        """Return the configuration of a system on a map."""
        system = SYSTEMS[name]
        overrides = [
            *("environment.name=smac_lite", f"environment.map={scenario}"),
            *("algorithm.name=qmix", f"seed={seed}", "iterations=1000000"),
            *("compute.threads=1", "compute.device=cpu", "metrics.sinks=[]"),
            f"collect.warmup_copies={system.actors}",
            *(self.v2_settings if name == "parallel-v2" else self.settings),
            *system.settings,
        ]
        config = load(environ={}, overrides=overrides, topology=system.topology).check().config
        containers = replace(self.containers, learn=config.containers.learn)
        return replace(config, containers=containers)

    def durations_of(self, name: str) -> VirtualDurations:
        """Return the durations of a system."""
        return replace(self.durations, cores=SYSTEMS[name].cores)
