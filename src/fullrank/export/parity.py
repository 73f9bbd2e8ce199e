"""Check that exported policies act like the run's own."""

from collections.abc import Callable, Sequence
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from fullrank.algorithms import Player
from fullrank.common.errors import FullrankError
from fullrank.common.seeding import stream
from fullrank.common.types import BoolArray, FloatArray
from fullrank.export.policy import Policy, PolicyFunction
from fullrank.export.recurrent import NOTHING_YET, PlayStep, RecurrentPolicy

S = TypeVar("S", bound=np.generic)

OBSERVATIONS = 1000
"""Number of standard normal observations on which exported policies are tried."""
EPISODES = 50
"""Number of episodes over which the observations spread where policies are recurrent."""
LIMIT = 1e-5
"""Largest difference that the order of summation can explain."""


def check(
    policies: Sequence[Policy],
    exported: Sequence[PolicyFunction],
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
    return _largest([_difference(*agent) for agent in agents])


def check_recurrent(
    policies: Sequence[RecurrentPolicy],
    exported: Sequence[PlayStep],
    actor: Player,
    *,
    seed: int,
) -> float:
    """As ``check``, over random episodes of 20 steps in which half of the actions are available.

    Every policy carries the recurrent state of its own steps, and the actions that the run takes.

    Args:
        policies: The run's policies, by agent.
        exported: The policies as read back from their files.
        actor: Takes the run's greedy joint actions.
        seed: Seed of the observations and of the available actions.

    Raises:
        FullrankError: The difference is above ``LIMIT``.
    """
    generator = stream(seed, "parity")
    observation_sizes = [policy.agent.observation_size for policy in policies]
    action_sizes = [policy.agent.action.size for policy in policies]
    memory = actor.memory(EPISODES)
    last = [np.full(EPISODES, NOTHING_YET) for _ in policies]
    carried = [np.zeros((2, EPISODES, policy.hidden), np.float32) for policy in policies]
    differences = []
    for _ in range(OBSERVATIONS // EPISODES):
        shape = (EPISODES, sum(observation_sizes))
        joint = generator.standard_normal(shape, dtype=np.float32)
        for policy, part in zip(
            policies, np.split(joint, np.cumsum(observation_sizes)[:-1], axis=1), strict=True
        ):
            if policy.layers.image is not None:
                part[:] = np.rint(np.abs(part) * 80.0).clip(max=255.0)
        available = generator.random((EPISODES, sum(action_sizes))) < 0.5
        for mask in _by_choice(available, [n for p in policies for n in p.agent.action.choices]):
            mask[:, 0] |= ~mask.any(axis=1)
        action, memory = actor.act_greedily(joint, memory, available=available)
        parts = (_split(joint, observation_sizes), _split(available, action_sizes))
        for agent, (seen, mask, taken) in enumerate(
            zip(*parts, _split(action, action_sizes), strict=True)
        ):
            ours, theirs = carried[agent]
            expected, ours = policies[agent].step(seen, last[agent], ours)
            values, theirs = exported[agent](seen, last[agent], theirs)
            choices = policies[agent].agent.action.choices
            missed = _missed(values, taken, choices, mask=mask)
            differences.append(_relative(values, expected, missed))
            carried[agent], last[agent] = np.stack([ours, theirs]), taken.argmax(axis=1)
    return _largest(differences)


def _largest(differences: Sequence[float]) -> float:
    """Return the largest difference.

    Raises:
        FullrankError: It is above ``LIMIT``.
    """
    largest = float(np.max(differences))
    if not largest <= LIMIT:
        raise FullrankError(
            f"the exported policies differ from the run's by {largest:.1e}, more than "
            f"{LIMIT:.0e}; they were discarded"
        )
    return largest


def _difference(
    policy: Policy, play: PolicyFunction, observation: FloatArray, taken: FloatArray
) -> float:
    outputs, expected = play(observation), policy.outputs(observation)
    if choices := policy.agent.action.choices:
        missed = _missed(outputs, taken, choices)
    else:
        missed = np.abs(outputs - taken)
    return _relative(outputs, expected, missed)


def _missed(
    values: FloatArray,
    taken: FloatArray,
    choices: Sequence[int],
    *,
    mask: BoolArray | Literal[True] = True,
) -> FloatArray:
    """Return by how much the best values lie above those of the actions taken, choice by choice."""
    best, own = (
        _by_choice(each, choices) for each in (np.where(mask, values, -np.inf), values * taken)
    )
    return np.stack([b.max(axis=1) - o.sum(axis=1) for b, o in zip(best, own, strict=True)])


def _by_choice(joint: NDArray[S], choices: Sequence[int]) -> list[NDArray[S]]:
    """Return views of the parts of a joint array."""
    return np.split(joint, np.cumsum(choices)[:-1], axis=1)


def _relative(outputs: FloatArray, expected: FloatArray, missed: FloatArray) -> float:
    largest = max(1.0, float(np.abs(expected).max()))
    return float(np.maximum(np.abs(outputs - expected).max(), missed.max())) / largest


def _split(joint: NDArray[S], sizes: Sequence[int]) -> list[NDArray[S]]:
    return [np.ascontiguousarray(part) for part in np.split(joint, np.cumsum(sizes)[:-1], axis=1)]
