"""Tables that grow by arrival: their inboxes, and the streams and iterations that use them."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from functools import partial

from fullrank.common.errors import (
    ConfigError,
    DeadlinePassed,
    InvalidContribution,
    ServiceLost,
    StaleTerm,
)
from fullrank.common.failpoints import reach
from fullrank.common.types import RunTerm
from fullrank.net.messages import check_version, run_term_of
from fullrank.replay.authorship import MOST
from fullrank.replay.fence import Fence
from fullrank.replay.intake import Arrival, EpisodeOutcome, Fate, Intake, WrittenEpisode
from fullrank.replay.store import Store, table_key
from fullrank.runs.event_log import EventLog
from fullrank.runs.events import Stored
from fullrank.v1 import replay_pb2 as pb
from fullrank_replay.appends import RECEIVE_S
from fullrank_replay.episode_parser import EpisodeParser, RejectedEpisode
from fullrank_replay.inbox import Inbox, QueuedEpisode
from fullrank_replay.pacing import Pacing
from fullrank_replay.writer_stream import SendResponse, WriterStream


class Writes:
    """Inboxes by table.

    Args:
        store: The tables.
        fence: Admits the writers of the controller that opened a table last.
        pacing: Admits groups between gathers.
        event_log: Records stored episodes before they are acknowledged.
    """

    def __init__(self, store: Store, fence: Fence, pacing: Pacing, event_log: EventLog) -> None:
        self._store, self._fence, self._pacing = store, fence, pacing
        self._event_log = event_log
        self._inboxes: dict[str, Inbox] = {}

    def opened(self, table: str, intake: Intake | None) -> None:
        """Take the intake of a table that a controller has opened, and end its writers' streams."""
        before = self._inboxes.pop(table, None)
        if before is not None:
            before.close(StaleTerm(f"table {table!r} was opened by another controller meanwhile"))
        if intake is not None:
            self._take(table, intake)

    def _take(self, table: str, intake: Intake) -> Inbox:
        inbox = Inbox(intake, self._pacing, partial(self._commit, table))
        return self._inboxes.setdefault(table, inbox)

    async def inbox(self, table: str) -> Inbox:
        """The inbox of a table, under the rules with which it was opened last.

        Raises:
            NotFound: There is no such table.
            ConfigError: It is written by position.
        """
        held = self._store.get(table)
        if table in self._inboxes:
            return self._inboxes[table]
        arrival = self._fence.arrival(table)
        if arrival is None:
            raise ConfigError(
                f"table {table!r} is written by position; a controller that has writers opens it "
                "with arrival"
            )
        rules = Arrival.of_json(arrival)
        return self._take(table, await self._pacing.locked(partial(Intake, held, rules)))

    def gathered(self, table: str, iteration: int) -> None:
        """Note that a minibatch was gathered."""
        if table in self._inboxes:
            self._inboxes[table].intake.draws.gathered(iteration)

    async def serve(self, requests: AsyncIterator[pb.WriteRequest], send: SendResponse) -> None:
        """Serve one writer's stream.

        Raises:
            FullrankError: The stream ends with an error.
        """
        hello = (await _first(requests)).hello
        key = table_key(hello.run_term.run, hello.table)
        run_term, inbox = self._checked(key, hello), await self.inbox(key)
        answer = await self._pacing.locked(partial(_greeted, inbox.intake, hello))
        self._fence.check(key, run_term)  # it may have been opened anew meanwhile
        stream = WriterStream(inbox, _parser(inbox.intake, hello.writer), run_term=run_term)
        if (older := inbox.senders.get(hello.writer)) is not None:
            older.fail(ServiceLost(f"writer {hello.writer:012x} has opened another stream"))
        inbox.senders[hello.writer] = stream
        try:
            await send(answer)
            await stream.converse(requests, send)
        finally:
            if inbox.senders.get(hello.writer) is stream:
                del inbox.senders[hello.writer]

    def _checked(self, key: str, hello: pb.WriterHello) -> RunTerm:
        """The term of a writer.

        Raises:
            InvalidContribution: A field is missing.
            VersionMismatch: It runs another version.
            StaleTerm: A later controller has opened the table.
        """
        for name, value in (("writer", hello.writer), ("first", hello.first)):
            if not 0 < value <= MOST:
                raise InvalidContribution(f"hello.{name} is {value}, not 1 to {MOST}")
        check_version(hello.version, peer="writer", own="replay service")
        run_term = run_term_of(hello.run_term)
        self._store.get(key)
        self._fence.check(key, run_term)
        return run_term

    def _commit(
        self, table: str, group: Sequence[QueuedEpisode]
    ) -> list[EpisodeOutcome | Exception]:
        """Store a group, in a thread, without the episodes of writers of an earlier term."""
        decided: list[EpisodeOutcome | Exception | None] = [None] * len(group)
        for index, waiting in enumerate(group):
            try:
                self._fence.check(table, waiting.sender.run_term)
            except StaleTerm as error:
                decided[index] = error
        outcomes = iter(
            self._stored(
                table,
                [
                    waiting.episode
                    for waiting, error in zip(group, decided, strict=True)
                    if error is None
                ],
            )
        )
        return [next(outcomes) if error is None else error for error in decided]

    def _stored(self, table: str, episodes: Sequence[WrittenEpisode]) -> list[EpisodeOutcome]:
        held = self._store.get(table)
        first = held.head
        outcomes = self._inboxes[table].intake.store(episodes)
        reach("rows.stored")
        written = [
            (episode.writer, episode.sequence)
            for episode, outcome in zip(episodes, outcomes, strict=True)
            if outcome.fate is Fate.STORED
        ]
        if written:
            self._event_log.append(
                Stored(table=table, first=first, head=held.head, episodes=tuple(written))
            )
        return outcomes

    async def await_draw(self, request: pb.AwaitDrawRequest) -> pb.AwaitDrawResponse:
        """Answer once an iteration may begin, or after a while how much is missing."""
        key = table_key(request.run_term.run, request.table)
        self._store.get(key)
        self._fence.check(key, run_term_of(request.run_term))
        if not request.newest:
            raise InvalidContribution("newest is 0: an iteration draws from at least one row")
        if request.iteration > MOST:
            raise InvalidContribution(f"iteration is {request.iteration}, more than {MOST}")
        intake = (await self.inbox(key)).intake
        intake.draws.asked(request.iteration)
        await self._pacing.notify()
        if not await self._pacing.until(lambda: intake.draws.may_draw(request.iteration)):
            due = intake.arrival.pace.due(request.iteration)
            return pb.AwaitDrawResponse(
                episodes=intake.draws.episodes, missing=max(1, due - intake.draws.episodes)
            )
        reached = await self._pacing.locked(partial(intake.draws.draw, newest=request.newest))
        return pb.AwaitDrawResponse(
            tail=reached.tail,
            head=reached.head,
            episodes=reached.newest.number,
            writer=reached.newest.writer,
            sequence=reached.newest.sequence,
            version=reached.newest.version,
            lag=reached.lag,
        )


def _parser(intake: Intake, writer: int) -> EpisodeParser:
    return EpisodeParser(writer, entries=intake.entries, most_rows=intake.most_rows)


def _greeted(intake: Intake, hello: pb.WriterHello) -> pb.WriteResponse:
    """The answer to a writer's first message: its episodes that are settled already."""
    last = intake.writers.last_of(hello.writer)
    refused = [
        RejectedEpisode(
            sequence, f"sequence {sequence} is not in the table, and {last} of its writer is"
        )
        for sequence in intake.writers.missing(hello.writer, first=hello.first)
    ]
    return pb.WriteResponse(settled=last, refused=[refusal.message() for refusal in refused])


async def _first(requests: AsyncIterator[pb.WriteRequest]) -> pb.WriteRequest:
    """The message in which a writer names itself.

    Raises:
        InvalidContribution: There is none.
        DeadlinePassed: It does not come.
    """
    try:
        async with asyncio.timeout(RECEIVE_S):
            request = await anext(requests, None)
    except TimeoutError:
        raise DeadlinePassed(f"no hello came for {RECEIVE_S:.0f} s") from None
    if request is None or not request.HasField("hello"):
        raise InvalidContribution("hello is missing: the first message names the writer")
    return request
