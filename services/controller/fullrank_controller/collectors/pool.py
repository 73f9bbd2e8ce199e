"""Attached collectors: their orders, their reports and their status."""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from fullrank.common.errors import InvalidContribution
from fullrank.config.tree import ControllerSettings
from fullrank.net.prometheus import Family, counter, gauge
from fullrank.runs.events import BlockAssigned, EventLog
from fullrank.training.block_player import PlayTerms
from fullrank.training.blocks import BlockKey, BlockPlan
from fullrank.v1 import controller_pb2 as pb
from fullrank_controller.collectors.block_orders import (
    BlockTotals,
    CollectorWork,
    PublicationEncoder,
    one_line,
)
from fullrank_controller.collectors.blocks_in import BlockReport, block_report
from fullrank_controller.collectors.head_store import HeadStore
from fullrank_controller.identity import RunIdentity
from fullrank_controller.membership.member import Member
from fullrank_controller.membership.roster import Roster
from fullrank_controller.progress import RunProgress

log = logging.getLogger(__name__)


@dataclass(eq=False, kw_only=True)
class CollectorPool(ABC):
    """Orders blocks of collectors, one at a time each, and takes their reports."""

    plan: BlockPlan
    """Blocks of an iteration, or of a term."""
    settings: ControllerSettings
    """Deadlines."""
    roster: Roster
    """Attached collectors."""
    progress: RunProgress
    """Shows what the run waits for, and names collectors that fail."""
    event_log: EventLog
    """Receives each block that is assigned."""
    identity: RunIdentity
    """The run; it fixes the layout of rows."""
    agents: int
    """Number of agents, M."""
    heads: HeadStore | None = None
    """Takes the heads of containers; None where collectors are none."""
    eligible: dict[Member, CollectorWork] = field(default_factory=dict, init=False)
    """Record of each collector that may play."""
    totals: BlockTotals = field(default_factory=BlockTotals, init=False)
    """Blocks and times so far."""
    _encoder: PublicationEncoder = field(default_factory=PublicationEncoder, init=False)
    _ended: bool = field(default=False, init=False)

    @property
    @abstractmethod
    def waiting(self) -> Sequence[BlockKey]:
        """Return the blocks without an answer, ascending."""

    @abstractmethod
    def assign(self) -> None:
        """Give idle collectors blocks."""

    @abstractmethod
    def waits_for(self) -> str:
        """One line: the side that waits and the cause; empty once the run is finished."""

    @abstractmethod
    def answered(self, member: Member, report: BlockReport) -> None:
        """Take a report of a collector that is idle from now on."""

    @abstractmethod
    def failed(self, member: Member, key: BlockKey, reason: str) -> None:
        """Take note that a collector could not play its block, and is idle from now on."""

    @abstractmethod
    def lose(self, member: Member, block: BlockKey | None) -> None:
        """Forget a collector that may play, and assign its block to another one."""

    def end(self) -> None:
        """Assign no more."""
        self._ended = True

    def admit(self, member: Member) -> None:
        """Let a collector that is ready play, if it may."""
        self.assign()

    def leave(self, member: Member) -> None:
        """Forget a collector whose stream ended; its block is assigned to another."""
        self._release(member)
        self.roster.leave(member)
        self.assign()

    def _release(self, member: Member) -> None:
        """Let a collector play no more."""
        work = self.eligible.pop(member, None)
        if work is not None:
            self.totals.lost += work.block is not None
            self.lose(member, work.block)

    def convict(self, report: BlockReport) -> None:
        """Quarantine the collector of a report: played again, the block is another one."""
        member = report.member
        assert member is not None  # the report was taken
        work = self.eligible.get(member) or CollectorWork()
        reason = (
            f"{self.plan.named(report.key)}, played again, is not what it reported; it has played "
            f"{work.blocks} blocks"
        )
        log.error("convicted collector=%d reason=%s", member.learner, reason)
        self.roster.convict(member, reason, iteration=self.progress.applied)
        for other in self.roster.members:
            if other.quarantined:
                self._release(other)
        self.assign()

    def _order(
        self,
        member: Member,
        key: BlockKey,
        play: PlayTerms,
        *,
        oldest: int,
        deadline_s: float = 0.0,
    ) -> None:
        """Order a block of a collector, with its parameters unless they were sent."""
        work, publication, orders = self.eligible[member], play.publication, list[bytes]()
        heads = self.heads.messages if self.heads is not None else ()
        if not work.has(publication, heads):
            orders = self._encoder.encode(publication, heads)
        order = pb.Play(
            iteration=key.iteration,
            block=key.block,
            version=publication.version,
            env_steps=play.env_steps,
            deadline_s=deadline_s,
            oldest=oldest,
        )
        encoded = pb.CollectorOrder(play=order).SerializeToString()
        member.outbox.assign(
            [*(("publication", each) for each in orders), ("play", encoded)],
            deadline_s=self.settings.lost_after_s,
        )
        work.begin(key, play, heads, now=asyncio.get_running_loop().time())
        self.event_log.append(
            BlockAssigned(
                term=self.identity.term,
                iteration=key.iteration,
                block=key.block,
                collector=member.learner,
                version=publication.version,
            )
        )
        self.totals.assigned += 1

    def take(self, member: Member, message: pb.CollectorMessage) -> None:
        """Take a message of a collector; one that was found wrong is not heard.

        Raises:
            InvalidContribution: A field is wrong; the stream must end.
        """
        kind = message.WhichOneof("message")
        if member.quarantined:
            return
        if kind == "failed":
            key = BlockKey(message.failed.iteration, message.failed.block)
            self._take_failure(self._work_on(member, key), member, key, message.failed.reason)
        elif kind == "played":
            report = block_report(
                message.played,
                self.plan,
                agents=self.agents,
                ends=self.identity.problem.last_rows,
                row_size=self.identity.problem.row_size,
                shares=self.heads is not None,
            )
            self._take_report(self._work_on(member, report.key), member, report)
        else:
            raise InvalidContribution(f"{kind} was not expected here")

    def _work_on(self, member: Member, key: BlockKey) -> CollectorWork:
        """Return the record of a collector that plays a block.

        Raises:
            InvalidContribution: It was assigned another one, or none.
        """
        work = self.eligible.get(member)
        if work is None or work.block != key:
            raise InvalidContribution(
                f"block {key.block} of iteration {key.iteration} was not assigned to this collector"
            )
        return work

    def _take_failure(self, work: CollectorWork, member: Member, key: BlockKey, said: str) -> None:
        work.block, work.failed = None, one_line(said)
        self.totals.failed += 1
        log.warning(
            "block_failed collector=%d host=%s %s", member.learner, member.host, work.failed
        )
        self.failed(member, key, work.failed)

    def _take_report(self, work: CollectorWork, member: Member, report: BlockReport) -> None:
        for sums in (work, self.totals):
            sums.playing_s += report.playing_s
            sums.idle_s += report.idle_s
        work.block, work.blocks = None, work.blocks + 1
        self.totals.played += 1
        if report.container is not None:
            work.take_shares(report.container, played=len(report.outcomes.lengths))
            self.totals.handed_over += len(report.container.handed_over)
        report = report._replace(member=member, play=work.sent, version=work.version or 0)
        self.answered(member, report)
        log.debug("played collector=%d %s", member.learner, report.key)

    def distrust(self, reports: Iterable[BlockReport]) -> None:
        """End the streams of collectors that falsely reported these blocks as staged."""
        for report in reports:
            member, key = report.member, report.key
            if report.is_staged and member in self.eligible:
                member.expel(
                    InvalidContribution(
                        f"played: no rows of its digest are staged for block {key.block} of "
                        f"iteration {key.iteration}"
                    )
                )

    def statuses(self, *, version: int, now: float) -> Iterator[pb.CollectorStatus]:
        """The status of each attached collector.

        Args:
            version: Version of the current parameters.
            now: Loop time.
        """
        for member in self.roster.members:
            work = self.eligible.get(member) or CollectorWork()
            status = work.status(version=version, now=now)
            status.collector, status.host = member.learner, member.host
            if member.numerics is not None:
                status.fingerprint = member.numerics.fingerprint
            if member not in self.eligible:
                status.spare = member.quarantined or member.objection(self.roster.numerics)
            status.silent_s = now - member.heard_at
            yield status

    def blocks(self) -> pb.BlocksStatus:
        """Totals over all collectors."""
        totals = self.totals
        return pb.BlocksStatus(
            played=totals.played,
            reassigned=totals.reassigned,
            lost=totals.lost,
            failed=totals.failed,
            waiting=len(self.waiting),
            block_s=totals.playing_s / totals.played if totals.played else 0.0,
            awaited_s=totals.awaited_s,
        )

    def metrics(self, *, version: int) -> Iterator[Family]:
        """The current state of the collectors, and their totals.

        Args:
            version: Version of the current parameters.
        """
        works = {str(each.learner): work for each, work in self.eligible.items()}
        totals = self.totals
        yield gauge("collectors_attached", "Collectors attached.", len(self.roster.members))
        yield gauge("collectors_eligible", "Collectors that may play.", len(works))
        lags = {number: float(work.lag(version)) for number, work in works.items()}
        yield gauge("collector_lag", "Lag of each collector, in updates.", lags, label="collector")
        means = {number: work.block_s for number, work in works.items()}
        text = "Mean duration of a block of each collector."
        yield gauge("collector_block_seconds", text, means, label="collector")
        yield gauge("blocks_waiting", "Blocks without an answer.", len(self.waiting))
        for name, text, total in (
            ("blocks_played", "Blocks that collectors have played.", totals.played),
            ("blocks_assigned", "Blocks assigned, again when overdue.", totals.assigned),
            ("blocks_reassigned", "Overdue blocks reassigned.", totals.reassigned),
            ("blocks_lost", "Blocks whose collector was lost.", totals.lost),
            ("blocks_failed", "Blocks whose environment raised.", totals.failed),
            ("blocks_stale", "Blocks whose parameters were too old.", totals.stale),
            ("collectors_playing_seconds", "Time of playing.", totals.playing_s),
            ("collectors_idle_seconds", "Time of collectors without blocks.", totals.idle_s),
            ("blocks_awaited_seconds", "Time of the run without blocks.", totals.awaited_s),
        ):
            yield counter(name, text, total)
