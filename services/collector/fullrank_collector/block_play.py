"""Play the blocks that the controller orders, and stage their rows in replay."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Protocol

from fullrank.common.errors import (
    EnvironmentFailed,
    InvalidContribution,
    NotFound,
    ServiceLost,
    Stuck,
)
from fullrank.common.types import FloatArray
from fullrank.net.replay_client import ReplayClient
from fullrank.replay.staging import rows_digest
from fullrank.training.block_player import PlayedBlock, PlayTerms
from fullrank.training.blocks import BlockKey
from fullrank.v1 import controller_pb2 as pb
from fullrank_collector.publications import Publications
from fullrank_collector.timed_player import TimedPlayer

log = logging.getLogger(__name__)

SendMessage = Callable[[pb.CollectorMessage], Awaitable[None]]


class ContainerSide(Protocol):
    """Decides with which parameters a container plays, and which of its episodes travel."""

    def terms(self, newest: PlayTerms, *, oldest: int) -> PlayTerms:
        """Return the parameters of the next block, of version ``oldest`` at least."""

    def share(self, played: PlayedBlock, *, version: int) -> tuple[PlayedBlock, pb.ContainerReport]:
        """Return the part of a block that is handed over, and the facts that go with it."""


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

    async def run(self, send: SendMessage, container: ContainerSide | None = None) -> None:
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
        self, order: pb.Play, play: PlayTerms, container: ContainerSide | None, *, idle_s: float
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
