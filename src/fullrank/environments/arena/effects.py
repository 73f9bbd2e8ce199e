"""Whose deeds are seen by whom: agents see and earn one after the other, and change the world.

In the authors' programs agent i's reward moves the food that it ate and kills it at once, before
agent i + 1 sees and earns. Deeds are rare, so all see and earn together, and where somebody did
something, those after the first one do so again.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from fullrank.common.types import BoolArray, FloatArray, IntArray
from fullrank.environments.arena.crowd import Crowd
from fullrank.environments.proximity import Array, Pairs


class Verdict(NamedTuple):
    """What every agent sees, earns and does to the world, judged on one state of it."""

    observation: FloatArray
    """Shape (E, m, width)."""
    reward: Array
    """Shape (E, m)."""
    dies: BoolArray
    """Shape (E, m)."""
    eaten: Pairs
    """Agents and the food that is gone with their rewards."""


Judge = Callable[[Crowd], Verdict]
Respawns = Sequence[Iterator[Array]]
"""For each copy, where food that was eaten appears next, (2,) each."""


def together(crowd: Crowd, judge: Judge, respawns: Respawns) -> Verdict:
    """All see and earn in one state of the world; then everything happens."""
    verdict = judge(crowd)
    crowd.live &= ~verdict.dies
    _feed(crowd, verdict.eaten, respawns, np.arange(len(crowd.live)))
    return verdict


def in_turn(crowd: Crowd, judge: Judge, respawns: Respawns) -> Verdict:
    """Agents see and earn in index order, each what those before it left.

    Returns:
        The verdict of each agent's turn; what was done has been done to ``crowd``.
    """
    total = verdict = judge(crowd)
    copies, turn = np.arange(len(crowd.live)), np.zeros(len(crowd.live), dtype=np.int64)
    while True:
        doing = _first_to_do_something(verdict, turn)
        busy = np.flatnonzero(doing.any(axis=1))
        if not busy.size:
            return total
        crowd.live[copies] &= ~(verdict.dies & doing)
        eaten = verdict.eaten
        _feed(crowd, eaten.where(doing[eaten.copy, eaten.one]), respawns, copies)
        copies, turn = copies[busy], doing[busy].argmax(axis=1) + 1
        verdict = judge(crowd.of(copies))
        _replace_later(total, verdict, copies, turn)


def _first_to_do_something(verdict: Verdict, turn: IntArray) -> BoolArray:
    """Of each copy the first agent from ``turn`` on that dies or eats, if any, shape (E, m)."""
    does = verdict.dies.copy()
    does[verdict.eaten.copy, verdict.eaten.one] = True
    does &= np.arange(does.shape[1]) >= turn[:, None]
    first: BoolArray = does & (np.cumsum(does, axis=1) == 1)
    return first


def _replace_later(total: Verdict, verdict: Verdict, copies: IntArray, turn: IntArray) -> None:
    """Take over what those from ``turn`` on see and earn in some copies."""
    row, agent = np.nonzero(np.arange(verdict.reward.shape[1]) >= turn[:, None])
    total.observation[copies[row], agent] = verdict.observation[row, agent]
    total.reward[copies[row], agent] = verdict.reward[row, agent]


def _feed(crowd: Crowd, eaten: Pairs, respawns: Respawns, copies: IntArray) -> None:
    """New food for old; a piece that several agents ate appears once.

    Args:
        crowd: All copies.
        eaten: Agents and food of some of them.
        respawns: Where food appears, for all copies.
        copies: Which copies ``eaten`` is about.
    """
    gone = dict.fromkeys(zip(copies[eaten.copy].tolist(), eaten.other.tolist(), strict=True))
    for copy, piece in gone:
        crowd.food[:, copy, piece] = next(respawns[copy])
