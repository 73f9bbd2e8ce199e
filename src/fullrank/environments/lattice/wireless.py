"""Multi-access wireless communication [DARL1N], Sec. VI-A, a task of [Qu20]: share access points.

g x g users; at the corners of their cells lie (g + 1) x (g + 1) access points, each of which a user
reaches the four of its own cell. A user holds z bits, packets by ascending deadline. A user with a
packet that sends to access point y succeeds with probability q_y, unless one of its (up to eight)
neighbours that has a packet sends to the same one; its earliest packet leaves and it earns 1. Then
its bits shift by one, which drops a packet that is too late, and a packet arrives with probability
one half. q is drawn once for a world, uniformly from [0, 1].

As in the authors' code, users act in index order, so that earlier users have had their arrivals;
``simultaneous`` lets all act on the state before the step. Arrival rates, which that code draws and
does not use, do not exist here. There, an action is a number that is cut into five choices; here it
is one of five: nothing, and the cell's upper left, upper right,
lower left and lower right corner.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np

from fullrank.common.errors import ConfigError
from fullrank.common.seeding import stream
from fullrank.common.types import Array, BoolArray, FloatArray, IntArray
from fullrank.environments.base import AgentSpec, Discrete, register, require_horizon
from fullrank.environments.lattice.environment import LatticeEnvironment, king, seen, side_of
from fullrank.environments.lattice.neighbourhood import LatticeNeighbourhood, LatticePatch

CHOICES = Discrete(5)
SILENT = -1
"""Access point of a user that does not send."""
ARRIVAL = 0.5
"""Probability that a packet arrives."""


@register("wireless")
@dataclass(frozen=True, slots=True, kw_only=True)
class Wireless:
    """M users on a square grid, any square; 9 by default."""

    horizon: int = 25
    """Steps of an episode."""
    deadline: int = 2
    """z, steps that a packet can wait; at least 1."""
    rate_seed: int = 0
    """Seed of q, the success probabilities of the access points."""
    simultaneous: bool = False
    """All users act on the state before the step, as in [Qu20]; otherwise in index order, each on
    the state that the earlier ones left, as in the authors' code."""
    variant: Literal["darl1n"] = "darl1n"
    """Source of dynamics and rewards: the authors of [DARL1N]."""

    def __post_init__(self) -> None:
        require_horizon(self.horizon)
        if self.deadline < 1:
            raise ConfigError(f"environment.deadline must be at least 1: {self.deadline}")

    def make(self, *, agents: int, copies: int) -> "Uplink":
        """Make the copies of the task; see ``EnvironmentConfig.make``."""
        side = side_of(agents or 9, task="wireless", least=1)
        return Uplink(side, self, copies=copies)

    def neighbourhood(self, *, agents: int) -> LatticeNeighbourhood:
        """See ``NeighbourhoodConfig.neighbourhood``; agents three steps away act.

        Raises:
            ConfigError: Users act in order, so that each depends on all earlier ones.
        """
        if not self.simultaneous:
            raise ConfigError(
                "wireless: users that act in order depend on all earlier ones; local "
                "interaction needs environment.simultaneous = true"
            )
        side = side_of(agents or 9, task="wireless", least=1)
        advance = partial(transmit, corners=reachable(side), rates=self.rates(side))
        return LatticeNeighbourhood(
            specs(side, self.deadline),
            king(side),
            bits=self.deadline,
            hops=3,
            advance=advance,
            team=lambda copies: self.make(agents=agents, copies=copies),
            horizon=self.horizon,
        )

    def rates(self, side: int) -> Array:
        """Success probabilities q of the access points, row by row, shape ((g + 1)^2,)."""
        return stream(self.rate_seed, "access_rate").random((side + 1) ** 2)


class Uplink(LatticeEnvironment):
    """E copies of the task; the state has z bits a user, set where there is a packet.

    Attributes:
        rates: q, shape ((g + 1)^2,).
        chances: Draws of each copy's next steps: numbers in [0, 1) for each user's success and
            arrival, shape (M, 2).
    """

    def __init__(self, side: int, config: Wireless, *, copies: int) -> None:
        super().__init__(
            specs(side, config.deadline),
            king(side),
            bits=config.deadline,
            copies=copies,
            horizon=config.horizon,
        )
        self.rates = config.rates(side)
        self.chances: list[Iterator[Array]] = [iter(())] * copies
        self._reachable = reachable(side)
        all_agents = np.arange(side * side)
        self._turns = [all_agents] if config.simultaneous else turns(side)

    def begin(self, copy: int, seed: int) -> None:
        """Start the stream of successes and arrivals."""
        self.chances[copy] = draws(stream(seed, "wireless"), len(self.agents))

    def advance(self, action: FloatArray) -> Array:
        """Advance by groups whose users are no neighbours, or all act on the previous state."""
        point = chosen(action, self._reachable)
        chance = np.stack([next(draw) for draw in self.chances])
        reward = np.empty(point.shape)
        for users in self._turns:
            sends = sent(self.state, point, self.hood)[:, users]
            success = sends & (chance[:, users, 0] < self.rates[point[:, users]])
            reward[:, users] = success
            arrived = chance[:, users, 1] < ARRIVAL
            self.state[:, users] = after(self.state[:, users], success, arrived)
        return reward


def specs(side: int, deadline: int) -> list[AgentSpec]:
    """The users' interfaces."""
    return [
        AgentSpec(name=f"user_{i}", observation_size=9 * deadline, action=CHOICES)
        for i in range(side * side)
    ]


def transmit(
    part: LatticePatch,
    action: FloatArray,
    generator: np.random.Generator,
    *,
    corners: IntArray,
    rates: Array,
) -> tuple[BoolArray, Array]:
    """A simultaneous step of a part of the lattice.

    Args:
        part: S parts of W slots.
        action: Shape (S, W, 5).
        generator: Two numbers are drawn for each slot.
        corners: Access points of the users, shape (M, 4).
        rates: q, shape ((g + 1)^2,).
    """
    point = chosen(action, corners[part.agent])
    chance = generator.random((*part.agent.shape, 2))
    success = sent(part.state, point, part.hood) & (chance[..., 0] < rates[point])
    return after(part.state, success, chance[..., 1] < ARRIVAL), success.astype(np.float64)


def draws(generator: np.random.Generator, users: int) -> Iterator[Array]:
    """Yield, for ever, two numbers in [0, 1) for each user, shape (M, 2)."""
    while True:
        yield generator.random((users, 2))


def reachable(side: int) -> IntArray:
    """The access points at the corners of each user's cell, row by row, shape (M, 4)."""
    row, column = np.divmod(np.arange(side * side), side)
    corner = row * (side + 1) + column
    points: IntArray = corner[:, None] + np.array([0, 1, side + 1, side + 2])
    return points


def turns(side: int) -> list[IntArray]:
    """Users in groups whose members are no neighbours, in an order that respects the index.

    The neighbours of user (r, c) with lower indices, (r, c - 1) and those of row r - 1, have lower
    values of 2 r + c; so all users of one value can act together.
    """
    row, column = np.divmod(np.arange(side * side), side)
    wave = 2 * row + column
    return [np.flatnonzero(wave == turn) for turn in range(int(wave.max()) + 1)]


def chosen(action: FloatArray, corners: IntArray) -> IntArray:
    """The access point that each user chooses, or ``SILENT``.

    Args:
        action: Shape (E, M, 5).
        corners: Shape (M, 4) or (E, M, 4).

    Returns:
        Shape (E, M).
    """
    choice = action.argmax(axis=-1)
    options = np.broadcast_to(corners, (*choice.shape, 4))
    picked = np.take_along_axis(options, np.maximum(choice - 1, 0)[..., None], axis=-1)[..., 0]
    point: IntArray = np.where(choice > 0, picked, SILENT)
    return point


def sent(packets: BoolArray, point: IntArray, hood: IntArray) -> BoolArray:
    """Mask of users whose packet collides with no neighbour's, shape (E, M).

    Args:
        packets: Shape (E, M, z).
        point: Chosen access points, shape (E, M).
        hood: Shape (M, n) or (E, M, n).
    """
    claim = np.where(packets.any(axis=-1), point, SILENT)
    claims = seen(claim, hood, absent=SILENT)
    alone = (claims[..., 1:] != claims[..., :1]).all(axis=-1)
    result: BoolArray = alone & (claim != SILENT)
    return result


def after(packets: BoolArray, success: BoolArray, arrived: BoolArray) -> BoolArray:
    """Drop the earliest packet on success, shift all bits, and add new packets last.

    Args:
        packets: Shape (E, k, z).
        success: Shape (E, k).
        arrived: Shape (E, k).

    Returns:
        Shape (E, k, z).
    """
    earliest = packets & (np.cumsum(packets, axis=-1) == 1)
    left = packets & ~(earliest & success[..., None])
    return np.concatenate([left[..., 1:], arrived[..., None]], axis=-1)
