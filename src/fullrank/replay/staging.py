"""Staging of blocks: rows of collectors that nobody reads before the controller accepts them.

The controller grants the blocks of an iteration, collectors stage them, and the controller accepts
the one block of each number whose digest was reported to it. All of it is in memory: what a restart
loses is granted and played again, to the same bits.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from blake3 import blake3

from fullrank.common.errors import InvalidContribution, NotFound
from fullrank.common.types import FloatArray
from fullrank.common.updates import DIGEST_BYTES
from fullrank.replay.episode_checks import check_finite, check_steps
from fullrank.replay.episodes import EpisodeLayout, episodes_in

DIFFERING = 2
"""Blocks of one number that are kept, the newest ones, where collectors differ."""


def rows_digest(rows: FloatArray) -> bytes:
    """Hash the bits of a block's rows."""
    return blake3(np.ascontiguousarray(rows).reshape(-1).view(np.uint8).data).digest(DIGEST_BYTES)


def block_digest(rows: bytes, lengths: Sequence[int]) -> bytes:
    """Hash the digest of a block's rows and the steps of each copy's episode."""
    return blake3(rows + np.array(lengths, "<i8").tobytes()).digest(DIGEST_BYTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """Blocks that may be staged for an iteration."""

    blocks: int
    most_rows: int
    """Rows of a block, at most."""
    episodes: EpisodeLayout | None
    """Columns where rows are steps of whole episodes; None where they are transitions."""


@dataclass(slots=True)
class _Staged:
    """The staged blocks of an iteration."""

    grant: Grant
    blocks: dict[int, dict[bytes, FloatArray]] = field(default_factory=dict)
    """Rows by number and digest, oldest first."""


class Staging:
    """Staged blocks of one table, under the controller that opened it last."""

    def __init__(self) -> None:
        self._iterations: dict[int, _Staged] = {}

    def grant(self, iteration: int, grant: Grant) -> None:
        """Let the blocks of an iteration be staged; what is staged already stays."""
        if iteration not in self._iterations:
            self._iterations[iteration] = _Staged(grant)

    def is_granted(self, iteration: int) -> bool:
        """True if a live grant names the blocks of an iteration."""
        return iteration in self._iterations

    def granted(self, iteration: int, block: int, rows: int) -> Grant:
        """Return the grant of a block of so many rows.

        Raises:
            NotFound: No grant names it.
            InvalidContribution: It has more rows than granted.
        """
        staged = self._iterations.get(iteration)
        if staged is None or block >= staged.grant.blocks:
            raise NotFound(
                f"block {block} of iteration {iteration} is not granted, or not any more"
            )
        if rows > staged.grant.most_rows:
            raise InvalidContribution(
                f"chunk.total makes {rows} rows, and {staged.grant.most_rows} are granted"
            )
        return staged.grant

    def keep(self, iteration: int, block: int, digest: bytes, rows: FloatArray) -> None:
        """Keep a block of this digest, unless its grant has ended meanwhile."""
        if iteration in self._iterations:
            held = self._iterations[iteration].blocks.setdefault(block, {})
            held[digest] = rows
            if len(held) > DIFFERING:
                del held[next(iter(held))]

    def staged(self, iteration: int, digests: Sequence[bytes]) -> list[FloatArray | None]:
        """Return the rows of each block of an iteration; None where no such block is staged."""
        staged = self._iterations.get(iteration)
        if staged is None:
            return [None] * len(digests)
        return [staged.blocks.get(block, {}).get(digest) for block, digest in enumerate(digests)]

    def forget(self, *, before: int) -> None:
        """Drop the blocks of earlier iterations, whose grants end."""
        for iteration in [known for known in self._iterations if known < before]:
            del self._iterations[iteration]


def judged(rows: FloatArray, lengths: Sequence[int], layout: EpisodeLayout | None) -> bytes:
    """Return the digest of a block.

    Raises:
        InvalidContribution: Its rows are not episodes of these lengths that could have been played.
    """
    _check_rows(rows, lengths, layout)
    return block_digest(rows_digest(rows), lengths)


def _check_rows(rows: FloatArray, lengths: Sequence[int], layout: EpisodeLayout | None) -> None:
    if not lengths or not all(lengths):
        raise InvalidContribution("lengths has no entry, or an entry of 0")
    check_finite(rows)
    if layout is None:
        if sum(lengths) != len(rows):
            raise InvalidContribution(f"lengths add up to {sum(lengths)}, for {len(rows)} rows")
        return
    found = episodes_in(rows, layout.length)
    if [place.stop - place.start - 1 for place in found] != list(lengths):
        raise InvalidContribution("lengths are not those of the rows")
    check_steps(rows, np.array([place.stop - 1 for place in found]), layout)
