"""Configuration shared by the arena tasks, and the sizes that follow from it for M agents."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from fullrank.common.errors import ConfigError
from fullrank.common.types import Array, BoolArray, FloatArray
from fullrank.environments.arena.crowd import Crowd, Surroundings, Traits, look_around, see, width
from fullrank.environments.arena.effects import Effects
from fullrank.environments.base import AgentSpec, require_horizon
from fullrank.environments.particle.scene import group, opponents
from fullrank.environments.particle.world import TIME_STEP, Body
from fullrank.environments.proximity import Pairs


class Payoffs(NamedTuple):
    """Rewards, deaths and eaten food of one state of the world."""

    reward: Array
    """Rewards of the living, shape (E, m)."""
    dies: BoolArray
    """Mask of agents that die, shape (E, m)."""
    eaten: Pairs
    """Agents and the food that they ate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArenaLayout:
    """An arena for M agents."""

    bodies: tuple[Body, ...]
    """Bodies of the agents, adversaries first."""
    traits: Traits
    """Traits of the agents, shape (1, M)."""
    half_width: float
    """Half the side of the arena, R."""
    food: int
    """Number of pieces of food, L."""
    food_seen: int
    """Places for food in an observation."""
    neighbours_seen: int
    """Places for neighbours in an observation."""

    @property
    def observation_size(self) -> int:
        """Entries of an agent's observation."""
        return width(food=self.food_seen, neighbours=self.neighbours_seen)

    def specs(self) -> tuple[AgentSpec, ...]:
        """The agents' interfaces."""
        kinds = [body.kind for body in self.bodies]
        size = self.observation_size
        contest = "adversary" in kinds
        names = ("adversary", "good") if contest else ("agent",)
        counts = [kinds.count("adversary"), kinds.count("agent")] if contest else [len(kinds)]
        sides = [
            group(name, count, observation=size, side=name if contest else "team")
            for name, count in zip(names, counts, strict=True)
        ]
        return tuple(agent for side in sides for agent in side)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArenaConfig(ABC):
    """Unset fields take the authors' value for M agents, interpolated between their sizes."""

    horizon: int = 25
    """Steps of an episode."""
    distance: float | Literal["contact"] | None = None
    """d, distance up to which agents are neighbours, themselves included; by default
    0.15 + 0.05 log2(M / 3). ``contact``: the largest distance from which two agents at rest
    can touch within a step."""
    half_width: float | None = None
    """R, half the side of the walled square; by default 1 + 0.5 log2(M / 3)."""
    food: int = 0
    """L, pieces of food; 0 means M, in a contest M / 2."""
    food_seen: int = 0
    """Pieces of food that an agent sees, the nearest ones; 0 means all."""
    food_distance: float | None = None
    """Distance up to which agents see food, and its largest cost; by default unlimited."""
    neighbours_seen: int = 0
    """Neighbours that an agent sees, by index; 0 means up to all others."""
    extra_step: bool = False
    """Add one step to an episode, as the authors' evaluation does."""
    contacts: bool = False
    """Agents push each other where they overlap, as in the authors' training."""
    moving_start: bool | None = None
    """Start with velocities from [-(1 + R), 1 + R] per axis, as in the authors' training, or at
    rest; by default neighbour interaction starts moving, since its single steps would show a policy
    no velocity otherwise, and episodes start at rest."""
    local_rewards: bool = False
    """Compute the effects of all agents at once and from their neighbours alone, as the authors'
    training does; otherwise in index order, each after the changes of the previous agents."""
    margin: float | None = None
    """In neighbour interaction, only agents within 2 (margin + d) act and push, as in the authors'
    training with margins below a step; by default all agents that matter do."""
    variant: Literal["darl1n"] = "darl1n"
    """Source of dynamics and rewards: the authors of [DARL1N]."""

    task: ClassVar[str]

    def __post_init__(self) -> None:
        require_horizon(self.horizon)
        if self.distance != "contact":
            _require_self("distance", self.distance)
        if self.half_width is not None and not 0 < self.half_width < math.inf:
            raise ConfigError(
                f"environment.half_width: a world of half width {self.half_width} holds no "
                "agent; it must be a number above 0"
            )
        if self.food_distance is not None and not self.food_distance >= 0:
            raise ConfigError(f"environment.food_distance must be 0 or more: {self.food_distance}")
        if self.margin is not None and not self.margin >= 0:
            raise ConfigError(f"environment.margin must be 0 or more: {self.margin}")
        for key in ("food", "food_seen", "neighbours_seen"):
            if getattr(self, key) < 0:
                raise ConfigError(f"environment.{key} must be 0 or more: {getattr(self, key)}")

    @abstractmethod
    def bodies(self, agents: int) -> list[Body]:
        """The agents' bodies, adversaries first; ``agents`` is M, or 0 for the task's own.

        Raises:
            ConfigError: There is no such team.
        """

    @abstractmethod
    def pay(self, crowd: Crowd, around: Surroundings) -> Payoffs:
        """Rewards, deaths and eaten food of one state of the world."""

    def sight(self, body: Body, distance: float) -> float:
        """Distance up to which an agent sees others, where d is ``distance``."""
        return distance

    def pieces(self, agents: int) -> int:
        """L for M agents."""
        return self.food or agents

    def layout(self, agents: int) -> ArenaLayout:
        """Sizes for M agents (0: the task's default)."""
        bodies = self.bodies(agents)
        doublings = math.log2(max(len(bodies), 3) / 3)
        distance = round(0.15 + 0.05 * doublings, 2) if self.distance is None else self.distance
        distance = _contact_distance(bodies) if distance == "contact" else distance
        half_width = round(1 + 0.5 * doublings, 2) if self.half_width is None else self.half_width
        food = self.pieces(len(bodies))
        return ArenaLayout(
            bodies=tuple(bodies),
            traits=_traits(bodies, [self.sight(body, distance) for body in bodies]),
            half_width=half_width,
            food=food,
            food_seen=min(self.food_seen or food, food),
            neighbours_seen=min(self.neighbours_seen or len(bodies), len(bodies) - 1),
        )

    def look(self, crowd: Crowd, layout: ArenaLayout, who: BoolArray) -> FloatArray:
        """Observations of the agents in a mask, shape (E, m), else zeros, shape (E, m, size)."""
        return self._see(crowd, layout, self._survey(crowd, layout, who))

    def effects(self, crowd: Crowd, layout: ArenaLayout, who: BoolArray) -> Effects:
        """Effects of the agents in a mask, shape (E, m), in one state of the world.

        With ``local_rewards``, they are complete for agents whose neighbours are all in the mask.
        """
        around = self._survey(crowd, layout, who)
        deeds = self.pay(crowd, around)
        reward = np.where(crowd.live, deeds.reward, 0.0)
        return Effects(self._see(crowd, layout, around), reward, deeds.dies, deeds.eaten)

    def _survey(self, crowd: Crowd, layout: ArenaLayout, who: BoolArray) -> Surroundings:
        return look_around(crowd, who, food=max(layout.food_seen, 1), food_distance=self.limit)

    def _see(self, crowd: Crowd, layout: ArenaLayout, around: Surroundings) -> FloatArray:
        return see(crowd, around, food=layout.food_seen, neighbours=layout.neighbours_seen)

    @property
    def limit(self) -> float:
        """Distance up to which food is seen."""
        return math.inf if self.food_distance is None else self.food_distance

    def hunger(self, around: Surroundings) -> Array:
        """The distance to the nearest food, shape (E, m)."""
        return np.minimum(around.food.distance(*around.who.shape), self.limit)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContestConfig(ArenaConfig):
    """Configuration of tasks with adversaries, which have the first indices."""

    adversaries: int = 0
    """K, from 1 to M - 1; 0 means half of M."""
    adversary_distance: float = 100.0
    """Distance up to which agents are an adversary's neighbours; the authors' see all."""

    def __post_init__(self) -> None:
        ArenaConfig.__post_init__(self)
        _require_self("adversary_distance", self.adversary_distance)

    def sight(self, body: Body, distance: float) -> float:
        """The distance; adversaries have their own."""
        return self.adversary_distance if body.kind == "adversary" else distance

    def pieces(self, agents: int) -> int:
        """L for M agents."""
        return self.food or agents // 2

    def teams(self, agents: int) -> tuple[int, int]:
        """K and M - K; M is 6 by default."""
        good, adversaries = opponents(self.task, agents=agents or 6, adversaries=self.adversaries)
        return adversaries, good


def _contact_distance(bodies: Sequence[Body]) -> float:
    """The largest distance from which two agents at rest can touch within a step.

    From rest, a step of full thrust moves a body by its acceleration times the squared time step.
    """
    reach = sorted(body.size + body.acceleration * TIME_STEP**2 for body in bodies)
    return round(sum(reach[-2:]), 3)


def _require_self(key: str, distance: float | None) -> None:
    """Raise ``ConfigError`` if an agent would not be within the distance of itself."""
    if distance is not None and not distance >= 0:
        raise ConfigError(
            f"environment.{key}: within a distance of {distance} no agent has even itself as "
            "neighbour; it must be 0 or more"
        )


def _traits(bodies: list[Body], sight: list[float]) -> Traits:
    return Traits(
        size=np.array([[body.size for body in bodies]]),
        acceleration=np.array([[body.acceleration for body in bodies]]),
        max_speed=np.array([[body.max_speed for body in bodies]]),
        sight=np.array([sight]),
        adversary=np.array([[body.kind == "adversary" for body in bodies]]),
    )
