"""Food Collection [DARL1N], Sec. VI-A: agents stand on food and keep away from each other.

The authors' code calls it simple_spread after its origin, a task of [Long20] with which it has
nothing left in common. An agent pays its distance to the nearest food, earns 1 for each piece that
it touches and loses 1 for each other agent that it touches. Food stays where it is.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fullrank.common.errors import ConfigError
from fullrank.environments.arena.config import ArenaConfig, Payoffs
from fullrank.environments.arena.crowd import Crowd, Surroundings, meals
from fullrank.environments.arena.environment import Arena
from fullrank.environments.arena.neighbourhood import ArenaNeighbourhood
from fullrank.environments.base import register
from fullrank.environments.particle.world import Body

AGENT = Body(kind="agent", size=0.05, acceleration=5.0, max_speed=3.0, collides=True)


@register("food_collection")
@dataclass(frozen=True, slots=True, kw_only=True)
class FoodCollection(ArenaConfig):
    """M agents and L pieces of food in a walled square; M is 6 by default."""

    task: ClassVar[str] = "food_collection"

    def make(self, *, agents: int, copies: int) -> Arena:
        """Make the copies of the task; see ``EnvironmentConfig.make``."""
        return Arena(self, agents=agents, copies=copies)

    def neighbourhood(self, *, agents: int) -> ArenaNeighbourhood:
        """Make the neighbourhoods; see ``NeighbourhoodConfig.neighbourhood``."""
        return ArenaNeighbourhood(self, agents=agents)

    def bodies(self, agents: int) -> list[Body]:
        """Return equal bodies, one for each agent."""
        if agents < 0:
            raise ConfigError(f"food_collection: agents must be at least 1: {agents}")
        return [AGENT] * (agents or 6)

    def pay(self, crowd: Crowd, around: Surroundings) -> Payoffs:
        """Rewards of food less costs of contacts; no agent dies, and food stays."""
        copies, agents = crowd.live.shape
        bumps = around.agents.where(around.touching).counts(copies, agents)
        eating = meals(crowd, around.who)
        reward = eating.counts(copies, agents) - bumps - self.hunger(around)
        nothing = eating.where(np.zeros(len(eating.one), dtype=bool))
        return Payoffs(reward, np.zeros_like(crowd.live), nothing)
