"""Reward and end of a battle, as SMAC counts them [Samvelyan19]."""

import numpy as np

from fullrank.common.types import Array, BoolArray

KILL, VICTORY, LARGEST_RETURN = 10.0, 200.0, 20.0
"""Rewards of a kill and of the victory before scaling, and the largest return after it."""


def damage_reward(before: Array, after: Array) -> Array:
    """Return the reward of the damage and the kills of one step before scaling, shape (E,).

    A kill counts all that was left of the enemy. As in SMAC, the sign is dropped, so that shields
    which regenerate without a fight are rewarded.

    Args:
        before: Health and shield of each enemy before the step, 0 for the dead, shape (m, E).
        after: The same after the step.
    """
    kills = ((before > 0) & (after <= 0)).sum(axis=0)
    reward: Array = np.abs((before - after).sum(axis=0) + KILL * kills)
    return reward


def judge(
    agents: BoolArray, enemies: BoolArray, *, medics: BoolArray, enemy_medics: BoolArray
) -> tuple[BoolArray, BoolArray]:
    """Return which battles are won and which are over, both of shape (E,).

    Agents without a fighter have lost; enemies are beaten if none is left, or a single medivac.

    Args:
        agents: Mask of the living agents, shape (n, E).
        enemies: Mask of the living enemies, shape (m, E).
        medics: Mask of the agents that are medivacs, shape (n,).
        enemy_medics: Mask of the enemies that are medivacs, shape (m,).
    """
    standing = agents[~medics].any(axis=0)
    left = enemies.sum(axis=0)
    beaten = (left == 0) | ((left == 1) & enemies[enemy_medics].any(axis=0))
    return standing & beaten, ~standing | beaten
