"""The Ising model [DARL1N], Sec. VI-A, after the mean-field tasks of [Yang18]: aligned spins pay.

M agents on a square torus set their own spins; each earns half the sum over its four neighbours of
the product of the spins, of value -1 and 1, after all have moved. A spin points down where the
first entry of the action is at most one half. Nothing is random after the start, and there is no
temperature. The most that a step pays is 2 M.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from fullrank.common.types import Array, BoolArray, FloatArray, IntArray
from fullrank.environments.base import AgentSpec, Discrete, register, require_horizon
from fullrank.environments.lattice.environment import LatticeEnvironment, seen, side_of, torus
from fullrank.environments.lattice.neighbourhood import LatticeNeighbourhood, LatticePatch

UP_OR_DOWN = Discrete(2, relaxed=True)


@register("ising")
@dataclass(frozen=True, slots=True, kw_only=True)
class Ising:
    """M spins on a square torus, M the square of at least 3; 9 by default."""

    horizon: int = 25
    """Steps of an episode."""
    extra_step: bool = False
    """Add one step to an episode, as the authors' evaluation does: at most 52 M, not 50 M."""
    variant: Literal["darl1n"] = "darl1n"
    """Source of dynamics and rewards: the authors of [DARL1N]."""

    def __post_init__(self) -> None:
        require_horizon(self.horizon)

    def make(self, *, agents: int, copies: int) -> "Spins":
        """Make the copies of the task; see ``EnvironmentConfig.make``."""
        side = side_of(agents or 9, task="ising", least=3)
        return Spins(side, copies=copies, horizon=self.horizon + self.extra_step)

    def neighbourhood(self, *, agents: int) -> LatticeNeighbourhood:
        """See ``NeighbourhoodConfig.neighbourhood``; agents two steps away act."""
        side = side_of(agents or 9, task="ising", least=3)
        return LatticeNeighbourhood(
            specs(side),
            torus(side),
            bits=1,
            hops=2,
            advance=turn,
            team=lambda copies: self.make(agents=agents, copies=copies),
            horizon=self.horizon + self.extra_step,
        )


class Spins(LatticeEnvironment):
    """E copies of the task; the state is 1 bit an agent, set where its spin points up."""

    def __init__(self, side: int, *, copies: int, horizon: int) -> None:
        super().__init__(specs(side), torus(side), bits=1, copies=copies, horizon=horizon)

    def begin(self, copy: int, seed: int) -> None:
        """Do nothing: the spins are the whole state."""

    def advance(self, action: FloatArray) -> Array:
        """Set all spins at once."""
        self.state = turned(action)
        return aligned(self.state, self.hood)


def specs(side: int) -> list[AgentSpec]:
    """The agents' interfaces."""
    return [
        AgentSpec(name=f"spin_{i}", observation_size=5, action=UP_OR_DOWN)
        for i in range(side * side)
    ]


def turn(
    part: LatticePatch, action: FloatArray, generator: np.random.Generator
) -> tuple[BoolArray, Array]:
    """A step of a part of the lattice, without draws."""
    state = turned(action)
    return state, aligned(state, part.hood)


def turned(action: FloatArray) -> BoolArray:
    """Spins, shape (E, M, 1), set by actions of shape (E, M, 2)."""
    up: BoolArray = action[..., :1] > 0.5
    return up


def aligned(state: BoolArray, hood: IntArray) -> Array:
    """Half the sum of the products with the neighbours' spins, shape (E, M)."""
    spins = np.where(state[..., 0], 1.0, -1.0)
    around = seen(spins, hood, absent=0.0)
    reward: Array = 0.5 * around[..., 0] * around[..., 1:].sum(axis=-1)
    return reward
