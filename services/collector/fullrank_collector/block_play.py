"""Play the blocks that the controller orders, and stage their rows in replay.

A container decides with which parameters it plays and which of its episodes travel, and learns
meanwhile, on a thread of its own. The event loop reads and writes trunk and head between two
updates alone, so that neither is read half written. Of the publications that arrive on the stream,
the newest whole one counts.
"""

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Sequence

import numpy as np

from fullrank.algorithms.problem import Section
from fullrank.common.errors import (
    EnvironmentFailed,
    InvalidContribution,
    NotFound,
    ServiceLost,
    Stuck,
)
from fullrank.common.types import FloatArray
from fullrank.config.collection import ContainerSettings
from fullrank.net.codec import Assembler
from fullrank.net.messages import head_message, head_of
from fullrank.net.replay_client import ReplayClient
from fullrank.replay.staging import rows_digest
from fullrank.training.block_player import PlayedBlock, PlayTerms, Publication
from fullrank.training.blocks import BlockKey
from fullrank.training.container import Container
from fullrank.training.episodes import Outcomes
from fullrank.training.heads import Heads
from fullrank.v1 import controller_pb2 as pb
from fullrank_collector.run_context import TimedPlayer

CONTAINERS = 2**16
"""Most containers of a run, each of which has a head."""


class Publications:
    """Assembles the publications of one stream.

    Args:
        sections: All sections of the run.
        peer: The controller, for messages.
        heads: Takes the heads of containers, where collectors are containers.

    Attributes:
        newest: The newest whole one; None before the first.
        arrived: Set once there is one.
    """

    def __init__(
        self, sections: Sequence[Section], *, peer: str, heads: Heads | None = None
    ) -> None:
        self._sections, self._peer, self._heads = sections, peer, heads
        self.newest: Publication | None = None
        self.arrived = asyncio.Event()
        self._announced: Publication | None = None
        self._missing: list[Assembler] = []

    def take(self, order: pb.CollectorOrder) -> None:
        """Take the publication, or the chunks of one, that a message holds.

        Raises:
            InvalidContribution: It names a section that the run has not, or did not announce.
        """
        if order.WhichOneof("message") == "publication":
            self._announce(order.publication)
        for chunk in order.chunks:
            if not self._missing:
                raise InvalidContribution(f"{self._peer}: an unannounced section")
            self._missing[0].add(chunk)
            if self._missing[0].complete:
                del self._missing[0]
        if self._announced is not None and not self._missing:
            self.newest, self._announced = self._announced, None
            self.arrived.set()

    def _announce(self, announced: pb.Publication) -> None:
        if any(section >= len(self._sections) for section in announced.sections):
            raise InvalidContribution(f"{self._peer}: there is no such section")
        if any(head.container >= CONTAINERS for head in announced.heads):
            raise InvalidContribution(f"{self._peer}: there is no such container")
        if self._heads is not None:
            for head in announced.heads:
                self._heads.publish(head.container, head_of(head, size=self._heads.size))
        sections = {
            id_: np.empty(self._sections[id_].size, np.float32) for id_ in announced.sections
        }
        self._announced = Publication(version=announced.version, sections=sections)
        self._missing = [Assembler(values, array_id=id_) for id_, values in sections.items()]


log = logging.getLogger(__name__)


class HeadLost(ServiceLost):
    """The head of a container is no use; the container begins anew on the next stream."""


class ContainerPlay:
    """Lets a container play and learn for one stream.

    Args:
        container: The container, which takes its first trunk from this stream.
        settings: The settings of containers.
        section: Section of the network that acts.
        clock: Monotonic seconds.

    Attributes:
        learning_s: Seconds that updates have taken.
    """

    def __init__(
        self,
        container: Container,
        settings: ContainerSettings,
        *,
        section: int,
        clock: Callable[[], float],
    ) -> None:
        self._container, self._settings = container, settings
        self._section, self._clock = section, clock
        self._acting: Publication | None = None
        self._newer: Publication | None = None
        """The centraliser's parameters, as long as an update keeps them from being taken."""
        self._taken_at = self._published_at = -math.inf
        self._stored, self._updating = asyncio.Event(), False
        self._divergence = self.learning_s = 0.0
        container.trunk_version = -1  # a later term may have taken updates back

    def terms(self, newest: PlayTerms, *, oldest: int) -> PlayTerms:
        """Return the parameters of the next block: the trunk's version names them.

        Args:
            newest: The newest parameters of the centraliser, taken every ``every_s``.
            oldest: Oldest version that is accepted; an earlier trunk is replaced at once.
        """
        acting, now = self._acting, self._clock()
        is_due = now >= self._taken_at + self._settings.every_s
        if acting is None or is_due or acting.version < oldest:
            self._newer, self._taken_at = newest.publication, now
            self._refresh()
        assert self._acting is not None  # the first is taken before any update
        return PlayTerms(publication=self._acting, env_steps=newest.env_steps)

    def _refresh(self) -> None:
        """Take the newer trunk, and act with what was learned, unless an update is running."""
        if self._updating:
            return
        container, newer = self._container, self._newer
        if newer is not None:
            container.take_trunk(newer.version, newer.sections[self._section])
            self._newer = None
        if self._settings.learn:
            sections = {self._section: container.learner.acting}
            self._acting = Publication(version=container.trunk_version, sections=sections)
        elif newer is not None:
            self._acting = newer

    def share(self, played: PlayedBlock, *, version: int) -> tuple[PlayedBlock, pb.ContainerReport]:
        """Keep the episodes of a block; return those that travel, and facts about the container."""
        container, episodes = self._container, played.episodes
        travelling = container.store(episodes)
        self._stored.set()
        rows = np.concatenate([played.rows[:0], *(episodes[number] for number in travelling)])
        earned, won, lengths = played.outcomes
        outcomes = Outcomes(earned[travelling], won[travelling], lengths[travelling])
        report = pb.ContainerReport(
            version=version,
            handed_over=travelling,
            updates=container.learner.updates,
            divergence=self._divergence,
        )
        return PlayedBlock(rows, outcomes), report

    async def learn(self, send: Callable[[pb.CollectorMessage], Awaitable[None]]) -> None:
        """Update and publish the head until cancelled.

        Raises:
            HeadLost: The head is no use; dial again, to go on with the published one.
        """
        container = self._container
        while True:
            while not container.may_learn:
                self._stored.clear()
                await self._stored.wait()
            error = await self._update()
            if not container.is_sound:
                what = f"was lost in an update, {error!r}," if error else "is not finite"
                raise HeadLost(
                    f"the head of container {container.number} {what} after "
                    f"{container.learner.updates} updates; it goes on with the published one"
                )
            if self._clock() >= self._published_at + self._settings.every_s:
                self._published_at = self._clock()
                message = head_message(container.number, container.publish())
                await send(pb.CollectorMessage(head=message))

    async def _update(self) -> BaseException | None:
        """Take one step, and return its error; a stream that ends meanwhile waits for its end."""
        container, began_at = self._container, self._clock()
        arguments = container.minibatch()
        update = asyncio.ensure_future(asyncio.to_thread(container.step, *arguments))
        self._updating = True
        try:
            await asyncio.wait({update})
        finally:
            await asyncio.wait({update})
            self._updating = False
            self.learning_s += self._clock() - began_at
        if error := update.exception():
            log.warning("update_failed container=%d", container.number, exc_info=error)
            return error
        self._divergence = update.result().get("divergence", 0.0)
        self._refresh()
        return None


SendMessage = Callable[[pb.CollectorMessage], Awaitable[None]]


class BlockPlay:
    """Plays for one stream.

    Args:
        player: Plays the blocks.
        publications: Those of the stream.
        stager: Stages their rows in replay.
        peer: The controller, for messages.
        patience: Failures on end after which this collector gives up; None: the run decides.
    """

    def __init__(
        self,
        player: TimedPlayer,
        publications: Publications,
        stager: ReplayClient,
        *,
        peer: str,
        patience: int | None = None,
    ) -> None:
        self._player, self._publications, self._peer = player, publications, peer
        self._stager, self._patience = stager, patience
        self._failures = 0
        self._ordered: asyncio.Queue[tuple[pb.Play, PlayTerms]] = asyncio.Queue(maxsize=1)

    def take(self, order: pb.Play) -> None:
        """Take an order, whose parameters are those published last.

        Raises:
            InvalidContribution: They are not, or another order waits.
        """
        newest = self._publications.newest
        if newest is None or newest.version != order.version:
            raise InvalidContribution(f"{self._peer}: version {order.version} was not published")
        play = PlayTerms(publication=newest, env_steps=order.env_steps)
        if self._ordered.full():
            raise InvalidContribution(f"{self._peer}: it orders a block while another one waits")
        self._ordered.put_nowait((order, play))

    async def run(self, send: SendMessage, container: ContainerPlay | None = None) -> None:
        """Play until cancelled; stages and reports each block, or the reason of its failure.

        Args:
            send: Sends a message to the controller.
            container: The container, if the collector is one.

        Raises:
            EnvironmentFailed: It raised, or replay refused its blocks, as often as is bearable.
            Stuck: A block takes far longer than ever before.
            StaleTerm: A later controller has opened the table.
        """
        idle_since = time.monotonic()
        while True:
            order, play = await self._ordered.get()
            idle_s = time.monotonic() - idle_since
            try:
                message = await self._played(order, play, container, idle_s=idle_s)
            except (EnvironmentFailed, InvalidContribution, Stuck) as error:
                await self._fail(order, error, send)
            else:
                self._failures = 0
                await send(message)
            idle_since = time.monotonic()

    async def _fail(self, order: pb.Play, error: Exception, send: SendMessage) -> None:
        """Report a failure; raises it where it ends this collector."""
        log.warning("block_failed %s", error)
        self._failures += 1
        failed = pb.Failed(iteration=order.iteration, block=order.block, reason=str(error))
        await send(pb.CollectorMessage(failed=failed))
        if isinstance(error, Stuck):
            raise error
        if self._failures == self._patience:
            raise EnvironmentFailed(str(error))

    async def _played(
        self, order: pb.Play, play: PlayTerms, container: ContainerPlay | None, *, idle_s: float
    ) -> pb.CollectorMessage:
        """Play and stage a block; returns the report."""
        key, report = BlockKey(order.iteration, order.block), None
        if container is not None:
            play = container.terms(play, oldest=order.oldest)
        began_at = time.monotonic()
        played = staged = await self._player.play(key, play)
        playing_s = time.monotonic() - began_at
        if container is not None:
            staged, report = container.share(played, version=play.publication.version)
        message = played_message(
            key,
            played,
            rows=staged.rows,
            is_staged=await self._stage(key, staged),
            playing_s=playing_s,
            idle_s=idle_s,
        )
        if report is not None:
            message.played.container.CopyFrom(report)
        return message

    async def _stage(self, key: BlockKey, played: PlayedBlock) -> bool:
        """Stage a block; False if replay is away, or knows no grant since it was started again."""
        if not len(played.rows):
            return True
        try:
            await self._stager.stage(*key, played.rows, played.outcomes.lengths)
        except (NotFound, ServiceLost) as error:
            log.warning("not_staged iteration=%d block=%d reason=%s", *key, error)
            return False
        return True


def played_message(
    key: BlockKey,
    played: PlayedBlock,
    *,
    rows: FloatArray | None = None,
    is_staged: bool = True,
    playing_s: float = 0.0,
    idle_s: float = 0.0,
) -> pb.CollectorMessage:
    """Report a block, of which all rows are staged, or those given."""
    rows = played.rows if rows is None else rows
    return pb.CollectorMessage(
        played=pb.Played(
            iteration=key.iteration,
            block=key.block,
            rows=len(rows),
            earned=played.outcomes.earned.reshape(-1),
            won=played.outcomes.won,
            lengths=played.outcomes.lengths,
            digest=rows_digest(rows),
            staged=is_staged,
            playing_s=playing_s,
            idle_s=idle_s,
        )
    )
