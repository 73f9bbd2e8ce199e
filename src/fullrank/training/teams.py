"""Whether the agents are one team, whose summed reward a value-based algorithm may learn.

Sides that an environment of this package declares are its word. Another package declares none, or
by the names of its agents; a short random play then tells whether all are paid the same, or whether
the rewards cancel.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fullrank.common.seeding import derive
from fullrank.common.types import Array, BoolArray
from fullrank.environments.base import AgentSpec, Environment
from fullrank.training.episodes import Episodes
from fullrank.training.evaluation import random_actions

TRIAL_STEPS = 100
"""Steps of the random play; shorter episodes follow each other."""
CANCELS = 1e-6
"""Largest sum of rewards that cancel, as a share of the largest reward."""


class Payment(NamedTuple):
    """The rewards of some steps, as far as they tell friend from foe."""

    alike: bool
    """True if all agents that acted were paid the same in every step, and not always zero."""
    cancels: bool
    """True if the rewards of two agents or more summed to zero in every step, not always zero."""


def payment_of(reward: Array, alive: BoolArray) -> Payment:
    """Judge rewards, shape (steps, M), of the agents that acted, of the same shape."""
    paid = bool(reward.any())
    lowest = np.where(alive, reward, np.inf).min(axis=1)
    highest = np.where(alive, reward, -np.inf).max(axis=1)
    total, largest = np.abs(reward.sum(axis=1)), np.abs(reward).max(initial=0.0)
    several = reward.shape[1] > 1
    return Payment(
        alike=paid and bool((lowest == highest).all()),
        cancels=paid and several and bool((total <= CANCELS * largest).all()),
    )


def sides_of(agents: Sequence[AgentSpec]) -> list[str]:
    """Return the sides in order of first appearance."""
    return [*dict.fromkeys(agent.side for agent in agents)]


def random_payment(environment: Environment, *, seed: int) -> Payment:
    """Judge the rewards of random play in an environment of one copy, which is reset."""
    episodes, act = Episodes(environment), random_actions(environment.agents, seed=seed)
    rewards, alive = [], []
    for step in range(TRIAL_STEPS):
        if episodes.ended[0]:
            episodes.begin(episodes.waiting(), [derive(seed, "trial", step)])
        alive.append(episodes.alive[0])
        action = act(episodes.observation, episodes.available())
        rewards.append(episodes.advance(action).reward[0])
    return payment_of(np.array(rewards), np.array(alive))


def several_teams(agents: Sequence[AgentSpec], payment: Payment | None) -> str:
    """Say why value-based algorithms refuse these agents; empty if they are one team.

    Args:
        agents: Agents that do not share one reward.
        payment: Their rewards in random play; None where the sides are the environment's word.
    """
    sides, learns = sides_of(agents), "value-based algorithms learn the sum of all rewards"
    remedy = "use maddpg or mfac, in which each agent learns from its own"
    if payment is not None and payment.cancels:
        names = ", ".join(agent.name for agent in agents)
        return f"{learns}, and those of {names} cancel in every step of random play; {remedy}"
    if len(sides) == 1 or (payment is not None and payment.alike):
        return ""
    if payment is not None:
        remedy += "; or, if all are one team, give the environment the attribute sides, a mapping "
        remedy += "from each of possible_agents to one name"
    return f"{learns}, and {' and '.join(sides)} are sides that are paid apart; {remedy}"
