"""Buffers of one chunk of time steps of ``RecurrentUnits``, and their views by step."""

from typing import NamedTuple

import torch
from torch import Tensor

from fullrank.networks.fused.packing import width_of

CHUNK = 16
"""Number of time steps over which a product sums."""


class Chunk(NamedTuple):
    """Values of one chunk for the backward pass, for some units; H wide."""

    inputs: Tensor
    """Inputs of the first layer and a one, (units, 16, R, I)."""
    below: Tensor
    """Outputs of the first layers of both networks, (2, units, 16, R, H)."""
    states: Tensor
    """States of both networks before each step and after the last, (2, 17, units x R, H)."""
    change: Tensor
    """k - s of the online network, (16, units x R, H)."""
    gates: Tensor
    """[s | r | z | 2 (V_n h + c_n)] of the online network, and at last the gradients at
    [2 b | a | 2 (V_n h + c_n)], (16, units x R, 4 H)."""
    forward: list[tuple[Tensor, ...]]
    """Outputs of the first layers, states before and after, k - s and the gates of each step."""
    backward: list[tuple[Tensor, ...]]
    """k - s, and of the gates [r | z | V], [r | z], s, r, z and V of each step."""


class ChunkBuffers:
    """Buffers of one chunk for up to U units of R rows.

    Args:
        units: U, most units in a call.
        rows: R, rows of a unit in one step.
        inputs: Inputs of the first layer and a one.
        wide: H.
        device: Device of the buffers.
    """

    def __init__(
        self, *, units: int, rows: int, inputs: int, wide: int, device: torch.device
    ) -> None:
        self._rows, self._inputs, self._wide = rows, width_of(inputs), wide
        sizes = (torch.Size(shape).numel() for shape in self._shapes(units))
        self._flat = [torch.zeros(size, device=device) for size in sizes]
        self._chunk: Chunk | None = None

    def _shapes(self, units: int) -> tuple[tuple[int, ...], ...]:
        """Return the shapes of all values for a number of units, in the order of ``Chunk``."""
        wide, rows, by_unit = self._wide, units * self._rows, (units, CHUNK, self._rows)
        return (
            (*by_unit, self._inputs),
            (2, *by_unit, wide),
            (2, CHUNK + 1, rows, wide),
            (CHUNK, rows, wide),
            (CHUNK, rows, 4 * wide),
        )

    def of(self, units: int) -> Chunk:
        """View the buffers for a number of units; keep the views, which take 1 % of an update."""
        if self._chunk is None or len(self._chunk.inputs) != units:
            self._chunk = self._views(units)
        return self._chunk

    def _views(self, units: int) -> Chunk:
        wide, pairs = self._wide, zip(self._flat, self._shapes(units), strict=True)
        inputs, below, states, change, gates = (view(flat, *shape) for flat, shape in pairs)
        before, after = states[:, :-1], states[:, 1:]
        forward = below.unbind(2), before.unbind(1), after.unbind(1), change, gates
        alone = gates[:, None]  # one network
        opening, outer = alone[..., wide : 3 * wide], alone[..., wide:]
        backward = change[:, None], outer, opening, *alone.chunk(4, 3)
        return Chunk(
            inputs,
            below,
            states,
            change,
            gates,
            list(zip(*forward, strict=True)),
            list(zip(*backward, strict=True)),
        )


def view(flat: Tensor, *shape: int) -> Tensor:
    """View the first entries of a flat buffer in a shape."""
    return flat[: torch.Size(shape).numel()].view(shape)
