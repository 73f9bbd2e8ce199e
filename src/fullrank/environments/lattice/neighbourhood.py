"""Neighbour interaction on a lattice: the part within some steps of one agent."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from fullrank.common.types import Array, BoolArray, FloatArray, IntArray
from fullrank.environments.base import AgentSpec
from fullrank.environments.lattice.environment import ABSENT, LatticeEnvironment, observe, within
from fullrank.environments.neighbourhood import Neighbourhood, Transition


class LatticePatch(NamedTuple):
    """The lattice around one agent in each of S samples, in W slots."""

    state: BoolArray
    """Shape (S, W, z)."""
    agent: IntArray
    """The agent in each slot, ``ABSENT`` in empty ones, shape (S, W)."""
    hood: IntArray
    """Slots of each agent and its neighbours, ``ABSENT`` where there is none or it lies outside,
    shape (S, W, n)."""


Advance: TypeAlias = Callable[
    [LatticePatch, FloatArray, np.random.Generator], tuple[BoolArray, Array]
]
"""Maps actions, shape (S, W, actions), to the next state and the rewards, shape (S, W)."""


class LatticeNeighbourhood:
    """See ``NeighbourhoodWorld``.

    Args:
        agents: M of them.
        hood: Each agent and its neighbours, own index first, shape (M, n).
        bits: z, bits of each agent.
        hops: Distance in steps up to which agents act: all on which the next observations of the
            central agent's neighbours depend.
        advance: The transition function.
        team: Makes E copies of the whole lattice.
        horizon: Steps of an episode.
    """

    def __init__(
        self,
        agents: Sequence[AgentSpec],
        hood: IntArray,
        *,
        bits: int,
        hops: int,
        advance: Advance,
        team: Callable[[int], LatticeEnvironment],
        horizon: int,
    ) -> None:
        self.agents = tuple(agents)
        self.neighbours_seen = hood.shape[1] - 1
        self.team, self.horizon = team, horizon
        self._bits, self._advance = bits, advance
        self._who = within(hood, hops + 1)
        self._hood = np.stack([_slots(hood, row) for row in self._who])
        self._acting = _members(within(hood, hops), self._who)
        self._neighbour = _members(hood, self._who)
        self._begun: tuple[Neighbourhood, LatticePatch, np.random.Generator] | None = None

    def actors(self, agent: int) -> Sequence[int]:
        """List the acting neighbours; see ``NeighbourhoodWorld.actors``."""
        acting: list[int] = self._who[agent][self._acting[agent]].tolist()
        return acting

    def start(self, agent: IntArray, *, generator: np.random.Generator) -> Neighbourhood:
        """Draw the surroundings; see ``NeighbourhoodWorld.start``."""
        who = self._who[agent]
        state = generator.random((*who.shape, self._bits)) < 0.5
        return self._begin(state, agent, generator)

    def around(
        self,
        team: LatticeEnvironment,
        agent: IntArray,
        copy: IntArray,
        *,
        generator: np.random.Generator,
    ) -> Neighbourhood:
        """Take the surroundings from a team; see ``NeighbourhoodWorld.around``."""
        state = team.state[copy[:, None], self._who[agent]]
        return self._begin(state, agent, generator)

    def step(self, action: FloatArray) -> Transition:
        """Step the neighbourhoods; see ``NeighbourhoodWorld.step``."""
        assert self._begun is not None, "start comes first"
        before, part, generator = self._begun
        self._begun = None
        state, reward = self._advance(part, action * before.acting[..., None], generator)
        state = np.where(before.acting[..., None], state, part.state)
        return Transition(
            reward=reward[np.arange(len(before.central)), before.central],
            neighbour=before.neighbour,
            observation=observe(state, part.hood) * before.neighbour[..., None],
        )

    def _begin(
        self, state: BoolArray, agent: IntArray, generator: np.random.Generator
    ) -> Neighbourhood:
        who = self._who[agent]
        part = LatticePatch(state & (who != ABSENT)[..., None], who, self._hood[agent])
        here = Neighbourhood(
            agent=who,
            central=(who == agent[:, None]).argmax(axis=1),
            neighbour=self._neighbour[agent],
            acting=self._acting[agent],
            observation=observe(part.state, part.hood) * self._acting[agent][..., None],
        )
        self._begun = here, part, generator
        return here


def _slots(hood: IntArray, row: IntArray) -> IntArray:
    """The neighbourhoods of the agents of a row, as slots of it, shape (W, n)."""
    present = row[row != ABSENT]
    wanted = np.where(row[:, None] == ABSENT, ABSENT, hood[row])
    slot = np.searchsorted(present, wanted).clip(max=len(present) - 1)
    return np.where((wanted != ABSENT) & (present[slot] == wanted), slot, ABSENT)


def _members(table: IntArray, who: IntArray) -> BoolArray:
    """Mask of the agents of each row of ``who`` that are in that row of ``table``, shape (M, W)."""
    pairs = zip(table, who, strict=True)
    return np.stack([(row != ABSENT) & np.isin(row, members) for members, row in pairs])
