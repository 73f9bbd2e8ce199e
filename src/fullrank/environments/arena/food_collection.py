"""Food Collection [DARL1N], Sec. VI-A: agents stand on food and keep away from each other.

The authors' code calls it simple_spread, as which it began; nothing of [Long20]'s task of that name
is left in it. Everybody pays its distance to the nearest food and earns 1 for each piece that it
touches, less 1 for each other agent that it touches. Food stays where it is.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fullrank.common.errors import ConfigError
from fullrank.environments.arena.config import ArenaConfig, Deeds
from fullrank.environments.arena.crowd import Crowd, Surroundings, meals
from fullrank.environments.arena.environment import Arena
from fullrank.environments.arena.local import LocalArena
from fullrank.environments.base import register
from fullrank.environments.particle.world import Body

AGENT = Body(kind="agent", size=0.05, acceleration=5.0, max_speed=3.0, collides=True)


@register("food_collection")
@dataclass(frozen=True, slots=True, kw_only=True)
class FoodCollection(ArenaConfig):
    """M agents and L pieces of food in a walled square; M is 6 unless said otherwise."""

    task: ClassVar[str] = "food_collection"

    def make(self, *, agents: int, copies: int) -> Arena:
        """See ``EnvironmentConfig.make``."""
        return Arena(self, agents=agents, copies=copies)

    def local(self, *, agents: int) -> LocalArena:
        """See ``LocalConfig.local``."""
        return LocalArena(self, agents=agents)

    def bodies(self, agents: int) -> list[Body]:
        """All alike."""
        if agents < 0:
            raise ConfigError(f"food_collection: agents must be at least 1: {agents}")
        return [AGENT] * (agents or 6)

    def pay(self, crowd: Crowd, around: Surroundings) -> Deeds:
        """Food is earned, touching is paid, nothing changes."""
        copies, agents = crowd.live.shape
        bumps = around.agents.where(around.touching).tally(copies, agents)
        eating = meals(crowd, around.who)
        reward = eating.tally(copies, agents) - bumps - self.hunger(around)
        nothing = eating.where(np.zeros(len(eating.one), dtype=bool))
        return Deeds(reward, np.zeros_like(crowd.live), nothing)
