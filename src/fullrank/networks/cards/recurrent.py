"""Passes of ``RecurrentAgent`` on CUDA, of which one launch computes all steps of a chunk."""

from torch import Tensor

from fullrank.networks.fused.recurrent import CHUNK, Chunk, RecurrentUnits

SIZES = (32, 16)
"""Widths of tiles, of which one divides every width."""


class RecurrentUnitsOnCards(RecurrentUnits):
    """``RecurrentUnits`` with the steps in kernels, whose sums have one order."""

    def _recur(self, own: Chunk, steps: int) -> None:
        from fullrank.networks.cards.recurrent_kernels import ROWS, recur

        weights, rows = self._weights, own.states.shape[2]
        recur[(-(-rows // ROWS), 2)](
            *(own.below, own.states, own.change, own.gates),
            *(weights.gates, weights.recurrent, weights.gate_bias, weights.gates.stride(0)),
            *(steps, rows, self._rows),
            CHUNK=CHUNK,
            WIDE=self._width,
            SIZE=self._size(),
            ROWS=ROWS,
        )

    def _recur_back(self, own: Chunk, above: Tensor, steps: int) -> None:
        from fullrank.networks.cards.recurrent_kernels import ROWS, recur_back

        rows = above.shape[1]
        carry = self._carry[0, :rows]
        above[steps - 1] += carry
        carry.zero_()
        recur_back[(-(-rows // ROWS),)](
            *(above, carry, own.change, own.gates, self._recurrent_back, steps, rows),
            WIDE=self._width,
            SIZE=self._size(),
            ROWS=ROWS,
        )

    def _size(self) -> int:
        return next(size for size in SIZES if self._width % size == 0)
