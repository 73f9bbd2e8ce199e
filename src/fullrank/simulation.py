"""Training rounds in virtual time: what a code gains on a cluster that one does not have.

Computing, network and stragglers are simulated, rank(C_J) = M is real. Rounds are independent:
the commit of an iteration reaches every learner at the latest with the next assignment, and
whoever still computes, sleeps or sends then drops it and starts anew.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import pairwise
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import structural_rank

from fullrank.algorithms import Dimensions
from fullrank.codes import Code
from fullrank.errors import ConfigError, NotDecodable
from fullrank.seeding import stream
from fullrank.stragglers import DelayModel
from fullrank.traffic import Traffic, traffic
from fullrank.types import BoolArray, IntArray, Matrix, Unit

Times = NDArray[np.float64]

DEPENDENT = 1e-10
"""A column this close to the span of those before it adds no rank, as in the decoder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Payload:
    """What an iteration moves, as ``fullrank.traffic.traffic`` takes it. By default nothing."""

    section_sizes: tuple[int, ...] = ()
    """Entries of each section of the parameters."""
    needs: Callable[[Unit], Sequence[int]] = lambda unit: ()
    """Ids of the sections that a unit reads."""
    vector_size: int = 0
    """P, entries of a coded vector."""
    batch_entries: int = 0
    """B x row_size, entries of the minibatch."""

    @classmethod
    def of(cls, dimensions: Dimensions, *, batch_size: int) -> Self:
        """What the services move for an algorithm of these dimensions."""
        return cls(
            section_sizes=tuple(section.size for section in dimensions.sections),
            needs=dimensions.needs,
            vector_size=max(dimensions.unit_sizes),
            batch_entries=batch_size * dimensions.row_size,
        )

    def traffic(self, matrix: Matrix) -> Traffic:
        """Bytes of each row of C, shape (R, M)."""
        return traffic(
            matrix,
            needs=self.needs,
            section_sizes=self.section_sizes,
            vector_size=self.vector_size,
            batch_entries=self.batch_entries,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """The machines and wires under a run; the defaults cost nothing."""

    unit_s: float | tuple[float, ...] = 0.0
    """Seconds that one unit takes: everywhere, or on each learner."""
    spread: float = 0.0
    """Standard deviation of the logarithm of a learner's computing time, per iteration; its mean
    stays load x ``unit_s``."""
    latency_s: float = 0.0
    """One way, between any two machines."""
    bandwidth: float = float("inf")
    """Of the controller in each direction, bytes/s, shared equally by its open streams."""
    replay_bandwidth: float = float("inf")
    """The same for the replay service, outgoing."""
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
    """Whether the row that completed the rank came from a delayed learner, shape (K,)."""
    sent_bytes: int
    """Parameters sent by the controller in one round."""


def simulate(
    cluster: Cluster, code: Code, delay_model: DelayModel, *, iterations: int, seed: int
) -> Simulated:
    """Run K = ``iterations`` rounds; equal arguments give equal results.

    Args:
        cluster: Machines and wires.
        code: C, one row a learner.
        delay_model: Who delays its return after computing, and by how long.
        iterations: K.
        seed: Keys the stragglers as in a real run, and the spread of the computing times.

    Raises:
        ConfigError: ``cluster.unit_s`` is not for this number of learners.
        NotDecodable: Not even all rows determine the units.
    """
    learners = np.flatnonzero(code.load)
    moved = cluster.payload.traffic(code.matrix[learners])
    ready_s = _ready(cluster, moved)
    replies = moved.digests + moved.coded
    rounds = []
    for iteration in range(iterations):
        delay_s = delay_model.delays(seed=seed, iteration=iteration, learners=code.rows)
        done_s = ready_s + (_compute_s(cluster, code, iteration, seed) + delay_s)[learners]
        arrival_s = finish_times(done_s, replies, cluster.bandwidth) + cluster.latency_s
        order = np.argsort(arrival_s, kind="stable")
        count = decodable_after(code.matrix, learners[order])
        received = learners[order[:count]]
        rounds.append((arrival_s[order[count - 1]], received, delay_s[received[-1]] > 0))
    round_s, received_sets, waited = zip(*rounds, strict=True)
    return Simulated(
        round_s=np.array(round_s),
        received=received_sets,
        late=tuple(np.setdiff1d(learners, received) for received in received_sets),
        waited=np.array(waited),
        sent_bytes=int(moved.parameters.sum()),
    )


def decodable_after(matrix: Matrix, order: IntArray) -> int:
    """Number of rows, taken in ``order``, after which rank(C_J) = M.

    The number at which ``Round`` turns decodable, found by bisection because elimination row by
    row takes seconds a round at a thousand units. The structural rank (what the non-zeros alone
    allow) is never below the rank and much cheaper, so it goes first.

    Raises:
        NotDecodable: Not even all rows suffice.
    """
    rows, units = matrix[order], matrix.shape[1]
    support = csr_array(rows)
    allowed = _first(units, len(rows), lambda count: structural_rank(support[:count]) == units)
    return _first(allowed, len(rows), lambda count: _full_rank(rows[:count]))


def _first(least: int, most: int, holds: Callable[[int], bool]) -> int:
    """The least count in [least, most] at which a property that never ends again holds."""
    failed, count, stride = least - 1, least, 1
    while count > most or not holds(count):
        if count >= most:
            raise NotDecodable(f"all {most} rows of the code do not determine its units")
        failed, count, stride = count, min(count + stride, most), 2 * stride
    untried = range(failed + 1, count)
    return untried.start + bisect_left(untried, True, key=holds)


def _full_rank(submatrix: Matrix) -> bool:
    """Whether the columns of C_J are independent, once units that a row holds alone are peeled."""
    rest = submatrix
    while (alone := np.count_nonzero(rest, axis=1) == 1).any():
        rest = rest[~alone][:, ~(rest[alone] != 0).any(axis=0)]
    if rest.shape[0] < rest.shape[1]:
        return False
    diagonal = np.abs(np.diag(np.linalg.qr(rest, mode="r")))
    return bool((diagonal > DEPENDENT * np.linalg.norm(rest, axis=0)).all())


def finish_times(start_s: Times, sizes: NDArray[np.int64], bandwidth: float) -> Times:
    """When transfers end on a link that its open streams share equally.

    Every open stream has been served alike since it opened, so streams end in the order of what
    the link had served a stream when they opened plus their size.

    Args:
        start_s: When each transfer begins, shape (n,).
        sizes: Bytes, shape (n,).
        bandwidth: Bytes/s of the link.
    """
    finish_s = start_s.copy()
    if np.isinf(bandwidth):
        return finish_s
    openings = [(float(start_s[index]), int(index)) for index in np.argsort(start_s, kind="stable")]
    open_streams: list[tuple[float, int]] = []  # (served when it ends, stream)
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


def _ready(cluster: Cluster, moved: Traffic) -> Times:
    """When each learner has its parameters and the minibatch, shape (learners,)."""
    at_once = np.zeros(len(moved.sample))
    parameters_s = finish_times(at_once, moved.parameters, cluster.bandwidth) + cluster.latency_s
    asked_s = at_once + 2 * cluster.latency_s  # the assignment, then the request to replay
    samples_s = finish_times(asked_s, moved.sample, cluster.replay_bandwidth) + cluster.latency_s
    return np.maximum(parameters_s, samples_s)


def _compute_s(cluster: Cluster, code: Code, iteration: int, seed: int) -> Times:
    """Computing time of every learner, shape (N,)."""
    unit_s = np.asarray(cluster.unit_s)
    if unit_s.ndim and len(unit_s) != code.rows:
        raise ConfigError(f"unit_s names {len(unit_s)} learners, the code has {code.rows} rows")
    normal = stream(seed, "compute", iteration).standard_normal(code.rows)
    return np.asarray(code.load * unit_s * np.exp(cluster.spread * (normal - cluster.spread / 2)))
