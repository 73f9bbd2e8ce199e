"""Collection on the device of the policies, from which rows are copied once a collection.

Worlds, policies, exploration noise and rows lie there; starts are drawn on the host, as for every
device, and uploaded. A step is one computation on fixed buffers, on CUDA a graph.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fullrank.algorithms.roles import Player
from fullrank.common.types import Array, BoolArray, IntArray
from fullrank.environments.base import Discrete, Environment
from fullrank.environments.capabilities import Uploadable
from fullrank.networks.fused.cuda import Graphs, HostCopy, nothing_drawn
from fullrank.networks.heads import MemorylessActor
from fullrank.replay.layout import Layout
from fullrank.training.episodes import team_returns
from fullrank.training.rollouts import NEAR, Collected, Rollout, untold


def plays_there(environment: Environment, player: Player) -> bool:
    """Return whether a rollout plays on the device of the policies: on CUDA, where both can."""
    if not isinstance(environment, Uploadable) or not isinstance(player, MemorylessActor):
        return False
    discrete = all(isinstance(agent.action, Discrete) for agent in environment.agents)
    return discrete and player.device.type == "cuda"


class DeviceRollout(Rollout):
    """A rollout on the device of the policies; its checkpoints are those of any rollout.

    Args:
        environment: Environment of the episodes, of which copies are made on the device.
        player: Selects the actions, which are discrete.
        layout: Layout of one transition.
        seed: Fixes the initial states.
        stagger: As for any rollout.
    """

    def __init__(
        self,
        environment: Uploadable,
        player: MemorylessActor,
        layout: Layout,
        *,
        seed: int,
        stagger: int = 0,
    ) -> None:
        device = player.device
        self._world = world = environment.on(partial(torch.tensor, device=device))
        super().__init__(world, player, layout, seed=seed, stagger=stagger)
        self._actor, self._horizon, self._near = player, environment.horizon, NEAR
        self._noise = torch.zeros(world.copies * sum(layout.action_sizes), device=device)
        self._row = torch.zeros(world.copies, layout.row_size, device=device)
        self._row[:, layout.alive] = 1.0
        self._live = torch.tensor(layout.live, device=device)
        self._graphs = Graphs(device)

    def collect(
        self, steps: int, iteration: int, *, told: Callable[[int], None] = untold
    ) -> Collected:
        """Step every copy ``steps`` times, then copy the transitions; see ``Rollout.collect``."""
        self._spread()
        copies, device, paid = self._environment.copies, self._actor.device, self._world.reward
        noise = self._actor.noise(copies, iteration=iteration, steps=steps)
        rows = torch.empty(steps, *self._row.shape, device=device)
        rewards = torch.empty(steps, *paid.shape, dtype=paid.dtype, device=device)
        begun, ended = list[IntArray](), list[BoolArray]()
        for step in range(steps):
            begun.append(self._restart())
            self._noise.copy_(noise[step])
            self._graphs.run("step", self._step, draw=nothing_drawn, check_cancelled=lambda: None)
            rows[step], rewards[step] = self._row, paid
            self._episodes.ended = self._steps + 1 >= self._horizon
            ended.append(self._episodes.ended)
            self._count()
        arrived = HostCopy(rows)
        earned = self._earned(HostCopy(rewards).array(), begun, ended)
        packed = arrived.array()
        self._keep(packed[:, :, self._layout.action].copy())
        after = packed[-1][:, self._layout.next_observation]
        self._episodes.observation = self._layout.whole(after.copy())
        told(steps * copies)
        returns, sides = team_returns(self._environment, earned)
        return Collected(packed.reshape(steps * copies, -1), returns, sides)

    def _restart(self) -> IntArray:
        """Start the episodes of the copies that wait; returns these copies."""
        waiting = self._episodes.waiting()
        if waiting.size:
            self._world.start(self._seeds(waiting), waiting.tolist())
        return waiting

    def _step(self, draw: Callable[[], Tensor], check_cancelled: Callable[[], None]) -> None:
        """Act and step once, and pack the transitions, all on the device."""
        row, layout, world = self._row, self._layout, self._world
        row[:, layout.observation] = self._seen()
        action = self._actor.explore(world.observation.t(), self._noise)
        row[:, layout.action] = action.t()
        world.advance(action)
        row[:, layout.reward] = world.reward.t()
        row[:, layout.next_observation] = self._seen()

    def _seen(self) -> Tensor:
        """Return the observations without the entries that are always zero."""
        seen: Tensor = self._world.observation.index_select(0, self._live)
        return seen.t()

    def _earned(
        self, rewards: NDArray[Any], begun: Sequence[IntArray], ended: Sequence[BoolArray]
    ) -> Array:
        """Add up the rewards of each step, shape (steps, M, E), as ``Episodes`` does.

        Returns:
            Returns of the episodes that ended, in order, shape (episodes, M).
        """
        earned, finished = self._episodes.earned, []
        for reward, first, last in zip(rewards, begun, ended, strict=True):
            earned[first] = 0.0
            earned += reward.T
            finished.append(earned[last])
        return np.concatenate(finished)
