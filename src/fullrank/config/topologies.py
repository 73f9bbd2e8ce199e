"""Topologies: the players, and the times of learning, as settings by the names of [DMCAF].

A topology is a layer of settings between the defaults and the configuration file. Its ``fixed``
settings are what its name means, so that another value of one contradicts it; its ``sizes`` are
the paper's and may be changed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fullrank.common.errors import ConfigError
from fullrank.common.registry import nearest
from fullrank.config.leaves import ConfigLayer, Key, Leaf


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """The settings of a published system."""

    meaning: str
    """Clause that says which processes play, and when."""
    fixed: Mapping[str, Any]
    """Dotted keys to the values that the name stands for."""
    sizes: Mapping[str, Any] = field(default_factory=dict)
    """Dotted keys to the paper's numbers."""


def _cmarl(meaning: str, *, containers: int = 3, actors: int = 13, learn: bool = True) -> Topology:
    """Return CMARL or one of its ablations."""
    return Topology(
        meaning=meaning,
        fixed={
            "collect.mode": "free",
            "collect.lag": 0,
            "collectors.containers": True,
            "containers.learn": learn,
        },
        sizes={
            "collectors.count": containers,
            "collect.block": actors,
            "environment.copies": containers * actors,
            "collect.max_lag": 1_000_000,
            "algorithm.name": "qmix",
            "algorithm.batch_size": 128,
            "algorithm.target_every": 800,
        },
    )


_INLINE = {"collect.mode": "inline", "collect.lag": 0, "collectors.count": 0}

TOPOLOGIES: Mapping[str, Topology] = {
    "episode": Topology(
        meaning="the controller plays one episode an iteration, as QMIX does",
        fixed={**_INLINE, "environment.copies": 1},
    ),
    "parallel": Topology(
        meaning="the controller plays 39 copies in lockstep, as QMIX-BETA does",
        fixed=_INLINE,
        sizes={"environment.copies": 39},
    ),
    "aw": Topology(
        meaning="one collector of 4 copies plays and the learners learn, in turns",
        fixed={"collect.mode": "keyed", "collect.lag": 0, "collectors.count": 1},
        sizes={"environment.copies": 4, "collect.block": 4},
    ),
    "awl": Topology(
        meaning="4 collectors of 3 copies play all the time while the learners learn",
        fixed={"collect.mode": "free", "collect.lag": 0},
        sizes={"collectors.count": 4, "collect.block": 3, "environment.copies": 12},
    ),
    "parallel-v2": Topology(
        meaning="the controller plays 8 copies in lockstep with the settings of PyMARL2",
        fixed=_INLINE,
        sizes={
            "environment.copies": 8,
            "algorithm.name": "qmix",
            "algorithm.optimiser": "adam",
            "algorithm.learning_rate": 1e-3,
            "algorithm.trace": 0.6,
            "algorithm.batch_size": 128,
        },
    ),
    "apex": Topology(
        meaning="one collector of 10 copies plays all the time, and TD errors decide on the draws",
        fixed={"collect.mode": "free", "collect.lag": 0},
        sizes={
            "collectors.count": 1,
            "collect.block": 10,
            "environment.copies": 10,
            "algorithm.name": "qmix",
            "algorithm.td_errors": True,
            "sampling.method": "prioritised",
            "sampling.priority_gain": 10.0,
        },
    ),
    "cmarl": _cmarl("3 containers of 13 actors learn heads of their own"),
    "cmarl-no-diversity": _cmarl("3 containers play with the centraliser's policy", learn=False),
    "cmarl-2-containers": _cmarl("2 containers of 13 actors", containers=2),
    "cmarl-1-container": _cmarl("1 container of 13 actors", containers=1),
    "cmarl-8-actors": _cmarl("3 containers of 8 actors", actors=8),
    "cmarl-2-actors": _cmarl("3 containers of 2 actors", actors=2),
}
"""The systems that [DMCAF] and [CMARL] compare, by name."""


def topology_layer(name: str, others: Sequence[ConfigLayer]) -> ConfigLayer:
    """Return the settings of a topology as a layer.

    Args:
        name: One of ``TOPOLOGIES``.
        others: The layers above it.

    Raises:
        ConfigError: There is no such topology, or a layer contradicts it.
    """
    origin = f"--topology {name}"
    if name not in TOPOLOGIES:
        raise ConfigError(f"{origin}: there is no such topology{nearest(name, [*TOPOLOGIES])}")
    topology = TOPOLOGIES[name]
    for layer in others:
        for key, value in topology.fixed.items():
            leaf = layer.get(_key(key))
            if leaf is not None and leaf.value != value:
                raise ConfigError(
                    f"{key} = {leaf.value!r} in {leaf.origin} contradicts {origin}, which means "
                    f"{key} = {value!r}: {topology.meaning}"
                )
    settings = {**topology.fixed, **topology.sizes}
    return {_key(key): Leaf(value, origin) for key, value in settings.items()}


def _key(dotted: str) -> Key:
    return tuple(dotted.split("."))
