"""Keyed collection: play the blocks that the controller orders, and stage their rows in replay."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

from fullrank.common.errors import (
    EnvironmentFailed,
    InvalidContribution,
    NotFound,
    ServiceLost,
    Stuck,
)
from fullrank.net.block_stager import BlockStager
from fullrank.replay.staging import rows_digest
from fullrank.training.block_player import PlayedBlock, PlayTerms
from fullrank.training.blocks import BlockKey
from fullrank.v1 import controller_pb2 as pb
from fullrank_collector.publications import Publications
from fullrank_collector.timed_player import TimedPlayer

log = logging.getLogger(__name__)


class KeyedPlay:
    """Plays for one stream.

    Args:
        player: Plays the blocks.
        publications: Those of the stream.
        stager: Stages their rows.
        peer: The controller, for messages.
    """

    def __init__(
        self, player: TimedPlayer, publications: Publications, stager: BlockStager, *, peer: str
    ) -> None:
        self._player, self._publications, self._peer = player, publications, peer
        self._stager = stager
        self._ordered: asyncio.Queue[tuple[pb.Play, PlayTerms]] = asyncio.Queue(maxsize=1)

    def take(self, order: pb.Play) -> None:
        """Take an order, whose parameters are those published last.

        Raises:
            InvalidContribution: They are not, or another order waits.
        """
        newest = self._publications.newest
        if newest is None or newest.publication.version != order.version:
            raise InvalidContribution(f"{self._peer}: version {order.version} was not published")
        play = PlayTerms(publication=newest.publication, env_steps=order.env_steps)
        if self._ordered.full():
            raise InvalidContribution(f"{self._peer}: it orders a block while another one waits")
        self._ordered.put_nowait((order, play))

    async def run(self, send: Callable[[bytes], Awaitable[None]]) -> None:
        """Play until cancelled; stages and reports each block, or the reason of its failure.

        Raises:
            Stuck: A block takes far longer than ever before.
            StaleTerm: A later controller has opened the table.
            InvalidContribution: Replay refuses a block.
        """
        idle_since = time.monotonic()
        while True:
            order, play = await self._ordered.get()
            idle_s, began_at = time.monotonic() - idle_since, time.monotonic()
            key = BlockKey(order.iteration, order.block)
            try:
                played = await self._player.play(key, play)
            except (EnvironmentFailed, Stuck) as error:
                log.warning("block_failed %s", error)
                failed = pb.Failed(iteration=key.iteration, block=key.block, reason=str(error))
                await send(pb.CollectorMessage(failed=failed).SerializeToString())
                if isinstance(error, Stuck):
                    raise
            else:
                playing_s = time.monotonic() - began_at
                staged = await self._stage(key, played)
                message = played_message(
                    key, played, staged=staged, playing_s=playing_s, idle_s=idle_s
                )
                await send(message.SerializeToString())
            idle_since = time.monotonic()

    async def _stage(self, key: BlockKey, played: PlayedBlock) -> bool:
        """Stage a block; False if replay is away, or knows no grant since it was started again."""
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
    staged: bool = True,
    playing_s: float = 0.0,
    idle_s: float = 0.0,
) -> pb.CollectorMessage:
    """Report a block."""
    return pb.CollectorMessage(
        played=pb.Played(
            iteration=key.iteration,
            block=key.block,
            rows=len(played.rows),
            earned=played.outcomes.earned.reshape(-1),
            won=played.outcomes.won,
            lengths=played.outcomes.lengths,
            digest=rows_digest(played.rows),
            staged=staged,
            playing_s=playing_s,
            idle_s=idle_s,
        )
    )
