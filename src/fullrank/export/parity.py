"""Whether exported policies act as the run's do."""

from collections.abc import Sequence

import numpy as np

from fullrank.common.errors import FullrankError
from fullrank.common.seeding import stream
from fullrank.common.types import FloatArray
from fullrank.environments.base import Discrete
from fullrank.export.policy import Play, Policy
from fullrank.training.rollouts import Act

OBSERVATIONS = 1000
"""Random ones, standard normal, that exported policies are tried on."""
LIMIT = 1e-5
"""The largest difference that two orders of summation explain."""


def check(policies: Sequence[Policy], exported: Sequence[Play], act: Act, *, seed: int) -> float:
    """The largest difference between exported policies and the run's on random observations.

    It is that of their outputs, or how much higher an exported policy scores another action than
    the one that the run takes; relative to the largest output where that is above 1.

    Args:
        policies: The run's, agent by agent.
        exported: The same as read back from their files.
        act: The run's greedy joint actions.
        seed: Keys the observations.

    Raises:
        FullrankError: It is above ``LIMIT``.
    """
    observation_sizes = [policy.agent.observation_size for policy in policies]
    action_sizes = [policy.agent.action.size for policy in policies]
    shape = (OBSERVATIONS, sum(observation_sizes))
    joint = stream(seed, "parity").standard_normal(shape, dtype=np.float32)
    seen, taken = _split(joint, observation_sizes), _split(act(joint), action_sizes)
    apart = np.array([_apart(*each) for each in zip(policies, exported, seen, taken, strict=True)])
    if not (apart <= LIMIT).all():
        raise FullrankError(
            f"the exported policies differ from the run's by {apart.max():.1e}, more than "
            f"{LIMIT:.0e}; they were not kept"
        )
    return float(apart.max())


def _apart(policy: Policy, play: Play, observation: FloatArray, taken: FloatArray) -> float:
    outputs, expected = play(observation), policy.outputs(observation)
    if isinstance(policy.agent.action, Discrete):
        missed = outputs.max(axis=1) - (outputs * taken).sum(axis=1)
    else:
        missed = np.abs(outputs - taken)
    largest = max(1.0, float(np.abs(expected).max()))
    return float(np.maximum(np.abs(outputs - expected).max(), missed.max())) / largest


def _split(joint: FloatArray, sizes: Sequence[int]) -> list[FloatArray]:
    return [np.ascontiguousarray(part) for part in np.split(joint, np.cumsum(sizes)[:-1], axis=1)]
