"""Check that exported policies act like the run's own."""

from collections.abc import Callable, Sequence

import numpy as np

from fullrank.common.errors import FullrankError
from fullrank.common.seeding import stream
from fullrank.common.types import FloatArray
from fullrank.environments.base import Discrete
from fullrank.export.policy import Play, Policy

OBSERVATIONS = 1000
"""Number of standard normal observations on which exported policies are tried."""
LIMIT = 1e-5
"""Largest difference that the order of summation can explain."""


def check(
    policies: Sequence[Policy],
    exported: Sequence[Play],
    act: Callable[[FloatArray], FloatArray],
    *,
    seed: int,
) -> float:
    """Largest difference between exported policies and the run's on random observations.

    The difference is the larger of two: that of the outputs, and the margin by which an exported
    policy prefers another action than the run's. It is relative to the largest output above 1.

    Args:
        policies: The run's policies, by agent.
        exported: The policies as read back from their files.
        act: The run's greedy joint actions where all actions are available.
        seed: Seed of the observations.

    Raises:
        FullrankError: The difference is above ``LIMIT``.
    """
    observation_sizes = [policy.agent.observation_size for policy in policies]
    action_sizes = [policy.agent.action.size for policy in policies]
    shape = (OBSERVATIONS, sum(observation_sizes))
    joint = stream(seed, "parity").standard_normal(shape, dtype=np.float32)
    observed, taken = _split(joint, observation_sizes), _split(act(joint), action_sizes)
    agents = zip(policies, exported, observed, taken, strict=True)
    differences = np.array([_difference(*agent) for agent in agents])
    if not (differences <= LIMIT).all():
        raise FullrankError(
            f"the exported policies differ from the run's by {differences.max():.1e}, more than "
            f"{LIMIT:.0e}; they were discarded"
        )
    return float(differences.max())


def _difference(policy: Policy, play: Play, observation: FloatArray, taken: FloatArray) -> float:
    outputs, expected = play(observation), policy.outputs(observation)
    if isinstance(policy.agent.action, Discrete):
        missed = outputs.max(axis=1) - (outputs * taken).sum(axis=1)
    else:
        missed = np.abs(outputs - taken)
    largest = max(1.0, float(np.abs(expected).max()))
    return float(np.maximum(np.abs(outputs - expected).max(), missed.max())) / largest


def _split(joint: FloatArray, sizes: Sequence[int]) -> list[FloatArray]:
    return [np.ascontiguousarray(part) for part in np.split(joint, np.cumsum(sizes)[:-1], axis=1)]
