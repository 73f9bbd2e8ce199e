"""Adversarial Battle [DARL1N], Sec. VI-A, a task of [Long20]: two equal sides fight over food.

An agent pays its distances to the nearest food and to the nearest living opponent, and earns 10 for
each piece of food that it touches, which then appears elsewhere. For each living opponent that it
touches, it earns 5 for every team-mate that touches the same one. An agent that touches two or more
opponents dies and pays 5; it still gets the reward of that turn.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fullrank.common.types import Array, BoolArray, IntArray
from fullrank.environments.arena.config import ContestConfig, Payoffs
from fullrank.environments.arena.crowd import Crowd, Surroundings, distance_to_nearest, meals
from fullrank.environments.arena.environment import Arena
from fullrank.environments.arena.neighbourhood import ArenaNeighbourhood
from fullrank.environments.base import register
from fullrank.environments.particle.world import Body, length
from fullrank.environments.proximity import Pairs, runs

GOOD = Body(kind="agent", size=0.08, acceleration=4.0, max_speed=3.0, collides=True)
ADVERSARY = Body(kind="adversary", size=0.08, acceleration=4.0, max_speed=3.0, collides=True)


@register("adversarial_battle")
@dataclass(frozen=True, slots=True, kw_only=True)
class AdversarialBattle(ContestConfig):
    """M - K good agents against K adversaries, the first ones; M is 6 by default."""

    task: ClassVar[str] = "adversarial_battle"

    def make(self, *, agents: int, copies: int) -> Arena:
        """Make the copies of the task; see ``EnvironmentConfig.make``."""
        return Arena(self, agents=agents, copies=copies)

    def neighbourhood(self, *, agents: int) -> ArenaNeighbourhood:
        """Make the neighbourhoods; see ``NeighbourhoodConfig.neighbourhood``."""
        return ArenaNeighbourhood(self, agents=agents)

    def bodies(self, agents: int) -> list[Body]:
        """Equal bodies of both sides."""
        adversaries, good = self.teams(agents)
        return [ADVERSARY] * adversaries + [GOOD] * good

    def pay(self, crowd: Crowd, around: Surroundings) -> Payoffs:
        """Rewards of food and of joint contacts, and deaths between two opponents."""
        copies, agents = crowd.live.shape
        adversary = np.broadcast_to(crowd.traits.adversary, crowd.live.shape)
        fights = _fights(crowd, around, adversary)
        met = fights.where(_seen(crowd, fights)) if self.local_rewards else fights
        dies = crowd.live & (met.counts(copies, agents) >= 2)
        help_ = _help(crowd, met, fights, local=self.local_rewards)
        eaten = meals(crowd, around.who & crowd.live)
        away = np.zeros(crowd.live.shape)
        for side in (adversary, ~adversary):
            away += distance_to_nearest(
                crowd, around, side, ~side & crowd.live, local=self.local_rewards
            )
        reward = 10.0 * eaten.counts(copies, agents) + 5.0 * help_ - 5.0 * dies
        return Payoffs(reward - self.hunger(around) - away, dies, eaten)


def _fights(crowd: Crowd, around: Surroundings, adversary: BoolArray) -> Pairs:
    """Living opponents that touch each other, both ways."""
    near = around.agents.where(around.touching)
    one, other = crowd.ends(near)
    against = adversary.take(one) != adversary.take(other)
    return near.where(against & crowd.live.take(one) & crowd.live.take(other))


def _seen(crowd: Crowd, near: Pairs) -> BoolArray:
    """Mask of the pairs whose second is a neighbour of the first, shape (n,)."""
    seen: BoolArray = near.distance <= crowd.trait(crowd.traits.sight)[near.copy, near.one]
    return seen


def _help(crowd: Crowd, met: Pairs, fights: Pairs, *, local: bool) -> IntArray:
    """Number of others that touch the same opponents, summed over an agent's opponents.

    Args:
        crowd: E copies of m agents.
        met: An agent and an opponent that counts for it.
        fights: Opponents of all agents, ascending by copy and agent.
        local: Only neighbours count as others.

    Returns:
        Shape (E, m).
    """
    agents = crowd.live.shape[1]
    key, opponent = fights.copy * agents + fights.one, met.copy * agents + met.other
    start = np.searchsorted(key, opponent)
    counts = np.searchsorted(key, opponent, side="right") - start
    meeting = np.repeat(np.arange(len(opponent)), counts)
    copy, one, mate = met.copy[meeting], met.one[meeting], fights.other[runs(start, counts)]
    helps = one != mate
    if local:
        distance: Array = length(crowd.position[:, copy, mate] - crowd.position[:, copy, one])
        helps &= distance <= crowd.trait(crowd.traits.sight)[copy, one]
    flat = (copy * agents + one)[helps]
    return np.bincount(flat, minlength=crowd.live.size).reshape(crowd.live.shape)
