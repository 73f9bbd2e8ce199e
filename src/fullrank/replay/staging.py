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
from fullrank.common.types import BoolArray, FloatArray, IntArray
from fullrank.common.updates import DIGEST_BYTES
from fullrank.replay.episodes import NO_ACTION, EpisodeLayout, episodes_in


def check_finite(rows: FloatArray) -> None:
    """Raise ``InvalidContribution`` if an entry of the rows is not finite."""
    if not np.isfinite(rows).all():
        row, entry = np.argwhere(~np.isfinite(rows))[0]
        raise InvalidContribution(
            f"rows[{row}][{entry}] is {rows[row, entry]}, which is not finite"
        )


def check_steps(rows: FloatArray, ends: IntArray, layout: EpisodeLayout) -> None:
    """Check terminal states, availability and actions in the rows of whole episodes.

    Args:
        rows: Finite packed steps of episodes of a step at least, one after the other.
        ends: The last row of each.
        layout: Columns of a row.

    Raises:
        InvalidContribution: They could not have been played; the message opens with the field.
    """
    terminated, available = rows[:, layout.terminated].copy(), rows[:, layout.available]
    final = terminated[ends - 1]
    terminated[ends - 1] = 0.0
    if terminated.any() or not ((final == 0.0) | (final == 1.0)).all():
        raise InvalidContribution("terminated is not 0, or 1 in the last step")
    if not ((available == 0.0) | (available == 1.0)).all():
        raise InvalidContribution("available has an entry other than 0 and 1")
    if rows[ends, layout.action].any():
        raise InvalidContribution("action is not 0 in the last row, which has no step")
    sound, acts = _sound_actions(available, rows[:, layout.action], layout)
    sound[ends] = True
    if not sound.all():
        step, agent = np.argwhere(~sound)[0]
        action = rows[step, layout.action][agent]
        what = "was not available" if acts[step, agent] else "was taken though none was available"
        raise InvalidContribution(
            f"action of agent {agent} in step {step} is {action:g}, which {what}"
        )


def _sound_actions(
    available: FloatArray, action: FloatArray, layout: EpisodeLayout
) -> tuple[BoolArray, BoolArray]:
    """Tell which agents took an available action, or none if they had none; and which had any."""
    sizes = np.array(layout.action_sizes)
    starts = np.cumsum(sizes) - sizes
    acts = np.maximum.reduceat(available, starts, axis=1) > 0
    index = np.where(acts & (action >= 0) & (action < sizes), action, 0.0).astype(np.int64)
    had = available[np.arange(len(available))[:, None], index + starts] > 0
    return np.where(acts, (index == action) & had, action == NO_ACTION), acts


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
