"""A minibatch of packed transitions turned so that a column is one transition, tile by tile.

All critics of all agents read the same joint input, so it is made once. A tile is a run of
transitions short enough that what is computed from it stays in cache. Its columns are padded with
zeros to an odd multiple of 16; they weigh nothing.
"""

import numpy as np
import torch
from torch import Tensor

from fullrank.networks.mlp import aligned
from fullrank.replay.layout import Layout
from fullrank.types import FloatArray

TILE = {"cpu": 208, "cuda": 2**20}
"""Transitions of a tile at most, unless the networks are wider than that."""


class Tile:
    """Preallocated buffers for some transitions; D = entries of all observations and all actions.

    Attributes:
        span: Its columns within the minibatch's.
        joint: (observations, actions, ones), shape (D + 1, columns).
        joint_rows: Its transpose, rows aligned.
        next_joint: (next observations, target actions, ones); the caller writes the actions.
        per_agent: Reward; 1 where the agent did not reach a terminal state, else 0; weight, which
            is 1 / number of transitions in which the agent acted, where it did, else 0. Shape
            (M, 3, 1, columns).
        acts_next: 1 where the agent acted and did not reach a terminal state, (M, 1, columns).
    """

    def __init__(self, layout: Layout, span: slice, *, device: torch.device) -> None:
        self.span = span
        self._joint, self._next = slice(0, layout.action.stop), layout.next_observation
        self._columns = (layout.reward, layout.terminated, layout.alive)
        inputs, columns = layout.action.stop + 1, span.stop - span.start
        self.joint = torch.zeros(inputs, columns, device=device)
        self.next_joint = torch.zeros(inputs, columns, device=device)
        self.next_joint[-1] = 1.0
        padded = torch.zeros(columns, aligned(inputs), device=device)
        self.joint_rows = padded[:, :inputs]
        self.joint_rows[:, -1] = 1.0
        self._observed = self.next_joint[: layout.observation.stop]
        self.per_agent = torch.zeros(layout.agents, 3, 1, columns, device=device)
        self._reward, self._continues, self._weight = self.per_agent[:, :, 0].unbind(1)
        self.acts_next = torch.zeros(layout.agents, 1, columns, device=device)

    def load(self, rows: Tensor, weight: Tensor) -> None:
        """Take over packed transitions; ``weight``, shape (M, 1), is that of one of them."""
        size = len(rows)
        self.joint_rows[:size, :-1] = rows[:, self._joint]
        self.joint.copy_(self.joint_rows.t())
        self._observed[:, :size] = rows[:, self._next].t()
        reward, terminated, acted = (rows[:, part].t() for part in self._columns)
        self._reward[:, :size] = reward
        self._continues[:, :size] = 1.0 - terminated
        torch.mul(acted, weight, out=self._weight[:, :size])
        torch.mul(acted, self._continues[:, :size], out=self.acts_next[:, 0, :size])


class Minibatch:
    """Buffers for B transitions.

    Attributes:
        size: B.
        tiles: Of equal numbers of columns.
        columns: Of one tile.
        width: Columns of all tiles.
    """

    def __init__(self, layout: Layout, *, size: int, hidden: int, device: torch.device) -> None:
        self._layout, self._device, self.size = layout, device, size
        count = -(-size // max(hidden, TILE[device.type]))
        self.columns = aligned(-(-size // count))
        starts = range(0, size, self.columns)
        self.tiles = [
            Tile(layout, slice(start, start + self.columns), device=device) for start in starts
        ]
        self.width = self.columns * len(self.tiles)

    def load(self, rows: FloatArray) -> None:
        """Take over packed transitions, shape (size, row_size)."""
        batch = torch.from_numpy(np.require(rows, requirements="W")).to(self._device)
        weight = 1.0 / batch[:, self._layout.alive].sum(0).clamp_min_(1.0).unsqueeze(1)
        for tile in self.tiles:
            tile.load(batch[tile.span], weight)
