"""Clusters in virtual time: machines, the links between them, and both with delays: a regime."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import pairwise
from typing import Any

import numpy as np

from fullrank.common.errors import ConfigError
from fullrank.common.types import IntArray, Times
from fullrank.config.plugins import complete_stragglers
from fullrank.config.tree import PluginSettings
from fullrank.planning.costs import Payload, Traffic
from fullrank.stragglers import DelayModel, delay_models


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """Links between the services; by default transfers take no time."""

    latency_s: float = 0.0
    """Delay of a message, one way, between any two machines."""
    bandwidth: float = float("inf")
    """The controller's bandwidth in each direction, bytes/s, shared equally by its open streams."""
    replay_bandwidth: float = float("inf")
    """The replay service's outgoing bandwidth, bytes/s, shared equally by its open streams."""

    def ready_s(self, moved: Traffic) -> Times:
        """Time at which each learner has its parameters and the minibatch, shape (N,)."""
        at_once = np.zeros(len(moved.sample))
        parameters_s = finish_times(at_once, moved.parameters, self.bandwidth) + self.latency_s
        asked_s = at_once + 2 * self.latency_s  # the assignment, then the request to replay
        samples_s = finish_times(asked_s, moved.sample, self.replay_bandwidth) + self.latency_s
        return np.maximum(parameters_s, samples_s)

    def arrival_s(self, done_s: Times, moved: Traffic) -> Times:
        """Arrivals of the coded vectors sent at ``done_s``, both of shape (N,)."""
        replies = moved.digests + moved.coded
        return finish_times(done_s, replies, self.bandwidth) + self.latency_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster(Links):
    """Machines and links of a run; with the defaults computing and transfers take no time."""

    unit_s: float | tuple[float, ...] = 0.0
    """Seconds a unit: one number, or one for each learner."""
    spread: float = 0.0
    """Standard deviation of the logarithm of a learner's computing time in an iteration; the mean
    stays load x ``unit_s``."""
    payload: Payload = field(default_factory=Payload)

    def __post_init__(self) -> None:
        times = np.atleast_1d(self.unit_s)
        if not (np.isfinite(times).all() and (times >= 0).all()):
            raise ConfigError(f"unit_s must be finite and not negative: {self.unit_s}")
        if not (0 <= self.spread < math.inf and 0 <= self.latency_s < math.inf):
            raise ConfigError(
                f"spread = {self.spread} and latency_s = {self.latency_s} must be finite and not "
                "negative"
            )
        if not (self.bandwidth > 0 and self.replay_bandwidth > 0):
            raise ConfigError(
                f"bandwidth = {self.bandwidth} and replay_bandwidth = {self.replay_bandwidth} "
                "must be positive"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Regime:
    """Keys of a regime file; ``[stragglers]`` has the form of a run's configuration."""

    learners: int
    """Number of learners, N."""
    agents: int
    """Number of agents, M."""
    unit_s: float | tuple[float, ...]
    """Seconds a unit: one number, or one for each learner."""
    spread: float = 0.0
    """Standard deviation of the logarithm of a learner's computing time, per iteration."""
    latency_s: float = 0.0
    """Delay of a message, one way."""
    bandwidth: float = float("inf")
    """Bandwidth of the controller and of the replay service, bytes/s each way."""
    stragglers: Mapping[str, Any] = field(default_factory=lambda: {"name": "none"})
    """Delay model and its parameters."""

    @property
    def delays(self) -> DelayModel:
        """The delay model; ``ConfigError`` if its settings are invalid."""
        params = dict(self.stragglers)
        settings = complete_stragglers(PluginSettings(name=params.pop("name"), params=params))
        return delay_models.build(settings.name, **settings.params)

    def cluster(self, payload: Payload) -> Cluster:
        """The machines and links, moving this payload."""
        return Cluster(
            unit_s=self.unit_s,
            spread=self.spread,
            latency_s=self.latency_s,
            bandwidth=self.bandwidth,
            replay_bandwidth=self.bandwidth,
            payload=payload,
        )


def finish_times(start_s: Times, sizes: IntArray, bandwidth: float) -> Times:
    """End of each transfer on a link that open streams share equally, shape (n,).

    All open streams are served at one rate, so they end in the order of their size plus the bytes
    served per stream until they opened.

    Args:
        start_s: Start of each transfer, shape (n,).
        sizes: Bytes, shape (n,).
        bandwidth: Bytes/s of the link.
    """
    finish_s = start_s.copy()
    if np.isinf(bandwidth):
        return finish_s
    openings = [(float(start_s[index]), int(index)) for index in np.argsort(start_s, kind="stable")]
    open_streams: list[tuple[float, int]] = []  # (bytes served per stream at its end, stream)
    served, now = 0.0, 0.0
    for (opens, index), (next_opens, _) in pairwise([*openings, (float("inf"), -1)]):
        now = opens
        heappush(open_streams, (served + float(sizes[index]), index))
        while open_streams:
            rate = bandwidth / len(open_streams)
            ends = now + (open_streams[0][0] - served) / rate
            if ends > next_opens:
                served += (next_opens - now) * rate
                break
            served, ending = heappop(open_streams)
            now = finish_s[ending] = ends
    return finish_s
