"""Neighbour interaction in the arenas: the crowd around one agent, under the rules of any crowd.

With d the central agent's distance, D the largest distance of all agents and e the largest move in
a step, the agents within d + D + 2 e act: by Proposition 1 of [DARL1N] no other can be near the
central agent's next neighbours. Agents that these see, or that push them, are present and stand
still. Rewards of the central agent come from its neighbours alone, as with ``local_rewards``.

A reset places all agents uniformly and independently. So a binomial number of the M - 1 others lies
in a window around the agent, uniformly in it, and they are a random subset. The cost depends on the
number in the window, not on M.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fullrank.common.types import Array, BoolArray, FloatArray, IntArray
from fullrank.environments.arena.config import ArenaConfig
from fullrank.environments.arena.crowd import FOOD, Crowd
from fullrank.environments.arena.environment import Arena, start_velocity, thrust
from fullrank.environments.neighbourhood import Neighbourhood, Transition, slots
from fullrank.environments.particle.world import CONTACT_REACH, TIME_STEP, length
from fullrank.environments.proximity import ABSENT


def window(centre: Array, reach: float, half_width: float) -> tuple[Array, Array]:
    """Lower and upper corners of squares around points, cut to the arena, shape (2, S) each."""
    low, high = np.maximum(centre - reach, -half_width), np.minimum(centre + reach, half_width)
    return low, high


def scatter(
    corners: tuple[Array, Array], half_width: float, number: int, generator: np.random.Generator
) -> Array:
    """Points of ``number`` uniform ones that lie in each window.

    Returns:
        Shape (2, S, most), padded with NaN.
    """
    low, high = corners
    share = np.prod((high - low) / (2 * half_width), axis=0)
    counts = generator.binomial(number, share)
    most = int(counts.max(initial=0))
    place = generator.random((2, len(counts), most))
    place *= (high - low)[..., None]
    place += low[..., None]
    np.copyto(place, np.nan, where=np.arange(most) >= counts[:, None])
    return place


def some(counts: IntArray, number: int, generator: np.random.Generator) -> IntArray:
    """``counts[s]`` distinct random integers below ``number`` in each row, by Floyd's method.

    Returns:
        Shape (S, most), padded with ``ABSENT``.
    """
    most = int(counts.max(initial=0))
    place = np.arange(most)[:, None]
    largest = np.maximum(number - counts + place, 0)
    chosen = (generator.random(largest.shape) * (largest + 1)).astype(np.int64)
    for before in range(1, most):
        taken = (chosen[:before] == chosen[before]).any(axis=0)
        np.copyto(chosen[before], largest[before], where=taken)
    return np.where(place < counts, chosen, ABSENT).T


def team(others: IntArray, agent: IntArray) -> tuple[IntArray, IntArray]:
    """The agent and its others, ascending, ``ABSENT`` last.

    Args:
        others: Indices among the M - 1 that are not the agent, shape (S, n).
        agent: Shape (S,).

    Returns:
        The agent in each of 1 + n slots, and its index in (agent, *others), both of shape (S, 1 +
        n).
    """
    absent = others == ABSENT
    shifted = np.where(absent, ABSENT, others + (others >= agent[:, None]))
    members = np.concatenate([agent[:, None], shifted], axis=1)
    last = np.iinfo(np.int64).max
    order = np.argsort(np.where(members == ABSENT, last, members), axis=1)
    return np.take_along_axis(members, order, axis=1), order


SLACK = 1e-9
"""Added to distances against rounding."""


class ArenaNeighbourhood:
    """Neighbourhoods of an arena's agents; implements ``NeighbourhoodWorld``."""

    def __init__(self, config: ArenaConfig, *, agents: int) -> None:
        self.layout = config.layout(agents)
        self.agents = self.layout.specs()
        self.neighbours_seen = self.layout.neighbours_seen
        self.horizon = config.horizon + config.extra_step
        self._config = replace(config, local_rewards=True)
        traits = self.layout.traits
        self._moved = TIME_STEP * float(traits.max_speed.max()) + SLACK
        self._sight = float(traits.sight.max())
        self._touch = 2 * float(traits.size.max())
        self._here: tuple[Neighbourhood, Crowd] | None = None

    def actors(self, agent: int) -> Sequence[int]:
        """See ``NeighbourhoodWorld.actors``: any agent may be near."""
        return range(len(self.agents))

    def start(self, agent: IntArray, *, generator: np.random.Generator) -> Neighbourhood:
        """Draw the surroundings; see ``NeighbourhoodWorld.start``."""
        half, others = self.layout.half_width, len(self.agents) - 1
        centre = generator.uniform(-half, half, size=(2, len(agent)))
        near = scatter(window(centre, self._reach(agent), half), half, others, generator)
        chosen = some(np.isfinite(near[0]).sum(axis=1), others, generator)
        who, order = team(chosen, agent)
        position = np.concatenate([centre[..., None], near], axis=2)
        position = np.take_along_axis(position, order[None], axis=2)
        food = window(centre, self._food_reach(agent), half)
        moving = self._config.moving_start is not False
        crowd = Crowd(
            traits=self.layout.traits.take(0, who),
            position=position,
            velocity=start_velocity(self.layout, generator, position.shape, moving=moving),
            live=np.ones(who.shape, dtype=bool),
            food=scatter(food, half, self.layout.food, generator),
        )
        return self._begin(crowd, who, agent)

    def team(self, copies: int) -> Arena:
        """Make copies of the whole team; see ``NeighbourhoodWorld.team``."""
        return Arena(self._config, agents=len(self.agents), copies=copies)

    def around(
        self, team: Arena, agent: IntArray, copy: IntArray, *, generator: np.random.Generator
    ) -> Neighbourhood:
        """Take the surroundings from a team, without draws; see ``NeighbourhoodWorld.around``."""
        whole = team.crowd.of(copy)
        centre = whole.position[:, np.arange(len(agent)), agent][..., None]
        who = slots(length(whole.position - centre) <= self._reach(agent))
        food = slots(length(whole.food - centre) <= self._food_reach(agent))
        crowd = Crowd(
            traits=self.layout.traits.take(0, who),
            position=_taken(whole.position, who),
            velocity=_taken(whole.velocity, who),
            live=np.take_along_axis(whole.live, who, axis=1),
            food=_taken(whole.food, food),
        )
        return self._begin(crowd, who, agent)

    def step(self, action: FloatArray) -> Transition:
        """Step the neighbourhoods; see ``NeighbourhoodWorld.step``."""
        assert self._here is not None, "start comes first"
        before, crowd = self._here
        self._here = None
        self._move(crowd, before, action)
        agent = before.agent[np.arange(len(before.central)), before.central]
        neighbour = self._neighbours(agent, _away(crowd, before.central))
        effects = self._config.effects(crowd, self.layout, neighbour)
        return Transition(
            reward=effects.reward[np.arange(len(before.central)), before.central],
            neighbour=neighbour,
            observation=effects.observation,
        )

    def _begin(self, crowd: Crowd, who: IntArray, agent: IntArray) -> Neighbourhood:
        central = (who == agent[:, None]).argmax(axis=1)
        away = _away(crowd, central)
        acting: BoolArray = away <= self._acting_distance(agent)[:, None]
        seen = self._config.look(crowd, self.layout, acting)
        here = Neighbourhood(who, central, self._neighbours(agent, away), acting, seen)
        self._here = here, crowd
        return here

    def _move(self, crowd: Crowd, before: Neighbourhood, action: FloatArray) -> None:
        """Move the acting agents; with a ``margin`` no others push them."""
        pushing = None
        if self._config.contacts:
            exact = self._config.margin is None
            pushing = np.ones_like(before.acting) if exact else before.acting
        position, velocity = crowd.position, crowd.velocity
        direction = np.where(before.acting, thrust(action), 0.0)
        crowd.move(direction, half_width=self.layout.half_width, pushing=pushing)
        crowd.position = np.where(before.acting, crowd.position, position)
        crowd.velocity = np.where(before.acting, crowd.velocity, velocity)

    def _neighbours(self, agent: IntArray, away: Array) -> BoolArray:
        """Mask of the one-hop neighbours of the central agents, shape (S, W).

        Args:
            agent: Shape (S,).
            away: Distances from them, shape (S, W).
        """
        near: BoolArray = away <= self.layout.traits.sight[0, agent][:, None]
        return near

    def _acting_distance(self, agent: IntArray) -> Array:
        """Distance from the central agent up to which others act, shape (S,)."""
        sight: Array = self.layout.traits.sight[0, agent]
        if self._config.margin is not None:
            return 2 * (self._config.margin + sight)
        return sight + self._sight + 2 * self._moved

    def _reach(self, agent: IntArray) -> float:
        """Distance from the central agent up to which agents matter."""
        pushes = self._config.contacts and self._config.margin is None
        pushed = self._touch + CONTACT_REACH if pushes else 0.0
        return self._farthest(agent) + max(self._sight, self._touch, pushed)

    def _food_reach(self, agent: IntArray) -> float:
        """Distance from the central agent up to which food matters."""
        return self._farthest(agent) + max(self._config.limit, self._touch + FOOD.size)

    def _farthest(self, agent: IntArray) -> float:
        """Distance up to which observations matter: of acting agents, or of next neighbours."""
        acting = float(self._acting_distance(agent).max())
        return max(acting, float(self.layout.traits.sight[0, agent].max()) + self._moved)


def _away(crowd: Crowd, central: IntArray) -> Array:
    """Distances of all agents from the central ones, shape (S, W)."""
    centre = crowd.position[:, np.arange(len(central)), central]
    return length(crowd.position - centre[..., None])


def _taken(values: Array, index: IntArray) -> Array:
    """Entries by index, NaN for -1, shape (2, S, widest)."""
    taken = np.take_along_axis(values, index[None], axis=2)
    return np.where(index >= 0, taken, np.nan)
