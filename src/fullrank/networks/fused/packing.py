"""Parameters as padded blocks: the layouts of products, made from a flat vector and back.

A block is an array of entries of a flat vector, each times a constant, and of zeros. Blocks are
padded so that every width is a multiple of 16: no product has a single row or column, and no row
ends within a vector register, both of which would let bits depend on what is computed beside.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from fullrank.networks.modules import flat_size, views
from fullrank.networks.parameters import ALIGNMENT

NOTHING = -1
"""Place of an entry that is zero."""


class PackedArray(NamedTuple):
    """One array: the places of its entries in a flat vector, and their factors, of equal shapes."""

    place: Tensor
    factor: Tensor

    @classmethod
    def of(cls, place: Tensor, *widths: int, factor: float = 1.0) -> "PackedArray":
        """Pad the last axes of an array of places to ``widths``."""
        place = widen(place, *widths)
        return cls(place, torch.full(place.shape, factor))


def width_of(size: int) -> int:
    """Round ``size`` up to a multiple of ``ALIGNMENT``."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def widen(place: Tensor, *widths: int) -> Tensor:
    """Pad the last axes of an array of places to ``widths`` with ``NOTHING``."""
    missing = [
        width - size for width, size in zip(widths, place.shape[-len(widths) :], strict=True)
    ]
    padding = [end for width in reversed(missing) for end in (0, width)]
    return functional.pad(place, padding, value=NOTHING)


def places_of(module: nn.Module, start: int) -> dict[str, Tensor]:
    """Return the places of each parameter, by name, in a vector where the module has ``start``."""
    names = {id(parameter): name for name, parameter in module.named_parameters()}
    flat = torch.arange(start, start + flat_size(module))
    return {names[id(parameter)]: place for parameter, place in views(module, flat)}


class Packing:
    """Blocks of flat vectors, and flat vectors of the gradients at blocks.

    Args:
        blocks: Blocks that hold every entry of a flat vector exactly once.
        units: Most units in ``unpack``.
        device: Device of the vectors.
    """

    def __init__(self, blocks: Sequence[PackedArray], *, units: int, device: torch.device) -> None:
        self._shapes = [block.place.shape for block in blocks]
        self._sizes = [block.place.numel() for block in blocks]
        place = torch.cat([block.place.flatten() for block in blocks])
        factor = torch.cat([block.factor.flatten() for block in blocks])
        (filled,) = torch.nonzero(place != NOTHING, as_tuple=True)
        self.size = len(filled)
        source = torch.empty(self.size, dtype=torch.int64)
        source[place[filled]] = filled
        self._place = torch.where(place == NOTHING, self.size, place).to(device)
        self._factor, self._source = factor.to(device), source.to(device)
        self._factor_of_entry = factor[source].to(device)
        self._packed = torch.zeros(units, len(place), device=device)
        self._flat = torch.zeros(units, self.size, device=device)

    def pack(self, flat: Tensor) -> list[Tensor]:
        """Return every block of flat vectors, shape (count, >= size), as (count, *block)."""
        padded = functional.pad(flat[:, : self.size], (0, 1))
        packed = torch.index_select(padded, 1, self._place).mul_(self._factor)
        parts = torch.split(packed, self._sizes, 1)
        return [
            torch.unflatten(part, 1, shape) for part, shape in zip(parts, self._shapes, strict=True)
        ]

    def unpack(self, gradients: Sequence[Tensor]) -> Tensor:
        """Return the gradients at flat vectors, (units, size), from those at (units, *block).

        They share memory with the next call's: fresh memory would cost page faults.
        """
        units, flat = len(gradients[0]), [gradient.flatten(1) for gradient in gradients]
        packed = torch.cat(flat, 1, out=self._packed[:units])
        found = torch.index_select(packed, 1, self._source, out=self._flat[:units])
        return found.mul_(self._factor_of_entry)
