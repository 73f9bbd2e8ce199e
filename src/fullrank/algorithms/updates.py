"""Updates: the gradient of a unit and its statistics, as they are encoded, summed and decoded.

A learner snaps an update to the grid of exact sums; the optimiser takes the decoded targets apart.

Where units are micro-batches of an actor-critic's minibatch, an iteration recovers the sum over the
parts for each group, T = I (x) 1^T. A part's update is [s sum of the gradients of the losses of its
transitions; s n], not clipped, where n is the number of its transitions in which the agents acted
and s a power of two, 2^-e of the weight for an exponent e of 0. Sums of updates are exact, and so
is s n: the controller divides the one by the other and has the gradient of the mean over the whole
minibatch, which it clips. Where a part is beyond the range of exact sums, the iteration leaves the
gradient of its group out, and the group's exponent is raised.

Replay draws every transition of a minibatch independently, with replacement. The parts are
therefore also what learners draw that sample on their own, as in multi-GPU MADDPG. A part's actions
have draws of their own.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from fullrank.codes.targets import LIMIT
from fullrank.common.errors import ConfigError
from fullrank.common.types import FloatArray
from fullrank.networks.fused.gradients import COARSE, FINE, encoded, snap_in_place

Statistics: TypeAlias = Mapping[str, float | Tensor]
"""Numbers beside the losses of a unit, by name. Like a loss, each is the unit's share of a sum over
the group's micro-batches."""

CLAMPED = "clamped"
"""Begins the names of gradients that were clamped to the range of exact sums, and of statistics of
which a share may have been."""

STATED = ("grad_norm", "learning_rate")
"""Statistics that optimisers add to those of an algorithm."""

LARGEST = 2.0**11
"""Entries of a mean gradient up to which sums are exact by every code, if the exponent is 0."""


@dataclass(frozen=True, slots=True)
class Entries:
    """Statistics as entries of an update, two for each, which follow the gradient.

    They are encoded, summed, audited and journalled as the gradient is (docs/adr/0047). Those of
    teams belong to the update; those of actor-critics follow it, with a digest of their own.
    """

    names: tuple[str, ...]
    marking: str = ""
    """A statistic that is never negative, of which units with a clamped gradient have the bound
    below zero as their coarse entry (docs/adr/0109)."""

    @property
    def size(self) -> int:
        """Return the number of entries."""
        return 2 * len(self.names)

    def __post_init__(self) -> None:
        taken = {*STATED, CLAMPED} & {name.partition("/")[0] for name in self.names}
        if taken:
            raise ConfigError(
                f"statistics() declares {' and '.join(sorted(taken))}, which the optimiser records "
                "of every algorithm; choose another name"
            )

    def of(self, statistics: Statistics) -> FloatArray:
        """Encode a unit's share of the statistics.

        Raises:
            ConfigError: The names are not those that were declared.
        """
        if statistics.keys() != set(self.names):
            raise ConfigError(
                f"losses return the statistics {sorted(statistics)}, and statistics() declares "
                f"{sorted(self.names)}: declare those that are returned"
            )
        values = (statistics[name] for name in self.names)
        shares = [value.item() if isinstance(value, Tensor) else value for value in values]
        return encoded(np.array(shares, np.float64))

    def sums(self, entries: FloatArray) -> dict[str, float]:
        """Return the statistics by name from the sum of all units' entries.

        The marking one is left out where units were clamped. Each share is clamped to a magnitude
        of 2^25. Sums of at least that are repeated as ``clamped/`` and their name: a share may have
        been clamped. Smaller sums tell nothing where shares of both signs cancel.
        """
        pairs = entries[: self.size].reshape(-1, 2).astype(np.float64)
        totals = pairs[:, 0] * COARSE + pairs[:, 1] * FINE
        named = dict(zip(self.names, totals.tolist(), strict=True))
        if self.clamped_units(entries):
            del named[self.marking]
        largest = LIMIT * COARSE
        clamped = {name: value for name, value in named.items() if abs(value) >= largest}
        return named | {f"{CLAMPED}/{name}": value for name, value in clamped.items()}

    def after(self, gradient: FloatArray, statistics: Statistics) -> FloatArray:
        """Return an update, [a clamped gradient; statistics]; see ``seal``.

        Raises:
            ConfigError: The gradient is at the bound, and no statistic marks it.
        """
        if not self.marking and np.abs(gradient).max() >= LIMIT:
            raise ConfigError(
                "a gradient is larger than an update can hold, and none of the statistics "
                f"{sorted(self.names)} marks it: name one in Entries(..., marking=), one that is "
                "never negative, or scale rewards"
            )
        entries, update = self.of(statistics), np.empty(len(gradient) + self.size, np.float32)
        self.seal(*(torch.from_numpy(part)[None] for part in (gradient, entries, update)))
        return update

    def seal(self, gradients: Tensor, entries: Tensor, out: Tensor) -> None:
        """Lay gradients, snapped, and statistics side by side; mark gradients at the bound.

        Args:
            gradients: Clamped, shape (units, P).
            entries: Encoded statistics, which are overwritten, shape (units, entries).
            out: The updates, shape (units, P + entries).
        """
        if self.marking:
            mark = entries[:, 2 * self.names.index(self.marking)]
            mark.masked_fill_(gradients.abs().amax(1) >= LIMIT, -LIMIT)
        out[:, gradients.shape[1] :] = entries
        snap_in_place(out[:, : gradients.shape[1]].copy_(gradients))

    def clamped_units(self, entries: FloatArray) -> int:
        """Return the number of marked units, from the sum of all entries."""
        if not self.marking:
            return 0
        mark = entries[2 * self.names.index(self.marking)]
        return int(np.ceil(-mark / LIMIT)) if mark < 0.0 else 0


def check_micro_batches(count: int, *, batch_size: int) -> None:
    """Raise ``ConfigError`` unless a minibatch divides into this many micro-batches."""
    if not 1 <= count <= batch_size:
        raise ConfigError(
            f"algorithm.micro_batches = {count} must lie between 1 and "
            f"algorithm.batch_size = {batch_size}"
        )


@dataclass(frozen=True, slots=True)
class Parts:
    """G parts of a minibatch of B transitions, whose sizes differ by at most one."""

    batch_size: int
    count: int

    @property
    def ranges(self) -> tuple[range, ...]:
        """Return the numbers of each part's transitions; earlier parts are the larger ones.

        >>> Parts(7, 3).ranges
        (range(0, 3), range(3, 5), range(5, 7))
        """
        least, longer = divmod(self.batch_size, self.count)
        starts = [part * least + min(part, longer) for part in range(self.count + 1)]
        return tuple(map(range, starts, starts[1:]))

    @property
    def weight(self) -> float:
        """Return s, the weight of a transition: LIMIT / LARGEST over B, rounded up to 2^k.

        >>> Parts(1000, 4).weight == 2.0**-22
        True
        """
        return LIMIT / LARGEST / 2.0 ** (self.batch_size - 1).bit_length()
