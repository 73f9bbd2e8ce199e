"""What services see of an iteration."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fullrank.common.types import IntArray, LearnerId
from fullrank.planning.traffic import Times, Traffic


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Observation:
    """One iteration, learner by learner; arrays of shape (n,) over ``learners``.

    A learner that was still out at the commit is censored: it took longer than ``round_s``.
    """

    learners: tuple[LearnerId, ...]
    """Who held a row with a unit."""
    load: IntArray
    """Units that each was assigned."""
    compute_s: Times
    """Reported computing time; nan where it was still out."""
    arrival_s: Times
    """From the assignment to the arrival of its coded vector; nan where it was still out."""
    round_s: float
    """From the assignment to the commit."""
    moved: Traffic
    """Bytes of each learner's row."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Window:
    """K iterations, newest last, as arrays of shape (K, N) over the present learners.

    Where a learner was not there, ``load`` is 0 and the times are nan.
    """

    load: IntArray
    compute_s: Times
    arrival_s: Times
    round_s: Times
    """Shape (K,)."""

    @classmethod
    def of(cls, observations: deque[Observation], learners: Sequence[LearnerId]) -> "Window":
        """The observations as seen from the present learners."""
        shape = (len(observations), len(learners))
        load = np.zeros(shape, dtype=np.int64)
        compute_s, arrival_s = np.full(shape, np.nan), np.full(shape, np.nan)
        column = {learner: index for index, learner in enumerate(learners)}
        for row, seen in enumerate(observations):
            known = [index for index, each in enumerate(seen.learners) if each in column]
            columns = [column[seen.learners[index]] for index in known]
            load[row, columns] = seen.load[known]
            compute_s[row, columns] = seen.compute_s[known]
            arrival_s[row, columns] = seen.arrival_s[known]
        round_s = np.array([seen.round_s for seen in observations])
        return cls(load=load, compute_s=compute_s, arrival_s=arrival_s, round_s=round_s)
