"""Record of each collector, its status, and the messages that assign blocks."""

from collections.abc import Sequence
from dataclasses import dataclass

from fullrank.common.errors import InvalidContribution
from fullrank.net.codec import COLLECTOR_CHUNKS, bundle, encode_chunks
from fullrank.training.block_player import PlayTerms, Publication
from fullrank.training.blocks import BlockKey
from fullrank.v1 import controller_pb2 as pb

MOST_REASON = 1000
"""Most characters of a failure's reason that are kept."""


@dataclass(eq=False, slots=True)
class CollectorWork:
    """Blocks and times of one collector, and the block that it plays."""

    block: BlockKey | None = None
    assigned_at: float = 0.0
    sent: PlayTerms | None = None
    """Parameters and exploration that it was sent last."""
    version: int | None = None
    """Their version; of a container, that of the trunk with which it played last."""
    blocks: int = 0
    """Blocks that it has played."""
    reassigned: int = 0
    """Blocks assigned to it that another collector played, too."""
    playing_s: float = 0.0
    """Seconds of playing, as it measured them."""
    idle_s: float = 0.0
    """Seconds without a block, as it measured them."""
    failed: str = ""
    """Reason of its last failure."""
    stale: int = 0
    """Blocks whose parameters were too old when they came."""
    heads: Sequence[pb.ContainerHead] = ()
    """Heads of containers that it was sent last."""
    container: pb.ContainerStatus | None = None
    """Its facts as a container."""

    def has(self, publication: Publication, heads: Sequence[pb.ContainerHead]) -> bool:
        """True if these parameters and heads are the last that were sent."""
        sent = self.sent
        newest = sent is not None and sent.publication.version == publication.version
        return newest and self.heads is heads

    def begin(
        self, key: BlockKey, play: PlayTerms, heads: Sequence[pb.ContainerHead], *, now: float
    ) -> None:
        """Hold a block from now on, which is sent with its parameters."""
        self.block, self.sent, self.heads, self.assigned_at = key, play, heads, now
        if self.container is None or self.version is None:
            self.version = play.publication.version

    def take_head(self, updates: int) -> None:
        """Take the number of updates of its published head; its next block reports later ones."""
        assert self.container is not None  # only containers have heads
        self.container.published = updates
        self.container.updates = max(self.container.updates, updates)

    def take_shares(self, report: pb.ContainerReport, *, played: int) -> None:
        """Take what a container tells about itself with a block of so many episodes.

        Raises:
            InvalidContribution: It was not sent such parameters.
        """
        status = self.container
        assert status is not None  # only containers report so
        if self.sent is None or report.version > self.sent.publication.version:
            raise InvalidContribution(f"played.container.version is {report.version}, not sent yet")
        self.version = report.version
        status.played += played
        status.handed_over += len(report.handed_over)
        status.updates = max(report.updates, status.published)
        status.divergence = report.divergence

    def status(self, *, version: int, now: float) -> pb.CollectorStatus:
        """Return the status of its blocks; ``version`` is that of the current parameters."""
        playing = self.block is not None
        iteration, block = self.block or (0, 0)
        return pb.CollectorStatus(
            blocks=self.blocks,
            playing=playing,
            iteration=iteration,
            block=block,
            playing_s=now - self.assigned_at if playing else 0.0,
            lag=self.lag(version),
            failed=self.failed,
            block_s=self.block_s,
            idle=self.idle,
            reassigned=self.reassigned,
            stale=self.stale,
            container=self.container,
        )

    def lag(self, version: int) -> int:
        """Updates between its parameters and those of a version."""
        return 0 if self.version is None else max(0, version - self.version)

    @property
    def block_s(self) -> float:
        """Mean duration of a block, seconds."""
        return self.playing_s / self.blocks if self.blocks else 0.0

    @property
    def idle(self) -> float:
        """Share of its time without a block."""
        measured_s = self.playing_s + self.idle_s
        return self.idle_s / measured_s if measured_s else 0.0


@dataclass(slots=True, kw_only=True)
class BlockTotals:
    """Blocks and times of all collectors of a term."""

    played: int = 0
    assigned: int = 0
    """Blocks assigned, those reassigned included."""
    reassigned: int = 0
    """Blocks assigned to another collector, too, because they were overdue."""
    lost: int = 0
    """Blocks whose collector was lost while it played them."""
    failed: int = 0
    stale: int = 0
    """Blocks whose parameters were too old when they came."""
    handed_over: int = 0
    """Episodes that containers have handed over."""
    heads: int = 0
    """Heads that containers have published."""
    playing_s: float = 0.0
    idle_s: float = 0.0
    awaited_s: float = 0.0
    """Seconds for which the run has waited for blocks."""


class PublicationEncoder:
    """Encodes the newest publication once for all collectors."""

    def __init__(self) -> None:
        self._encoded: tuple[Publication, Sequence[pb.ContainerHead], list[bytes]] | None = None

    def encode(self, publication: Publication, heads: Sequence[pb.ContainerHead]) -> list[bytes]:
        """Return the messages of a publication.

        Args:
            publication: The parameters.
            heads: Heads of containers, the same object as long as none is newer.
        """
        encoded = self._encoded
        if encoded is None or encoded[0] is not publication or encoded[1] is not heads:
            head = pb.Publication(
                version=publication.version,
                sections=sorted(publication.sections),
                heads=heads,
            )
            fields = (
                field
                for section, values in sorted(publication.sections.items())
                for field in encode_chunks(values, array_id=section, field=COLLECTOR_CHUNKS)
            )
            announced = pb.CollectorOrder(publication=head).SerializeToString()
            self._encoded = encoded = publication, heads, [announced, *bundle(fields)]
        return encoded[2]


def one_line(reason: str) -> str:
    """The reason of a collector's failure as statuses show it: one line of bounded length."""
    return " ".join(reason.split())[:MOST_REASON]


def unplayed(keys: Sequence[BlockKey]) -> str:
    """A clause that counts blocks without an answer and names the first."""
    first = keys[0]
    return (
        f"{len(keys)} blocks are not played, the first is block {first.block} of iteration "
        f"{first.iteration}"
    )
