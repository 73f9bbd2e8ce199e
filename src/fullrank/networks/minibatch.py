"""A minibatch of packed transitions turned so that a column is one transition.

All critics of all agents read the same joint input, so it is made once. The number of columns is
padded with zeros to a multiple of 16; padded columns weigh nothing.
"""

import torch
from torch import Tensor

from fullrank.networks.mlp import aligned
from fullrank.replay.layout import Layout
from fullrank.types import FloatArray


class Minibatch:
    """Preallocated buffers for B transitions; D = entries of all observations and all actions.

    Attributes:
        size: B.
        columns: B padded.
        joint: (observations, actions, ones), shape (D + 1, columns).
        joint_rows: Its transpose, contiguous.
        next_joint: (next observations, target actions, ones); the caller writes the actions.
        reward: Shape (M, columns).
        continues: 1 where the agent did not reach a terminal state, shape (M, columns).
        alive: 1 where the agent acted, shape (M, columns).
        weight: alive_i / number of transitions in which agent i acted, shape (M, columns).
    """

    def __init__(self, layout: Layout, *, size: int, device: torch.device) -> None:
        self._layout = layout
        self.size, self.columns = size, aligned(size)
        inputs = layout.action.stop + 1
        self.joint = torch.zeros(inputs, self.columns, device=device)
        self.next_joint = torch.zeros(inputs, self.columns, device=device)
        self.next_joint[-1] = 1.0
        self.joint_rows = torch.zeros(self.columns, inputs, device=device)
        self.joint_rows[:, -1] = 1.0
        self._next_rows = torch.zeros(self.columns, layout.observation.stop, device=device)
        per_agent = torch.zeros(4, layout.agents, self.columns, device=device)
        self.reward, self.continues, self.alive, self.weight = per_agent

    def load(self, rows: FloatArray) -> None:
        """Take over packed transitions, shape (size, row_size)."""
        layout, size = self._layout, self.size
        batch = torch.from_numpy(rows).to(self.joint.device)
        self.joint_rows[:size, :-1] = batch[:, : layout.action.stop]
        self.joint.copy_(self.joint_rows.t())  # both dense: the fast transposition
        self._next_rows[:size] = batch[:, layout.next_observation]
        self.next_joint[: layout.observation.stop].copy_(self._next_rows.t())
        self.reward[:, :size] = batch[:, layout.reward].t()
        self.continues[:, :size] = 1.0 - batch[:, layout.terminated].t()
        self.alive[:, :size] = batch[:, layout.alive].t()
        acted = self.alive.sum(1, keepdim=True).clamp_min_(1.0)  # integers: exact in any order
        torch.div(self.alive, acted, out=self.weight)


def gather(joint: Tensor, rows: Tensor) -> Tensor:
    """Rows of a joint input, shape (units, n, columns), by index of shape (units, n)."""
    return joint.index_select(0, rows.flatten()).view(*rows.shape, -1)
