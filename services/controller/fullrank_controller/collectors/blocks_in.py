"""The parser of one stream's played blocks."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fullrank.common.deadlines import is_duration
from fullrank.common.errors import InvalidContribution
from fullrank.net.codec import Assembler
from fullrank.replay.episode_checks import check_finite, check_steps
from fullrank.replay.episodes import episodes_in
from fullrank.training.block_player import PlayedBlock
from fullrank.training.blocks import BlockKey, BlockPlan
from fullrank.v1 import controller_pb2 as pb
from fullrank_controller.identity import RunIdentity

BLOCK_BYTES = 2**30
"""Limit on the bytes of the rows of one block."""


MOST_RETURN = 1e100
"""Largest magnitude of a return: means and sums of such ones are finite."""


def check_returns(earned: NDArray[np.float64], field: str) -> None:
    """Refuse returns that are not finite, or whose mean would not be."""
    if not (np.abs(earned) <= MOST_RETURN).all():
        raise InvalidContribution(f"{field} has an entry beyond {MOST_RETURN:g}")


class Finished(NamedTuple):
    """A block that has arrived whole."""

    key: BlockKey
    played: PlayedBlock
    playing_s: float
    """Seconds of playing."""
    idle_s: float
    """Seconds without a block before it."""


class BlockParser:
    """Validates the messages of one collector and assembles its blocks.

    Args:
        identity: The run; it fixes the layout of rows.
        plan: Blocks of an iteration.
        agents: Number of agents, M.
    """

    def __init__(self, identity: RunIdentity, plan: BlockPlan, *, agents: int) -> None:
        self._problem, self._plan, self._agents = identity.problem, plan, agents
        self._header: pb.Played | None = None
        self._played: PlayedBlock | None = None
        self._assembler: Assembler | None = None

    @property
    def announced(self) -> BlockKey | None:
        """The block whose rows are not complete yet; None while there is none."""
        if self._header is None or self._assembler is None:
            return None
        return BlockKey(self._header.iteration, self._header.block)

    def parse(self, message: pb.CollectorMessage) -> Finished | None:
        """Return the block that the message completes, or None.

        Raises:
            InvalidContribution: A field is wrong; the stream must end.
        """
        kind = message.WhichOneof("message")
        if kind == "played":
            self._announce(message.played)
        elif kind is not None:
            raise InvalidContribution(f"{kind} was not expected here; it opens the stream")
        for chunk in message.chunks:
            if self._assembler is None:
                raise InvalidContribution("chunks without a block that announces them")
            self._assembler.add(chunk)
        if self._assembler is None or not self._assembler.complete:
            return None
        return self._finish()

    def _announce(self, header: pb.Played) -> None:
        """Take a header, whose rows are assembled next."""
        if self._assembler is not None:
            raise InvalidContribution("played: the rows of the block before are not complete")
        if header.block >= self._plan.blocks:
            raise InvalidContribution(f"played.block is {header.block} of {self._plan.blocks}")
        copies = len(self._plan.copies_of(header.block))
        for name, expected in (("earned", copies * self._agents), ("won", copies)):
            if len(getattr(header, name)) != expected:
                raise InvalidContribution(
                    f"played.{name} has {len(getattr(header, name))} entries, expected {expected}"
                )
        if len(header.lengths) != copies or not all(header.lengths):
            raise InvalidContribution(
                f"played.lengths has {len(header.lengths)} entries, expected {copies} above 0"
            )
        ends = copies if self._problem.episodes is not None else 0
        if header.rows != sum(header.lengths) + ends:
            raise InvalidContribution(
                f"played.rows is {header.rows}, expected {sum(header.lengths) + ends}"
            )
        if header.rows * 4 * self._problem.row_size > BLOCK_BYTES:
            raise InvalidContribution(f"played.rows of {header.rows} exceed {BLOCK_BYTES} bytes")
        if not (is_duration(header.playing_s) and is_duration(header.idle_s)):
            raise InvalidContribution("played.playing_s or played.idle_s is not a duration")
        rows = np.empty((header.rows, self._problem.row_size), np.float32)
        earned = np.array(header.earned).reshape(copies, self._agents)
        lengths = np.array(header.lengths, np.int64)
        self._header = header
        self._played = PlayedBlock(rows, earned, np.array(header.won, bool), lengths)
        self._assembler = Assembler(rows, array_id=header.block)

    def _finish(self) -> Finished:
        """Check a whole block."""
        header, played = self._header, self._played
        assert header is not None  # announced
        assert played is not None
        self._header = self._played = self._assembler = None  # the rows are not kept here
        if played.digest != header.digest:
            raise InvalidContribution("played.digest is not that of the block")
        check_returns(played.earned, "played.earned")
        check_finite(played.rows)
        layout = self._problem.episodes
        if layout is not None:
            found = episodes_in(played.rows, layout.length)
            if [rows.stop - rows.start - 1 for rows in found] != played.lengths.tolist():
                raise InvalidContribution("played.lengths are not those of the rows")
            ends = np.array([rows.stop - 1 for rows in found])
            check_steps(played.rows, ends, layout)
        key = BlockKey(header.iteration, header.block)
        return Finished(key, played, header.playing_s, header.idle_s)
