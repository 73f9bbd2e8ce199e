"""Record of each collector, its status, and the messages that assign blocks."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from fullrank.net.codec import COLLECTOR_CHUNKS, bundle, encode_chunks
from fullrank.net.prometheus import Family, gauge
from fullrank.training.block_player import PlayTerms, Publication
from fullrank.training.blocks import BlockKey
from fullrank.v1 import controller_pb2 as pb
from fullrank_controller.learners.outbox import Outbox
from fullrank_controller.membership.member import Member
from fullrank_controller.membership.roster import Roster

MOST_REASON = 1000
"""Most characters of a failure's reason that are kept."""


@dataclass(eq=False, slots=True)
class CollectorWork:
    """Blocks and times of one collector, and the block that it plays."""

    block: BlockKey | None = None
    assigned_at: float = 0.0
    version: int | None = None
    """Version of the parameters that it was sent last."""
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
    playing_s: float = 0.0
    idle_s: float = 0.0
    awaited_s: float = 0.0
    """Seconds for which the run has waited for blocks."""


class PublicationEncoder:
    """Encodes the newest publication once for all collectors."""

    def __init__(self) -> None:
        self._encoded: tuple[Publication, Sequence[pb.ContainerHead], list[bytes]] | None = None

    def encode(
        self,
        publication: Publication,
        *,
        env_steps: int = 0,
        heads: Sequence[pb.ContainerHead] = (),
    ) -> list[bytes]:
        """Return the messages of a publication.

        Args:
            publication: The parameters.
            env_steps: Environment steps of their exploration, unless each block has its own.
            heads: Heads of containers, the same object as long as none is newer.
        """
        encoded = self._encoded
        if encoded is None or encoded[0] is not publication or encoded[1] is not heads:
            head = pb.Publication(
                version=publication.version,
                sections=sorted(publication.sections),
                env_steps=env_steps,
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


class OrderSender:
    """Sends blocks to collectors; the newest publication is encoded once for all of them.

    Args:
        write_s: Longest time in which a collector has to take an order.
    """

    def __init__(self, *, write_s: float) -> None:
        self._write_s, self._encoder = write_s, PublicationEncoder()

    def send(
        self,
        outbox: Outbox,
        work: CollectorWork,
        key: BlockKey,
        play: PlayTerms,
        *,
        now: float,
        deadline_s: float,
    ) -> None:
        """Send a collector a block, with its parameters unless they were sent.

        Args:
            outbox: Leads to the collector.
            work: Its record, which holds this block from now on.
            key: The block.
            play: Parameters and exploration of the block.
            now: Loop time.
            deadline_s: Age at which the block is assigned to another collector, too.
        """
        publication = play.publication
        messages = [] if work.version == publication.version else self._encoder.encode(publication)
        order = pb.Play(
            iteration=key.iteration,
            block=key.block,
            version=publication.version,
            env_steps=play.env_steps,
            deadline_s=deadline_s,
        )
        encoded = pb.CollectorOrder(play=order).SerializeToString()
        outbox.assign(
            [*(("publication", message) for message in messages), ("play", encoded)],
            deadline_s=self._write_s,
        )
        work.block, work.assigned_at, work.version = key, now, publication.version


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


def pool_metrics(roster: Roster, *, playing: int, lags: Mapping[str, float]) -> Iterator[Family]:
    """The current state of the collectors.

    Args:
        roster: Attached collectors.
        playing: Number of those that may play.
        lags: Lag of each of these, in updates.
    """
    yield gauge("collectors_attached", "Collectors attached.", len(roster.members))
    yield gauge("collectors_eligible", "Collectors that may play.", playing)
    yield gauge(
        "collector_lag", "Lag of each collector, in updates.", dict(lags), label="collector"
    )


def member_status(member: Member, *, now: float, lag: int, failed: str) -> pb.CollectorStatus:
    """The status of an attached collector, without its blocks and episodes."""
    return pb.CollectorStatus(
        collector=member.learner,
        host=member.host,
        fingerprint=member.numerics.fingerprint if member.numerics is not None else "",
        lag=lag,
        silent_s=now - member.heard_at,
        failed=failed,
    )
