"""Collectors that play freely: the newest parameters out, facts of written episodes in."""

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from fullrank.common.errors import InvalidContribution
from fullrank.config.tree import ControllerSettings
from fullrank.net.prometheus import Family, counter, gauge
from fullrank.training.block_player import PlayTerms
from fullrank.training.episodes import Outcomes
from fullrank.v1 import controller_pb2 as pb
from fullrank_controller.collectors.block_orders import (
    PublicationEncoder,
    member_status,
    one_line,
    pool_metrics,
)
from fullrank_controller.collectors.blocks_in import check_returns
from fullrank_controller.collectors.head_store import HeadStore
from fullrank_controller.membership.member import Member
from fullrank_controller.membership.roster import Roster
from fullrank_controller.progress import RunProgress

log = logging.getLogger(__name__)

KEPT_EPISODES = 10_000
"""Episodes whose returns are kept for the next iteration's statistics. Further ones replace the
oldest, so that what collectors report while no iteration begins takes bounded memory."""


@dataclass(eq=False, slots=True)
class CollectorProgress:
    """Last report and newest parameters of a collector that plays."""

    heard_at: float
    """Loop time of its last report."""
    version: int
    """Version of the parameters that it was sent last; of a container, of those it played with."""
    blocks: int = 0
    """Blocks that it has played."""
    settled: int = 0
    stale: int = 0
    invalid: int = 0
    failed: str = ""
    """Why its last failure was one."""
    container: pb.ContainerStatus = field(default_factory=pb.ContainerStatus)
    """Its facts as a container."""

    def take_head(self, updates: int) -> None:
        """Take the number of updates of its published head; its next block reports later ones."""
        self.container.published = updates
        self.container.updates = max(self.container.updates, updates)


class FreePool:
    """Sends every collector the newest parameters, and takes their reports of episodes.

    Args:
        settings: Deadlines.
        roster: Attached collectors.
        progress: Names those whose environments fail.
        agents: Number of agents, M.
        heads: Takes the heads of containers; None where collectors are none.

    Attributes:
        roster: As given.
        heads: As given.
        players: The ready collectors.
        totals: ``episodes`` that were written since this process began, those ``settled`` by
            replay, and those of them that it refused as ``stale`` and ``invalid``; of containers
            those that were ``handed_over`` and the ``heads`` that came.
    """

    def __init__(
        self,
        settings: ControllerSettings,
        *,
        roster: Roster,
        progress: RunProgress,
        agents: int,
        heads: HeadStore | None = None,
    ) -> None:
        self.roster, self._settings, self._progress = roster, settings, progress
        self._agents, self.heads = agents, heads
        self.players: dict[Member, CollectorProgress] = {}
        self.totals = Counter[str]()
        self._newest: PlayTerms | None = None
        self._written: deque[Outcomes] = deque()
        self._kept = 0  # episodes
        self._encoder = PublicationEncoder()

    def publish(self, play: PlayTerms) -> None:
        """Send all collectors newer parameters, in place of older ones that are not sent yet."""
        self._newest = play
        for member in self.roster.members:
            if member.ready:
                self.admit(member)

    def admit(self, member: Member) -> None:
        """Send a collector that is ready the newest parameters, as soon as there are any."""
        if self._newest is None:
            return
        publication = self._newest.publication
        messages = self._encoder.encode(
            publication,
            env_steps=self._newest.env_steps,
            heads=self.heads.messages if self.heads is not None else (),
        )
        member.outbox.assign(
            [("publication", message) for message in messages],
            deadline_s=self._settings.lost_after_s,
        )
        now = asyncio.get_running_loop().time()
        if member not in self.players:
            self.players[member] = self.beginner(member, version=publication.version, now=now)
        elif self.heads is None:
            self.players[member].version = publication.version

    def beginner(self, member: Member, *, version: int, now: float) -> CollectorProgress:
        """Return the progress of a collector that has reported nothing yet."""
        player = CollectorProgress(now, version)
        if self.heads is not None:
            player.take_head(self.heads.updates_of(member.learner))
        return player

    def leave(self, member: Member) -> None:
        """Forget a collector whose stream ended."""
        self.players.pop(member, None)
        self.roster.leave(member)

    def take(self, member: Member, message: pb.CollectorMessage) -> None:
        """Take a report.

        Raises:
            InvalidContribution: A field is wrong; the stream must end.
        """
        kind = message.WhichOneof("message")
        player = self.players.get(member)
        if player is None or kind not in ("wrote", "failed", "head"):
            raise InvalidContribution(f"{kind} was not expected here")
        player.heard_at = asyncio.get_running_loop().time()
        if kind == "wrote":
            self._take_report(player, message.wrote)
        elif kind == "failed":
            self._name(member, player, message.failed.reason)
        elif self.heads is None:
            raise InvalidContribution("head was not expected here: collectors are no containers")
        elif refusal := self.heads.take(member.learner, message.head):
            self._name(member, player, refusal)
        else:
            self.totals["heads"] += 1
            player.take_head(self.heads.updates_of(member.learner))

    def _take_report(self, player: CollectorProgress, wrote: pb.Wrote) -> None:
        """Take the report on a block."""
        written = _written(wrote, agents=self._agents)
        if self.heads is not None:
            self._take_shares(player, wrote)
        self._keep(written)
        player.blocks += 1
        for name in ("settled", "stale", "invalid"):
            self.totals[name] += max(0, getattr(wrote, name) - getattr(player, name))
        self.totals["episodes"] += len(wrote.lengths)
        player.settled, player.stale, player.invalid = wrote.settled, wrote.stale, wrote.invalid

    def _take_shares(self, player: CollectorProgress, wrote: pb.Wrote) -> None:
        """Take what a container tells about itself."""
        status, report = player.container, wrote.container
        if report.handed_over > len(wrote.lengths) or not np.isfinite(report.divergence):
            raise InvalidContribution(
                f"wrote.container hands over {report.handed_over} of {len(wrote.lengths)} "
                f"episodes, with a divergence of {report.divergence}"
            )
        player.version = wrote.version
        status.played += len(wrote.lengths)
        status.handed_over += report.handed_over
        status.updates = max(report.updates, status.published)
        status.divergence = report.divergence
        self.totals["handed_over"] += report.handed_over

    def _keep(self, written: Outcomes) -> None:
        self._written.append(written)
        self._kept += len(written.lengths)
        while len(self._written) > 1 and self._kept > KEPT_EPISODES:
            self._kept -= len(self._written.popleft().lengths)

    def _name(self, member: Member, player: CollectorProgress, reason: str) -> None:
        player.failed = reason = one_line(reason)
        said = f"collector {member.learner} on {member.host}: {reason}"
        log.warning("collector_failed %s", said)
        self._progress.record_caveat("collectors", said)

    def take_written(self) -> list[Outcomes]:
        """Return the newest ``KEPT_EPISODES`` episodes written since the last call."""
        written = list(self._written)
        self._written.clear()
        self._kept = 0
        return written

    def waits_for(self) -> str:
        """One line: the collectors that play, those silent for the longest time first."""
        if not self.players:
            return "no collector plays"
        now = asyncio.get_running_loop().time()
        silent = sorted(
            (player.heard_at, member.learner) for member, player in self.players.items()
        )
        heard_at, slowest = silent[0]
        return (
            f"{len(self.players)} collectors play; the last report of collector {slowest} came "
            f"{now - heard_at:.0f} s ago"
        )

    def blocks(self) -> None:
        """Return no totals of blocks: none is ordered."""

    def statuses(self, *, version: int, now: float) -> Iterator[pb.CollectorStatus]:
        """The status of each attached collector.

        Args:
            version: Version of the current parameters.
            now: Loop time.
        """
        for member in self.roster.members:
            player = self.players.get(member) or self.beginner(member, version=version, now=now)
            lag = max(0, version - player.version)
            status = member_status(member, now=now, lag=lag, failed=player.failed)
            status.blocks, status.playing = player.blocks, member in self.players
            status.playing_s = now - player.heard_at
            status.settled, status.stale = player.settled, player.stale
            status.invalid = player.invalid
            if self.heads is not None:
                status.container.CopyFrom(player.container)
            yield status

    def metrics(self, *, version: int) -> Iterator[Family]:
        """The current state of the collectors, and totals of their episodes.

        Args:
            version: Version of the current parameters.
        """
        players = self.players.items()
        yield from pool_metrics(
            self.roster,
            playing=len(players),
            lags={str(each.learner): max(0, version - player.version) for each, player in players},
        )
        for name, text in (
            ("episodes", "Episodes that collectors have written."),
            ("settled", "Episodes that replay has stored or refused."),
            ("stale", "Episodes refused because their parameters were too old."),
            ("invalid", "Episodes refused as invalid."),
        ):
            yield counter(f"collector_{name}", text, self.totals[name])
        if self.heads is not None:
            yield from self._container_metrics()

    def _container_metrics(self) -> Iterator[Family]:
        """The current state of the containers, and totals of what they handed over."""
        handed_over, published = self.totals["handed_over"], self.totals["heads"]
        yield counter("container_handed_over", "Episodes handed over by containers.", handed_over)
        yield counter("container_heads", "Heads that containers have published.", published)
        statuses = {each.learner: player.container for each, player in self.players.items()}
        for name, text in (
            ("updates", "Updates of each container's head."),
            ("published", "Updates of each container's published head."),
            ("divergence", "Divergence of each from all."),
        ):
            values = {str(number): float(getattr(each, name)) for number, each in statuses.items()}
            yield gauge(f"container_{name}", text, values, label="container")


def _written(wrote: pb.Wrote, *, agents: int) -> Outcomes:
    """Decode and check a report.

    Raises:
        InvalidContribution: A field is wrong.
    """
    copies = len(wrote.lengths)
    if not copies or not all(wrote.lengths) or max(wrote.lengths) >= 2**31:
        raise InvalidContribution(f"wrote.lengths has {copies} entries, or an invalid length")
    for name, expected in (("earned", copies * agents), ("won", copies)):
        if len(getattr(wrote, name)) != expected:
            raise InvalidContribution(
                f"wrote.{name} has {len(getattr(wrote, name))} entries, expected {expected}"
            )
    earned = np.array(wrote.earned).reshape(copies, agents)
    check_returns(earned, "wrote.earned")
    return Outcomes(earned, np.array(wrote.won, bool), np.array(wrote.lengths, np.int64))
