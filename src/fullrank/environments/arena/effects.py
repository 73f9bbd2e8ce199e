"""Effects of a step: agents observe and earn one after the other, and change the world.

In the authors' programs, the reward of agent i moves the food that it ate and kills it at once,
before agent i + 1 observes and earns. Such changes are rare, so all agents observe and earn
together, and only the agents after the first change are computed again.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from fullrank.common.types import Array, BoolArray, FloatArray, IntArray
from fullrank.environments.arena.crowd import Crowd
from fullrank.environments.proximity import Pairs


class Effects(NamedTuple):
    """Observations, rewards and changes of the world, computed from one state of it."""

    observation: FloatArray
    """Shape (E, m, width)."""
    reward: Array
    """Rewards, shape (E, m)."""
    dies: BoolArray
    """Mask of agents that die, shape (E, m)."""
    eaten: Pairs
    """Agents and the food that they ate."""


ComputeEffects = Callable[[Crowd], Effects]
Respawns = Sequence[Iterator[Array]]
"""Next positions of eaten food for each copy, (2,) each."""


def simultaneous(crowd: Crowd, compute: ComputeEffects, respawns: Respawns) -> Effects:
    """All agents observe and earn in one state of the world; then all changes apply."""
    effects = compute(crowd)
    crowd.live &= ~effects.dies
    _feed(crowd, effects.eaten, respawns, np.arange(len(crowd.live)))
    return effects


def sequential(crowd: Crowd, compute: ComputeEffects, respawns: Respawns) -> Effects:
    """Agents observe and earn in index order, each after the changes of the previous ones.

    Returns:
        The effects in each agent's turn, which have been applied to ``crowd``.
    """
    total = effects = compute(crowd)
    copies, turn = np.arange(len(crowd.live)), np.zeros(len(crowd.live), dtype=np.int64)
    while True:
        change = _first_change(effects, turn)
        busy = np.flatnonzero(change.any(axis=1))
        if not busy.size:
            return total
        crowd.live[copies] &= ~(effects.dies & change)
        eaten = effects.eaten
        _feed(crowd, eaten.where(change[eaten.copy, eaten.one]), respawns, copies)
        copies, turn = copies[busy], change[busy].argmax(axis=1) + 1
        effects = compute(crowd.of(copies))
        _replace_later(total, effects, copies, turn)


def _first_change(effects: Effects, turn: IntArray) -> BoolArray:
    """The first agent of each copy from ``turn`` on that dies or eats, if any, shape (E, m)."""
    changes = effects.dies.copy()
    changes[effects.eaten.copy, effects.eaten.one] = True
    changes &= np.arange(changes.shape[1]) >= turn[:, None]
    first: BoolArray = changes & (np.cumsum(changes, axis=1) == 1)
    return first


def _replace_later(total: Effects, effects: Effects, copies: IntArray, turn: IntArray) -> None:
    """Overwrite observations and rewards of the agents from ``turn`` on in some copies."""
    row, agent = np.nonzero(np.arange(effects.reward.shape[1]) >= turn[:, None])
    total.observation[copies[row], agent] = effects.observation[row, agent]
    total.reward[copies[row], agent] = effects.reward[row, agent]


def _feed(crowd: Crowd, eaten: Pairs, respawns: Respawns, copies: IntArray) -> None:
    """Replace eaten food; a piece that several agents ate is replaced once.

    Args:
        crowd: All copies.
        eaten: Agents and food in some of them.
        respawns: Next food positions, for all copies.
        copies: Indices of the copies in ``eaten``.
    """
    gone = dict.fromkeys(zip(copies[eaten.copy].tolist(), eaten.other.tolist(), strict=True))
    for copy, piece in gone:
        crowd.food[:, copy, piece] = next(respawns[copy])
