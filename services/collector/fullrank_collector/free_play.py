"""Free collection: play block after block with the newest parameters, and write to replay.

A block follows from (parameters, writer, number), so that an episode is a pure function of the
version, the writer and the sequence that its rows hold.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence

from fullrank.common.errors import EnvironmentFailed, Stuck
from fullrank.common.types import FloatArray, RunTerm
from fullrank.net.channel import Security
from fullrank.net.replay_streams import EpisodeWriter, RefusedEpisode
from fullrank.training.block_player import PlayedBlock, PlayTerms
from fullrank.training.blocks import FAILURES, BlockKey
from fullrank.v1 import controller_pb2 as pb
from fullrank_collector.container_play import ContainerPlay
from fullrank_collector.publications import Publications
from fullrank_collector.timed_player import TimedPlayer

log = logging.getLogger(__name__)

SendMessage = Callable[[pb.CollectorMessage], Awaitable[None]]


class Writing:
    """The writer of a process, which keeps its name and what is not settled between streams.

    Args:
        address: ``host:port`` of replay.
        run_term: Term of the controller.
        block: Episodes of a block.
        security: Identity of this process.

    Attributes:
        address: As given.
        block: As given.
        writer: Sends the episodes.
        stale: Episodes that were refused because their parameters were too old.
        invalid: Episodes that were refused as invalid.
        outdated: The newest version that was too old; -1 if none was.
        objection: Why the last invalid episode was one.
    """

    def __init__(self, address: str, *, run_term: RunTerm, block: int, security: Security) -> None:
        self.address, self.block = address, block
        self.writer = EpisodeWriter(
            address,
            run_term=run_term,
            window=2 * block,  # one is played while another is stored
            security=security,
            refused=self._refused,
        )
        self.stale = self.invalid = self._blocks = 0
        self.outdated, self.objection = -1, ""

    def next_key(self) -> BlockKey:
        """Return the key of the next block."""
        self._blocks += 1
        return BlockKey(self.writer.writer, self._blocks - 1)

    async def write(
        self, key: BlockKey, episodes: Mapping[int, FloatArray], *, version: int
    ) -> None:
        """Write episodes of a block, by their numbers in it, as soon as the window has room.

        Raises:
            FullrankError: As ``EpisodeWriter.write``.
        """
        first = key.block * self.block + 1
        for number, rows in episodes.items():
            await self.writer.write(rows, version=version, sequence=first + number)

    def _refused(self, refusal: RefusedEpisode) -> None:
        log.warning("refused sequence=%d reason=%s", refusal.sequence, refusal.reason)
        if refusal.field == "version":
            self.stale += 1
            self.outdated = max(self.outdated, refusal.version)
        else:
            self.invalid += 1
            self.objection = f"an episode was refused: {refusal.reason}"


class FreePlay:
    """Plays for one stream.

    Args:
        writing: The writer.
        player: Plays the blocks.
        publications: Those of the stream, of which the first has come.
        container: The container, if the collector is one.
    """

    def __init__(
        self,
        writing: Writing,
        player: TimedPlayer,
        publications: Publications,
        container: ContainerPlay | None = None,
    ) -> None:
        self._writing, self._player, self._publications = writing, player, publications
        self._container = container

    async def run(self, run_term: RunTerm, send: SendMessage) -> None:
        """Play until cancelled.

        Args:
            run_term: Term of the controller, under which the table is open.
            send: Sends a message to the controller.

        Raises:
            EnvironmentFailed: It raised in ``FAILURES`` blocks on end.
            Stuck: A block takes far longer than ever before.
            StaleTerm: A later controller has opened the table.
            FullrankError: Replay refuses this writer.
        """
        writing, failures, said = self._writing, 0, ""
        writing.outdated = -1
        writing.writer.renew(run_term)
        while True:
            play = await self._terms()
            key = writing.next_key()
            try:
                played = await self._player.play(key, play)
            except (EnvironmentFailed, Stuck) as error:
                log.warning("block_failed %s", error)
                failures += 1
                await send(_failed(key, str(error)))
                if failures == FAILURES or isinstance(error, Stuck):
                    raise
                continue
            failures, version = 0, play.publication.version
            travelling = self._travelling(played.episodes)
            await writing.write(key, travelling, version=version)
            wrote = _wrote(writing, played, version=version)
            if self._container is not None:
                wrote.container.CopyFrom(self._container.report(len(travelling)))
            await send(pb.CollectorMessage(wrote=wrote))
            if writing.objection != said:
                said = writing.objection
                await send(_failed(key, said))

    async def _terms(self) -> PlayTerms:
        """Return the parameters of the next block."""
        outdated = self._writing.outdated
        newest = await self._publications.after(outdated)
        if self._container is None:
            return newest
        return self._container.terms(newest, outdated=outdated)

    def _travelling(self, episodes: Sequence[FloatArray]) -> Mapping[int, FloatArray]:
        """Return the episodes of a block that are written to replay, by number."""
        if self._container is None:
            return dict(enumerate(episodes))
        return {number: episodes[number] for number in self._container.store(episodes)}


def _failed(key: BlockKey, reason: str) -> pb.CollectorMessage:
    return pb.CollectorMessage(failed=pb.Failed(block=key.block, reason=reason))


def _wrote(writing: Writing, played: PlayedBlock, *, version: int) -> pb.Wrote:
    return pb.Wrote(
        version=version,
        earned=played.outcomes.earned.reshape(-1),
        won=played.outcomes.won,
        lengths=played.outcomes.lengths,
        writer=writing.writer.writer,
        settled=writing.writer.answered,
        stale=writing.stale,
        invalid=writing.invalid,
    )
