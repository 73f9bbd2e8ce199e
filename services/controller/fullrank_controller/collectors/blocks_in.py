"""Reports of collectors about the blocks that they have played and staged."""

from typing import NamedTuple

import numpy as np
from blake3 import blake3
from numpy.typing import NDArray

from fullrank.common.deadlines import is_duration
from fullrank.common.errors import InvalidContribution
from fullrank.common.schema import ORDINALS
from fullrank.common.updates import DIGEST_BYTES
from fullrank.replay.staging import block_digest
from fullrank.training.block_player import PlayTerms
from fullrank.training.blocks import BlockKey, BlockPlan
from fullrank.training.episodes import Outcomes
from fullrank.v1 import controller_pb2 as pb
from fullrank_controller.membership.member import Member

BLOCK_BYTES = 2**30
"""Limit on the bytes of the rows of one block."""
MOST_RETURN = 1e100
"""Largest magnitude of a return: means and sums of such ones are finite."""


def check_returns(earned: NDArray[np.float64], field: str) -> None:
    """Refuse returns that are not finite, or whose mean would not be."""
    if not (np.abs(earned) <= MOST_RETURN).all():
        raise InvalidContribution(f"{field} has an entry beyond {MOST_RETURN:g}")


class BlockReport(NamedTuple):
    """Report of a collector about a block."""

    key: BlockKey
    rows: int
    rows_digest: bytes
    """Digest of its rows, as the collector says."""
    outcomes: Outcomes
    playing_s: float = 0.0
    """Seconds of playing."""
    idle_s: float = 0.0
    """Seconds without a block before it."""
    is_staged: bool = True
    """False if the collector says that replay did not take the rows."""
    member: Member | None = None
    """Its collector; None before the report is taken."""
    play: PlayTerms | None = None
    """Parameters and exploration that its collector was sent with the order."""
    version: int = 0
    """Version of the parameters with which it was played."""
    container: pb.ContainerReport | None = None
    """Facts about a container, which has staged only a share of the episodes."""

    @property
    def is_void(self) -> bool:
        """Return whether its collector was found wrong."""
        return self.member is not None and bool(self.member.quarantined)

    @property
    def staged(self) -> list[int]:
        """Return the steps of each episode that is staged."""
        lengths: list[int] = self.outcomes.lengths.tolist()
        if self.container is None:
            return lengths
        return [lengths[number] for number in self.container.handed_over]

    @property
    def staged_digest(self) -> bytes:
        """Return the digest by which replay knows the block."""
        return block_digest(self.rows_digest, self.staged)

    @property
    def digest(self) -> bytes:
        """Return the digest of rows and outcomes."""
        parts = (self.outcomes.earned.tobytes(), self.outcomes.won.tobytes())
        return blake3(b"".join((self.staged_digest, *parts))).digest(DIGEST_BYTES)


def block_report(
    played: pb.Played, plan: BlockPlan, *, agents: int, ends: int, row_size: int, shares: bool
) -> BlockReport:
    """Check and decode a report.

    Args:
        played: The report.
        plan: Blocks of an iteration.
        agents: Number of agents, M.
        ends: Rows of an episode beyond its steps.
        row_size: Entries of a row.
        shares: True if collectors are containers.

    Raises:
        InvalidContribution: A field is wrong; the stream must end.
    """
    if played.block >= plan.blocks:
        raise InvalidContribution(f"played.block is {played.block} of {plan.blocks}")
    copies = len(plan.copies_of(played.block))
    for name, expected in (("earned", copies * agents), ("won", copies)):
        if len(getattr(played, name)) != expected:
            raise InvalidContribution(
                f"played.{name} has {len(getattr(played, name))} entries, expected {expected}"
            )
    if len(played.lengths) != copies or not all(played.lengths):
        raise InvalidContribution(
            f"played.lengths has {len(played.lengths)} entries, expected {copies} above 0"
        )
    container = _container_of(played, copies) if shares else None
    staged = played.lengths if container is None else _lengths_of(played, container)
    if played.rows != (rows := sum(staged) + len(staged) * ends):
        raise InvalidContribution(f"played.rows is {played.rows}, expected {rows}")
    if max(rows, *played.lengths) > most_rows(row_size):
        raise InvalidContribution(
            f"played.rows of {rows}, or played.lengths, exceed {BLOCK_BYTES} bytes"
        )
    if len(played.digest) != DIGEST_BYTES:
        raise InvalidContribution(f"played.digest has {len(played.digest)} bytes")
    if not (is_duration(played.playing_s) and is_duration(played.idle_s)):
        raise InvalidContribution("played.playing_s or played.idle_s is not a duration")
    earned = np.array(played.earned).reshape(copies, agents)
    check_returns(earned, "played.earned")
    won, lengths = np.array(played.won, bool), np.array(played.lengths, np.int64)
    key, outcomes = BlockKey(played.iteration, played.block), Outcomes(earned, won, lengths)
    return BlockReport(
        key,
        rows,
        played.digest,
        outcomes,
        playing_s=played.playing_s,
        idle_s=played.idle_s,
        is_staged=played.staged,
        container=container,
    )


def _container_of(played: pb.Played, copies: int) -> pb.ContainerReport:
    """Check the facts about a container.

    Raises:
        InvalidContribution: A field is wrong.
    """
    report, numbers = played.container, list(played.container.handed_over)
    if numbers != sorted(set(numbers)) or not set(numbers) <= set(range(copies)):
        raise InvalidContribution(f"played.container hands over episodes {numbers} of {copies}")
    if report.updates >= ORDINALS:
        raise InvalidContribution(
            f"played.container.updates is {report.updates}, beyond {ORDINALS - 1}"
        )
    if not np.isfinite(report.divergence):
        raise InvalidContribution(f"played.container.divergence is {report.divergence}")
    return report


def _lengths_of(played: pb.Played, container: pb.ContainerReport) -> list[int]:
    return [played.lengths[number] for number in container.handed_over]


def most_rows(row_size: int) -> int:
    """Most rows of a block."""
    return BLOCK_BYTES // (4 * row_size)
