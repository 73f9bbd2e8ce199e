"""Audits of blocks: the controller plays drawn ones itself before it accepts them."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cached_property

from fullrank.audit.ledger import AuditDraws
from fullrank.common.errors import EnvironmentFailed
from fullrank.replay.staging import rows_digest
from fullrank.training.block_player import BlockPlayer
from fullrank.training.blocks import BlockKey
from fullrank_controller.collectors.blocks_in import BlockReport
from fullrank_controller.collectors.pool import CollectorPool
from fullrank_controller.membership.member import Numerics
from fullrank_controller.watchdog import Watchdog

log = logging.getLogger(__name__)


class Unprovable(Exception):
    """A block cannot be proved; the message completes "blocks ..."."""


class BlockAudit:
    """Compares blocks of collectors with what this process plays, and convicts false reports.

    Which blocks it plays is drawn under the secret of the run, so that no collector can foresee it.

    Args:
        pool: The collectors.
        share: Share of the blocks that are drawn, ``audit.blocks``.
        secret: Key of the draws.
        make_player: Makes a player as collectors have it.
        own_numerics: Computes the numerics of this process.
        watchdog: Observes playing.
    """

    def __init__(
        self,
        pool: CollectorPool,
        *,
        share: float,
        secret: bytes,
        make_player: Callable[[], BlockPlayer],
        own_numerics: Callable[[], Numerics],
        watchdog: Watchdog,
    ) -> None:
        self._pool, self._share, self._draws = pool, share, AuditDraws(secret)
        self._make_player, self._own_numerics = make_player, own_numerics
        self._watchdog, self._turn = watchdog, asyncio.Lock()
        self._playing: asyncio.Task[bool] | None = None
        self._believed = Counter[str]()

    @cached_property
    def _player(self) -> BlockPlayer:
        return self._make_player()

    @cached_property
    def _identity(self) -> str:
        return self._own_numerics().identity

    async def refuted(self, reports: Sequence[BlockReport]) -> list[BlockKey]:
        """Play drawn blocks, and convict the collectors of those that are other ones.

        Returns:
            The keys of all blocks of convicted collectors; they have to be played again.
        """
        for report in reports:
            drawn = self._draws.spots(*report.key, probability=self._share, purpose="block")
            if drawn and not report.is_void and await self._is_false(report):
                self._pool.convict(report)
        return [report.key for report in reports if report.is_void]

    async def _is_false(self, report: BlockReport) -> bool:
        """Tell if a block is another one here; one that cannot be proved is believed."""
        async with self._turn:
            self._playing = asyncio.create_task(asyncio.to_thread(self._differs, report))
            try:
                with self._watchdog.phase("playing a block again"):
                    return await asyncio.shield(self._playing)
            except Unprovable as error:
                self._believed[str(error)] += 1
        counts = "; ".join(f"{count} {reason}" for reason, count in self._believed.items())
        self._pool.progress.record_caveat(
            "blocks",
            f"{self._believed.total()} blocks drawn by audit.blocks are believed: {counts}",
        )
        return False

    def _differs(self, report: BlockReport) -> bool:
        """Play the block of a report, twice before it is called false.

        Raises:
            Unprovable: This process does not play what an honest collector does.
        """
        assert report.member is not None  # the report was taken
        if report.container is not None:
            raise Unprovable("of containers, which act with their own heads")
        if report.member.identity != self._identity:
            raise Unprovable("of another numeric fingerprint than the controller's")
        try:
            own = self._played(report)
            if own != report.digest and self._played(report) != own:
                raise Unprovable("of an environment that does not repeat its episodes")
        except EnvironmentFailed as error:
            log.warning("not_audited %s", error)
            raise Unprovable("that the controller could not play") from error
        return own != report.digest

    def _played(self, report: BlockReport) -> bytes:
        """Play a block; returns the digest that an honest report of it has."""
        assert report.play is not None  # it was ordered
        played = self._player.play(report.key, report.play)
        honest = report._replace(rows_digest=rows_digest(played.rows), outcomes=played.outcomes)
        return honest.digest

    async def end(self) -> None:
        """Close the environments once the block that is being played is finished."""
        if self._playing is not None:
            with self._watchdog.phase("playing a block again"):
                await asyncio.gather(self._playing, return_exceptions=True)
        if "_player" in self.__dict__:
            self._player.close()
