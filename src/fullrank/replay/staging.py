"""Staging of blocks: rows of collectors that nobody reads before the controller accepts them.

The controller grants blocks, collectors stage them, and the controller accepts the one block of
each number whose digest was reported to it. All of it is in memory: what a restart loses is granted
and played again. Keyed blocks are granted and accepted together for an iteration; free ones one by
one, and the term of the controller takes the place of the iteration.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

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


class AcceptedBlock(NamedTuple):
    """Entry of the journal: a free block whose rows an iteration could draw first."""

    term: int
    """Term of the controller that granted it."""
    block: int
    """Its number among those of the term."""
    version: int
    """Committed iterations behind the parameters with which it was played."""
    rows: int
    episodes: int
    digest: str
    """Digest of its rows, in hexadecimal digits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """Terms of staging a block."""

    most_rows: int
    """Rows of a block, at most."""
    episodes: EpisodeLayout | None
    """Columns where rows are steps of whole episodes; None where they are transitions."""


@dataclass(slots=True)
class _Granted:
    """Blocks that are granted, and accepted, together."""

    iteration: int
    blocks: range
    grant: Grant
    staged: dict[int, dict[bytes, FloatArray]] = field(default_factory=dict)
    """Rows by number and digest, oldest first."""
    is_accepted: bool = False


class Staging:
    """Staged blocks of one table, under the controller that opened it last."""

    def __init__(self) -> None:
        self._granted: list[_Granted] = []

    def grant(self, iteration: int, blocks: range, grant: Grant) -> None:
        """Let blocks be staged; what is staged already stays."""
        if self._of(iteration, blocks.start) is None:
            self._granted.append(_Granted(iteration, blocks, grant))

    def _of(self, iteration: int, block: int) -> _Granted | None:
        """Return the live grant that names a block."""
        for granted in self._granted:
            if granted.iteration == iteration and block in granted.blocks:
                return granted
        return None

    def is_granted(self, iteration: int, block: int) -> bool:
        """True if a live grant names a block."""
        return self._of(iteration, block) is not None

    def granted(self, iteration: int, block: int, rows: int) -> Grant:
        """Return the grant of a block of so many rows.

        Raises:
            NotFound: No grant names it.
            InvalidContribution: It has more rows than granted.
        """
        granted = self._of(iteration, block)
        if granted is None:
            raise NotFound(
                f"block {block} of iteration {iteration} is not granted, or not any more"
            )
        if rows > granted.grant.most_rows:
            raise InvalidContribution(
                f"chunk.total makes {rows} rows, and {granted.grant.most_rows} are granted"
            )
        return granted.grant

    def keep(self, iteration: int, block: int, digest: bytes, rows: FloatArray) -> None:
        """Keep a block of this digest, unless its grant has ended meanwhile."""
        granted = self._of(iteration, block)
        if granted is not None:
            held = granted.staged.setdefault(block, {})
            held[digest] = rows
            if len(held) > DIFFERING:
                del held[next(iter(held))]

    def staged(
        self, iteration: int, first: int, digests: Sequence[bytes]
    ) -> list[FloatArray | None]:
        """Return the rows of each block from a number on; None where no such block is staged."""
        granted = self._of(iteration, first)
        if granted is None:
            return [None] * len(digests)
        held = granted.staged
        return [held.get(block, {}).get(digest) for block, digest in enumerate(digests, first)]

    def accepted(self, iteration: int, first: int) -> None:
        """Note that blocks were accepted, which may be repeated; grants accepted before end."""
        accepted = self._of(iteration, first)
        self._granted = [each for each in self._granted if each is accepted or not each.is_accepted]
        if accepted is not None:
            accepted.is_accepted = True


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
