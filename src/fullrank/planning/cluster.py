"""Regimes: a cluster and its stragglers as a TOML file, to plan for and to measure plans with."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter, ValidationError

from fullrank.algorithms import Dimensions
from fullrank.codes import Code
from fullrank.codes.families.auto import Auto
from fullrank.common.errors import ConfigError
from fullrank.common.registry import nearest
from fullrank.config import PluginSettings, RunConfig, complete_stragglers
from fullrank.config.layers import read_toml
from fullrank.planning import EVERY, Observation, Plan, Planner
from fullrank.planning.payload import Payload
from fullrank.planning.simulation import Cluster, Played, play
from fullrank.planning.traffic import Times
from fullrank.stragglers import DelayModel, delay_models
from fullrank.wiring import environment_of, recipe_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Regime:
    """The keys of a regime file; ``[stragglers]`` is as in a run's configuration."""

    learners: int
    """N."""
    agents: int
    """M."""
    unit_s: float | tuple[float, ...]
    """Seconds that one unit takes: everywhere, or on each learner."""
    spread: float = 0.0
    """Standard deviation of the logarithm of a learner's computing time, per iteration."""
    latency_s: float = 0.0
    """Of any message, one way."""
    bandwidth: float = float("inf")
    """Of the controller and of replay, bytes/s each way."""
    stragglers: Mapping[str, Any] = field(default_factory=lambda: {"name": "none"})
    """Delay model and its parameters."""

    @property
    def delays(self) -> DelayModel:
        """The delay model; ``ConfigError`` if it cannot be."""
        params = dict(self.stragglers)
        settings = complete_stragglers(PluginSettings(name=params.pop("name"), params=params))
        return delay_models.build(settings.name, **settings.params)

    def cluster(self, payload: Payload) -> Cluster:
        """Machines and wires that move this payload."""
        return Cluster(
            unit_s=self.unit_s,
            spread=self.spread,
            latency_s=self.latency_s,
            bandwidth=self.bandwidth,
            replay_bandwidth=self.bandwidth,
            payload=payload,
        )


def read_regime(path: Path) -> Regime:
    """Read a regime file.

    Raises:
        ConfigError: It cannot be read, or holds an unknown key or an impossible value.
    """
    try:
        table = read_toml(path.read_text(encoding="utf-8"), str(path))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    known = [each.name for each in fields(Regime)]
    for key in table:
        if key not in known:
            raise ConfigError(f"{path}: unknown key {key!r}{nearest(key, known)}")
    try:
        regime = TypeAdapter(Regime).validate_python(table)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(each) for each in first["loc"][:1])
        raise ConfigError(f"{path}: {key}: {first['msg']}") from error
    regime.delays.delays(seed=0, iteration=0, learners=regime.learners)
    return regime


def payload_of(config: RunConfig) -> Payload:
    """What the configured algorithm moves."""
    dimensions, batch_size = dimensions_of(config)
    return Payload.of(dimensions, batch_size=batch_size)


def dimensions_of(config: RunConfig) -> tuple[Dimensions, int]:
    """Sizes of the configured algorithm, and B; of its parameters only the sizes are made."""
    environment = environment_of(config, copies=1)
    environment.close()
    algorithm = recipe_of(config)
    return algorithm.dimensions(environment.agents), algorithm.batch_size


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRun:
    """A run with ``code.name = "auto"`` in virtual time."""

    round_s: Times
    """Shape (iterations,)."""
    changes: tuple[tuple[int, Plan], ...]
    """The iteration from which each other code was used, and the plan that says why."""
    last: Plan


def play_planned(
    regime_at: Callable[[int], Regime],
    payload: Payload,
    *,
    auto: Auto,
    iterations: int,
    seed: int,
) -> PlannedRun:
    """Play a run that plans as it goes and sees only what services see.

    Args:
        regime_at: The regime of an iteration; learners and agents are those of the first.
        payload: What an iteration moves.
        auto: Settings of the planner.
        iterations: Rounds to play.
        seed: Keys stragglers, the spread of computing times and the planner.
    """
    learners = range(regime_at(0).learners)
    planner = Planner(auto, units=regime_at(0).agents, seed=seed, moved=payload.traffic)
    plan = planner.plan(learners)
    round_s, changes = [], []
    for start in range(0, iterations, EVERY):
        regime, code = regime_at(start), plan.candidate.code
        steps = range(start, min(start + EVERY, iterations))
        played = play(regime.cluster(payload), code, regime.delays, iterations=steps, seed=seed)
        round_s.append(played.round_s)
        for index in range(len(steps)):
            planner.observe(seen(played, index, code))
        plan = planner.plan(learners)
        if plan.changed:
            changes.append((start + EVERY, plan))
    return PlannedRun(round_s=np.concatenate(round_s), changes=tuple(changes), last=plan)


def seen(played: Played, index: int, code: Code) -> Observation:
    """What services see of a round that was played."""
    received = np.zeros(len(played.learners), dtype=np.bool_)
    received[played.order[index, : played.needed[index]]] = True
    return Observation(
        learners=tuple(played.learners.tolist()),
        load=code.load[played.learners],
        compute_s=np.where(received, played.compute_s[index], np.nan),
        arrival_s=np.where(received, played.arrival_s[index], np.nan),
        round_s=float(played.round_s[index]),
        moved=played.moved,
    )
