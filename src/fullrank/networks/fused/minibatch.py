"""Minibatch of the hand-written updates of MADDPG: its joint input, laid out for products.

All critics read the same joint input of a minibatch, so it is built once. It lies in memory as
transitions do, row by row; products read it transposed at no cost. A block is a run of transitions
short enough that intermediate results stay in cache; a column is a transition. Its columns are
padded with zeros to a multiple of 16; padding has weight 0.
"""

import torch
from torch import Tensor

from fullrank.common.rows import Rows
from fullrank.networks.fused.cuda import stays_on, tensor_of
from fullrank.networks.fused.products import total
from fullrank.networks.parameters import ALIGNMENT, aligned
from fullrank.replay.layout import Layout

BLOCK_COLUMNS = {"cpu": 256, "cuda": 2**20}
"""Maximum number of transitions in a block; wider networks raise it to their width."""

SHORT = 256
"""Up to this many columns a row needs no odd multiple of 16: it is too short for cache conflicts.
"""


def block_columns(size: int, *, hidden: int, device: torch.device) -> int:
    """Return the columns of each block into which ``size`` transitions are cut."""
    count = -(-size // max(hidden, BLOCK_COLUMNS[device.type]))
    columns = -(-size // (count * ALIGNMENT)) * ALIGNMENT
    return columns if columns <= SHORT else aligned(columns)


class ColumnBlock:
    """Preallocated buffers for one block; D = entries of all observations and all actions.

    Attributes:
        joint_rows: (observations, actions, ones), shape (columns, D + 1), with aligned rows.
        joint: View of its transpose, shape (D + 1, columns).
        next_rows: (next observations, target actions, ones); the caller writes the actions.
        next_joint: View of its transpose.
        reward: Rewards, shape (M, 1, columns), like the following attributes.
        continues: 1 where the agent did not reach a terminal state, else 0.
        weight: Weight of the transition; 0 where the agent did not act.
        acts_next: 1 where the agent acted and did not reach a terminal state, or where it
            comes back, else 0.
    """

    def __init__(self, layout: Layout, facts: Tensor, *, device: torch.device) -> None:
        self.reward, self.continues, self.weight, self.acts_next = facts.unsqueeze(2)
        self._joint, self._next = slice(0, layout.action.stop), layout.next_observation
        inputs, columns = layout.action.stop + 1, facts.shape[2]
        padded = torch.zeros(2, columns, aligned(inputs), device=device)
        padded[:, :, inputs - 1] = 1.0
        self.joint_rows, self.next_rows = padded[:, :, :inputs]
        self.joint, self.next_joint = self.joint_rows.t(), self.next_rows.t()
        self._observed = self.next_rows[:, layout.observation]

    def load(self, rows: Tensor) -> None:
        """Copy the joint parts of packed transitions, shape (<= columns, row_size)."""
        size = rows.shape[0]
        self.joint_rows[:size, :-1] = rows[:, self._joint]
        self._observed[:size] = rows[:, self._next]


class Minibatch:
    """Preallocated buffers for B transitions.

    Args:
        layout: Layout of a transition.
        size: B.
        hidden: Width of the networks.
        device: Device of the buffers.
        transition: Weight of a transition in which an agent acted; None: 1 / their number.

    Attributes:
        size: B.
        blocks: Blocks with equal numbers of columns.
        columns: Columns of one block.
        width: Columns of all blocks together.
    """

    def __init__(
        self,
        layout: Layout,
        size: int,
        *,
        hidden: int,
        device: torch.device,
        transition: float | None = None,
    ) -> None:
        self._layout, self._device, self.size = layout, device, size
        self._transition = transition
        self.columns = block_columns(size, hidden=hidden, device=device)
        starts = range(0, size, self.columns)
        self.width = self.columns * len(starts)
        self._packed = torch.empty(size, layout.row_size, device=device)
        facts = torch.zeros(4, layout.agents, self.width, device=device)
        self._facts = facts[:, :, :size]
        self.blocks = [
            ColumnBlock(layout, part, device=device) for part in facts.chunk(len(starts), dim=2)
        ]

    def put(self, rows: Rows) -> None:
        """Take packed transitions, shape (size, row_size); on CUDA copy them, for graphs."""
        if stays_on(self._device):
            self._packed.copy_(tensor_of(rows))
        else:
            self._packed = tensor_of(rows)

    def load(self) -> None:
        """Spread the transitions over the blocks."""
        batch = self._packed
        reward, continues, weight, acts_next = self._facts
        reward.copy_(batch[:, self._layout.reward].t())
        terminated = batch[:, self._layout.terminated].t()
        torch.sub(1.0, terminated, out=continues)
        weight.copy_(batch[:, self._layout.alive].t())
        torch.sub(weight, terminated, out=acts_next).abs_()
        if self._transition is None:
            weight.div_(total(weight)[:, None].clamp_min_(1.0))
        else:
            weight.mul_(self._transition)
        for start, block in zip(range(0, self.size, self.columns), self.blocks, strict=True):
            block.load(batch[start : start + self.columns])
