"""Training rounds in virtual time: what a code gains on a cluster that one does not have.

Computing, network and stragglers are simulated, rank(C_J) = M is real, and so is the noise where
learners draw samples of their own. Rounds are independent: the commit of an iteration reaches every
learner at the latest with the next assignment, and whoever still computes, sleeps or sends then
drops it and starts anew.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from fullrank.codes import Code
from fullrank.common.errors import ConfigError
from fullrank.common.seeding import stream
from fullrank.common.types import BoolArray, IntArray
from fullrank.planning.arrival import arrivals_of
from fullrank.planning.payload import Payload
from fullrank.planning.traffic import Times, Traffic, Wires
from fullrank.stragglers import DelayModel


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster(Wires):
    """The machines and wires under a run; the defaults cost nothing."""

    unit_s: float | tuple[float, ...] = 0.0
    """Seconds that one unit takes: everywhere, or on each learner."""
    spread: float = 0.0
    """Standard deviation of the logarithm of a learner's computing time, per iteration; its mean
    stays load x ``unit_s``."""
    payload: Payload = field(default_factory=Payload)

    def __post_init__(self) -> None:
        times = np.atleast_1d(self.unit_s)
        if not (np.isfinite(times).all() and (times >= 0).all()):
            raise ConfigError(f"unit_s must be finite and not negative: {self.unit_s}")
        if self.spread < 0 or self.latency_s < 0:
            raise ConfigError(
                f"spread = {self.spread} and latency_s = {self.latency_s} must not be negative"
            )
        if not (self.bandwidth > 0 and self.replay_bandwidth > 0):
            raise ConfigError(
                f"bandwidth = {self.bandwidth} and replay_bandwidth = {self.replay_bandwidth} "
                "must be positive"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """K simulated rounds. Learners without a unit to compute are neither received nor late."""

    round_s: Times
    """From the assignment to the commit, shape (K,)."""
    received: tuple[IntArray, ...]
    """J of each round as learners in order of arrival."""
    late: tuple[IntArray, ...]
    """Learners whose rows the commit did not wait for, ascending."""
    waited: BoolArray
    """Whether the row that ended the round came from a delayed learner, shape (K,)."""
    sent_bytes: int
    """Parameters sent by the controller in one round."""


def simulate(
    cluster: Cluster,
    code: Code,
    delay_model: DelayModel,
    *,
    iterations: int,
    seed: int,
    max_variance: float = math.inf,
) -> Simulated:
    """Run K = ``iterations`` rounds; equal arguments give equal results.

    Args:
        cluster: Machines and wires.
        code: C, one row a learner.
        delay_model: Who delays its return after computing, and by how long.
        iterations: K.
        seed: Keys the stragglers as in a real run, and the spread of the computing times.
        max_variance: As of ``Arrivals``; without it a round ends at rank M.

    Raises:
        ConfigError: ``cluster.unit_s`` is not for this number of learners.
        NotDecodable: Not even all rows determine the units.
    """
    played = play(
        cluster,
        code,
        delay_model,
        iterations=range(iterations),
        seed=seed,
        max_variance=max_variance,
    )
    received = tuple(
        played.learners[order[:count]]
        for order, count in zip(played.order, played.needed, strict=True)
    )
    last = played.order[np.arange(iterations), played.needed - 1]
    return Simulated(
        round_s=played.round_s,
        received=received,
        late=tuple(np.setdiff1d(played.learners, each) for each in received),
        waited=played.delay_s[np.arange(iterations), last] > 0,
        sent_bytes=int(played.moved.parameters.sum()),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """K rounds as they happened to the n learners that hold a row with a unit."""

    learners: IntArray
    """Shape (n,), ascending."""
    compute_s: Times
    """Shape (K, n)."""
    delay_s: Times
    """Shape (K, n)."""
    arrival_s: Times
    """Since the assignment, had the round not been committed before; shape (K, n)."""
    order: IntArray
    """Positions in ``learners`` in order of arrival, shape (K, n)."""
    needed: IntArray
    """Arrivals after which the round was committed, shape (K,)."""
    moved: Traffic

    @property
    def round_s(self) -> Times:
        """From the assignment to the commit, shape (K,)."""
        every = np.arange(len(self.needed))
        return np.asarray(self.arrival_s[every, self.order[every, self.needed - 1]])


def play(
    cluster: Cluster,
    code: Code,
    delay_model: DelayModel,
    *,
    iterations: Sequence[int],
    seed: int,
    max_variance: float = math.inf,
) -> Played:
    """Play the given iterations; other arguments and errors as for ``simulate``."""
    learners = np.flatnonzero(code.load)
    moved = cluster.payload.traffic(code.matrix[learners])
    ready_s = cluster.ready_s(moved)
    compute_s = np.array([_compute_s(cluster, code, each, seed)[learners] for each in iterations])
    delay_s = np.array(
        [
            delay_model.delays(seed=seed, iteration=each, learners=code.rows)[learners]
            for each in iterations
        ]
    )
    arrival_s = np.array(
        [cluster.arrival_s(done_s, moved) for done_s in ready_s + compute_s + delay_s]
    )
    order = np.argsort(arrival_s, axis=1, kind="stable")
    return Played(
        learners=learners,
        compute_s=compute_s,
        delay_s=delay_s,
        arrival_s=arrival_s,
        order=order,
        needed=arrivals_of(code, max_variance).needed(learners[order]),
        moved=moved,
    )


def _compute_s(cluster: Cluster, code: Code, iteration: int, seed: int) -> Times:
    """Computing time of every learner, shape (N,)."""
    unit_s = np.asarray(cluster.unit_s)
    if unit_s.ndim and len(unit_s) != code.rows:
        raise ConfigError(f"unit_s names {len(unit_s)} learners, the code has {code.rows} rows")
    normal = stream(seed, "compute", iteration).standard_normal(code.rows)
    return np.asarray(code.load * unit_s * np.exp(cluster.spread * (normal - cluster.spread / 2)))
