"""A table's rows on the device that computes, of which it gathers minibatches."""

import numpy as np
import torch

from fullrank.common.types import IntArray
from fullrank.networks.fused.cuda import DeviceRows, sent
from fullrank.replay.table import TableReader

CHUNK_BYTES = 2**26
"""Rows copied at a time, bytes."""


def fits(table: TableReader, device: torch.device) -> bool:
    """Return whether the device has room for a table, and as much again for the computation."""
    free, _ = torch.cuda.mem_get_info(device)
    return 2 * 4 * table.capacity * table.row_size <= free


class Mirror:
    """Copies each row once, when a minibatch is gathered after it was appended.

    Args:
        table: Its rows are never replaced by others, or the mirror is made anew.
        device: Device of the mirror.
    """

    def __init__(self, table: TableReader, device: torch.device) -> None:
        self._table, self._head = table, table.tail
        self._rows = torch.empty(table.capacity, table.row_size, device=device)

    def gather(self, positions: IntArray) -> DeviceRows:
        """Return the rows at ``positions`` on the device, as ``TableReader.gather`` does."""
        head, step = self._table.head, max(CHUNK_BYTES // (4 * self._table.row_size), 1)
        for first in range(max(self._head, self._table.tail), head, step):
            added = np.arange(first, min(first + step, head))
            rows = torch.from_numpy(self._table.gather(added))
            self._rows.index_copy_(0, self._slots(added), sent(rows, self._rows.device))
        self._head = head
        return DeviceRows(self._rows.index_select(0, self._slots(positions)))

    def _slots(self, positions: IntArray) -> torch.Tensor:
        return sent(torch.from_numpy(positions % len(self._rows)), self._rows.device)
