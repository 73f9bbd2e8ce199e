"""Grassland [DARL1N], Sec. VI-A, a task of [Long20]: good agents graze, adversaries hunt them.

A good agent pays its distance to the nearest grass, earns 20 for each that it touches, which then
grows elsewhere, and loses 5 for each adversary that it touches, at which it dies. An adversary
earns 15 for each living good agent that it touches and pays its distance to the nearest good agent,
dead ones included. An agent that dies still gets the reward of that turn. Adversaries never die;
one that starts dead is as dangerous as a living one.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fullrank.environments.arena.config import ContestConfig, Payoffs
from fullrank.environments.arena.crowd import Crowd, Surroundings, distance_to_nearest, meals
from fullrank.environments.arena.environment import Arena
from fullrank.environments.arena.neighbourhood import ArenaNeighbourhood
from fullrank.environments.base import register
from fullrank.environments.particle.world import Body

GOOD = Body(kind="agent", size=0.05, acceleration=4.0, max_speed=3.0, collides=True)
ADVERSARY = Body(kind="adversary", size=0.075, acceleration=2.0, max_speed=2.0, collides=True)


@register("grassland")
@dataclass(frozen=True, slots=True, kw_only=True)
class Grassland(ContestConfig):
    """M - K grazing agents against K hunters, the first ones; M is 6 by default."""

    grass_reward: float = 20.0
    """Reward of a good agent for each grass that it touches; 10 in [DARL1N], Fig. 6."""
    contact_cost: float = 5.0
    """Cost of a good agent for each adversary that it touches; 100 in [DARL1N], Fig. 6."""

    task: ClassVar[str] = "grassland"

    def make(self, *, agents: int, copies: int) -> Arena:
        """Make the copies of the task; see ``EnvironmentConfig.make``."""
        return Arena(self, agents=agents, copies=copies)

    def neighbourhood(self, *, agents: int) -> ArenaNeighbourhood:
        """Make the neighbourhoods; see ``NeighbourhoodConfig.neighbourhood``."""
        return ArenaNeighbourhood(self, agents=agents)

    def bodies(self, agents: int) -> list[Body]:
        """Bodies, of which adversaries are larger and slower."""
        adversaries, good = self.teams(agents)
        return [ADVERSARY] * adversaries + [GOOD] * good

    def pay(self, crowd: Crowd, around: Surroundings) -> Payoffs:
        """Rewards of grazing and catching, and deaths of caught agents."""
        copies, agents = crowd.live.shape
        adversary = np.broadcast_to(crowd.traits.adversary, crowd.live.shape)
        near = around.agents
        counted = around.touching & (around.seen if self.local_rewards else True)
        one, other = crowd.ends(near)
        dangerous = adversary.take(other)
        against = counted & (adversary.take(one) != dangerous)
        alive = crowd.live.take(other) | dangerous
        touched = near.where(against & alive).counts(copies, agents)
        grazing = crowd.live & ~adversary
        eaten = meals(crowd, around.who & grazing)
        away = distance_to_nearest(crowd, around, adversary, ~adversary, local=self.local_rewards)
        grazed = self.grass_reward * eaten.counts(copies, agents)
        good = grazed - self.contact_cost * touched - self.hunger(around)
        reward = np.where(adversary, 15.0 * touched - away, good)
        return Payoffs(reward, grazing & (touched > 0), eaten)
