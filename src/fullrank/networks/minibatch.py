"""A minibatch of packed transitions turned so that a column is one transition.

All critics of all agents read the same joint input, so it is made once. Columns are
padded with zeros to an odd multiple of 16; they weigh nothing.
"""

import numpy as np
import torch

from fullrank.networks.mlp import aligned
from fullrank.replay.layout import Layout
from fullrank.types import FloatArray


class Minibatch:
    """Preallocated buffers for B transitions; D = entries of all observations and all actions.

    Attributes:
        size: B.
        columns: B padded.
        joint: (observations, actions, ones), shape (D + 1, columns).
        joint_rows: Its transpose, rows aligned.
        next_joint: (next observations, target actions, ones); the caller writes the actions.
        per_agent: Reward; 1 where the agent did not reach a terminal state, else 0; weight, which
            is 1 / number of transitions in which the agent acted, where it did, else 0. Shape
            (M, 3, 1, columns).
        acts_next: 1 where the agent acted and did not reach a terminal state, (M, 1, columns).
    """

    def __init__(self, layout: Layout, *, size: int, device: torch.device) -> None:
        self._layout = layout
        self.size, self.columns = size, aligned(size)
        inputs = layout.action.stop + 1
        self.joint = torch.zeros(inputs, self.columns, device=device)
        self.next_joint = torch.zeros(inputs, self.columns, device=device)
        self.next_joint[-1] = 1.0
        padded = torch.zeros(self.columns, aligned(inputs), device=device)
        self.joint_rows = padded[:, :inputs]
        self.joint_rows[:, -1] = 1.0
        self.per_agent = torch.zeros(layout.agents, 3, 1, self.columns, device=device)
        self._reward, self._continues, self._weight = self.per_agent[:, :, 0].unbind(1)
        self.acts_next = torch.zeros(layout.agents, 1, self.columns, device=device)

    def load(self, rows: FloatArray) -> None:
        """Take over packed transitions, shape (size, row_size)."""
        layout, size = self._layout, self.size
        batch = torch.from_numpy(np.require(rows, requirements="W")).to(self.joint.device)
        self.joint_rows[:size, :-1] = batch[:, : layout.action.stop]
        self.joint.copy_(self.joint_rows.t())  # both dense: the fast transposition
        self.next_joint[: layout.observation.stop, :size] = batch[:, layout.next_observation].t()
        self._reward[:, :size] = batch[:, layout.reward].t()
        self._continues[:, :size] = 1.0 - batch[:, layout.terminated].t()
        acted = batch[:, layout.alive].t()
        self._weight[:, :size] = acted / acted.sum(1, keepdim=True).clamp_min(1.0)
        torch.mul(acted, self._continues[:, :size], out=self.acts_next[:, 0, :size])
