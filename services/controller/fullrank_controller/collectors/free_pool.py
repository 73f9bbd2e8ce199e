"""Collectors that play freely: each plays open blocks with the newest parameters."""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from fullrank.net.prometheus import Family, counter, gauge
from fullrank.training.block_player import PlayTerms
from fullrank.training.blocks import BlockKey
from fullrank.v1 import controller_pb2 as pb
from fullrank_controller.collectors.block_orders import CollectorWork, one_line
from fullrank_controller.collectors.blocks_in import BlockReport
from fullrank_controller.collectors.pool import CollectorPool
from fullrank_controller.membership.member import Member

log = logging.getLogger(__name__)


@dataclass(eq=False, kw_only=True)
class FreePool(CollectorPool):
    """Orders open blocks of idle collectors, of any numerics; a failure costs its collector alone.

    Attributes:
        changed: Called when a collector comes, which takes a further block.
    """

    changed: Callable[[], object] = lambda: None
    _open: dict[BlockKey, "asyncio.Future[BlockReport]"] = field(default_factory=dict, init=False)
    _newest: PlayTerms | None = field(default=None, init=False)
    _oldest: int = field(default=0, init=False)

    @property
    def waiting(self) -> Sequence[BlockKey]:
        """Return the open blocks without an answer, ascending."""
        return sorted(key for key, report in self._open.items() if not report.done())

    def publish(self, play: PlayTerms, *, oldest: int) -> None:
        """Order blocks with newer parameters from now on.

        Args:
            play: Parameters and exploration.
            oldest: Oldest version with which a block may be played.
        """
        self._newest, self._oldest = play, oldest
        self.assign()

    def pause(self, *, oldest: int) -> None:
        """Order no block while the newest parameters are older than a version."""
        self._oldest = oldest

    async def play(self, key: BlockKey) -> BlockReport:
        """Return the report on a block, once a collector has played it."""
        report: asyncio.Future[BlockReport] = asyncio.get_running_loop().create_future()
        self._open[key] = report
        self.assign()
        try:
            return await report
        finally:
            del self._open[key]

    def assign(self) -> None:
        """Give idle collectors blocks."""
        play = self._newest
        if self._ended or play is None or play.publication.version < self._oldest:
            return
        held = {work.block for work in self.eligible.values()}
        open_ = iter([key for key in self.waiting if key not in held])
        idle = [member for member, work in self.eligible.items() if work.block is None]
        for member, key in zip(idle, open_, strict=False):
            self._order(member, key, play, oldest=max(0, self._oldest))

    def admit(self, member: Member) -> None:
        """Let a collector that is ready play, unless it was found wrong."""
        if member.quarantined:
            return
        work = self.eligible[member] = CollectorWork()
        if self.heads is not None:
            work.container = pb.ContainerStatus()
            work.take_head(self.heads.updates_of(member.learner))
        self.changed()
        self.assign()

    def lose(self, member: Member, block: BlockKey | None) -> None:
        """Do nothing: its block is open again."""

    def take(self, member: Member, message: pb.CollectorMessage) -> None:
        """Take a message of a collector, or the head of a container.

        Raises:
            InvalidContribution: A field is wrong; the stream must end.
        """
        kind, work, heads = message.WhichOneof("message"), self.eligible.get(member), self.heads
        if kind not in ("head", "failed") or work is None or heads is None:
            super().take(member, message)
        elif kind == "failed" and not message.failed.iteration:  # no block: its head was lost
            self._name(member, work, message.failed.reason)
        elif kind == "failed":
            super().take(member, message)
        elif refusal := heads.take(member.learner, message.head):
            self._name(member, work, refusal)
        else:
            self.totals.heads += 1
            work.take_head(heads.updates_of(member.learner))

    def answered(self, member: Member, report: BlockReport) -> None:
        """Hand a report to the owner of its block, unless the run has given that up."""
        owner = self._open.get(report.key)
        if owner is not None and not owner.done():
            owner.set_result(report)
        self.assign()

    def failed(self, member: Member, key: BlockKey, reason: str) -> None:
        """Name a collector whose block failed, and open the block again."""
        self._name(member, self.eligible[member], reason)
        self.assign()

    def refuse(self, report: BlockReport) -> None:
        """Count a block whose parameters were too old when it came."""
        self.totals.stale += 1
        for member, work in self.eligible.items():
            work.stale += member is report.member

    def _name(self, member: Member, work: CollectorWork, reason: str) -> None:
        work.failed = reason = one_line(reason)
        said = f"collector {member.learner} on {member.host}: {reason}"
        log.warning("collector_failed %s", said)
        self.progress.record_caveat("collectors", said)

    def waits_for(self) -> str:
        """One line: the collectors that play, those silent for the longest time first."""
        if not self.eligible:
            return "no collector plays"
        now = asyncio.get_running_loop().time()
        heard_at, slowest = min((each.sent_at, each.learner) for each in self.eligible)
        return (
            f"{len(self.eligible)} collectors play; the last report of collector {slowest} came "
            f"{now - heard_at:.0f} s ago"
        )

    def metrics(self, *, version: int) -> Iterator[Family]:
        """The current state of the collectors, of containers among them, and their totals."""
        yield from super().metrics(version=version)
        if self.heads is None:
            return
        totals, works = self.totals, self.eligible.items()
        yield counter(
            "container_handed_over", "Episodes handed over by containers.", totals.handed_over
        )
        yield counter("container_heads", "Heads that containers have published.", totals.heads)
        for name, text in (
            ("updates", "Updates of each container's head."),
            ("published", "Updates of each container's published head."),
            ("divergence", "Divergence of each from all."),
        ):
            values = {
                str(each.learner): float(getattr(work.container, name)) for each, work in works
            }
            yield gauge(f"container_{name}", text, values, label="container")
