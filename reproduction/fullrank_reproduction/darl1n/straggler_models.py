"""The two straggler models of the paper: that of its text and that of its Table V."""

import math
from enum import StrEnum

from fullrank.stragglers import Bernoulli, DelayModel, FixedK
from fullrank_reproduction.darl1n.published import AGENTS, LEARNERS, MDS, REPETITION, UNCODED


class StragglerModel(StrEnum):
    """Distribution of the number of stragglers at a rate eta."""

    BERNOULLI = "bernoulli"
    """Each learner with probability eta (Assumption 4)."""
    FIXED = "fixed"
    """Exactly round(eta N) learners."""

    def model(self, rate: float, *, delay_s: float) -> DelayModel:
        """The delay model."""
        if self is StragglerModel.BERNOULLI:
            return Bernoulli(probability=rate, delay_s=delay_s)
        return FixedK(k=stragglers(rate), delay_s=delay_s)


def stragglers(rate: float) -> int:
    """The number of stragglers, round(eta N)."""
    return round(rate * LEARNERS)


def success_probability(scheme: str, model: StragglerModel, rate: float) -> float | None:
    """Closed form of P(decodable); None for random matrices.

    Independent stragglers: [DARL1N, Propositions 2 to 4]. A fixed number k: the ways to choose k
    learners such that all M of ``uncoded`` (one of each pair in ``replication``, N - k >= M in
    ``mds``) remain, as a share of all ways.
    """
    if model is StragglerModel.FIXED:
        return _fixed(scheme, stragglers(rate))
    if scheme == UNCODED.name:
        return (1.0 - rate) ** AGENTS
    if scheme == REPETITION.name:
        return (1.0 - rate ** (LEARNERS // AGENTS)) ** AGENTS
    if scheme == MDS.name:
        return sum(
            math.comb(LEARNERS, k) * rate**k * (1.0 - rate) ** (LEARNERS - k)
            for k in range(LEARNERS - AGENTS + 1)
        )
    return None


def _fixed(scheme: str, k: int) -> float | None:
    """Closed form for a fixed number k of stragglers, N = 2 M."""
    every = math.comb(LEARNERS, k)
    if scheme == UNCODED.name:
        return math.comb(LEARNERS - AGENTS, k) / every
    if scheme == REPETITION.name:
        return math.comb(AGENTS, k) * 2.0**k / every
    if scheme == MDS.name:
        return float(k <= LEARNERS - AGENTS)
    return None
