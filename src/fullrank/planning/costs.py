"""Payload bytes of one iteration by kind, and how long they take on wires that learners share.

The formula behind the metrics, the simulator and the planner. Headers and framing are left out:
below 1 % for all but toy sizes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from fullrank.common.types import IntArray, Matrix, UnitIndex
from fullrank.common.updates import DIGEST_BYTES

Times = NDArray[np.float64]

FLOAT32_BYTES = 4
FLOAT64_BYTES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """What each row of C costs on the wire, bytes, arrays of shape (R,)."""

    parameters: IntArray
    """Sections, controller to learner."""
    sample: IntArray
    """The minibatch, replay to learner."""
    digests: IntArray
    """UnitDone, learner to controller."""
    coded: IntArray
    """The coded vector, learner to controller."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wires:
    """Between the services; the defaults cost nothing."""

    latency_s: float = 0.0
    """One way, between any two machines."""
    bandwidth: float = float("inf")
    """Of the controller in each direction, bytes/s, shared equally by its open streams."""
    replay_bandwidth: float = float("inf")
    """The same for the replay service, outgoing."""

    def ready_s(self, moved: Traffic) -> Times:
        """When each learner has its parameters and the minibatch, shape (R,)."""
        at_once = np.zeros(len(moved.sample))
        parameters_s = finish_times(at_once, moved.parameters, self.bandwidth) + self.latency_s
        asked_s = at_once + 2 * self.latency_s  # the assignment, then the request to replay
        samples_s = finish_times(asked_s, moved.sample, self.replay_bandwidth) + self.latency_s
        return np.maximum(parameters_s, samples_s)

    def arrival_s(self, done_s: Times, moved: Traffic) -> Times:
        """When the coded vectors sent at ``done_s`` have arrived, both of shape (R,)."""
        replies = moved.digests + moved.coded
        return finish_times(done_s, replies, self.bandwidth) + self.latency_s


def sections_of(
    units: Sequence[UnitIndex], needs: Callable[[UnitIndex], Sequence[int]]
) -> list[int]:
    """Ids of the sections that any of the units reads, ascending, each once."""
    return sorted({section for unit in units for section in needs(unit)})


def traffic(
    matrix: Matrix,
    *,
    needs: Callable[[UnitIndex], Sequence[int]],
    section_sizes: Sequence[int],
    vector_size: int,
    batch_entries: int,
) -> Traffic:
    """Bytes of an iteration in which every row of C is assigned.

    Args:
        matrix: C, shape (R, M).
        needs: Section ids that a unit reads.
        section_sizes: Entries of each section, float32.
        vector_size: P, entries of a coded vector, float64.
        batch_entries: B x row_size, entries of the minibatch, float32.
    """
    rows, units = matrix.shape
    reads = np.zeros((units, len(section_sizes)), dtype=np.float32)
    for unit in range(units):
        reads[unit, list(needs(unit))] = 1.0
    combined = matrix != 0
    sent = combined.astype(np.float32) @ reads > 0  # each section once, however many units read it
    sizes = np.asarray(section_sizes, dtype=np.int64)
    return Traffic(
        parameters=FLOAT32_BYTES * (sent @ sizes),
        sample=np.full(rows, FLOAT32_BYTES * batch_entries),
        digests=DIGEST_BYTES * combined.sum(axis=1),
        coded=np.full(rows, FLOAT64_BYTES * vector_size),
    )


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
