"""Readers of the messages by which collectors play and write, and by which iterations draw."""

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from google.protobuf.message import Message

from fullrank import __version__
from fullrank.algorithms.problem import Section
from fullrank.common.types import FloatArray, RunTerm
from fullrank.config.tree import ControllerSettings
from fullrank.replay import TABLE, EpisodeLayout, MemoryStorage, Table
from fullrank.replay.authorship import ENTRIES
from fullrank.replay.fence import Fence
from fullrank.replay.intake import Arrival, Intake, WrittenEpisode
from fullrank.replay.pace import Pace
from fullrank.replay.store import Store, table_key
from fullrank.rpc.codec import COLLECTOR_CHUNKS, PLAYED_CHUNKS, bundle, encode_chunks
from fullrank.rpc.messages import arrival_message, arrival_of, run_term_message, run_term_of
from fullrank.rpc.version import check_version
from fullrank.rpc.writer_client import EpisodeWriter, episode_requests
from fullrank.runs.event_log import EventLog
from fullrank.training.block_player import PlayedBlock
from fullrank.training.blocks import BlockPlan
from fullrank.v1 import controller_pb2, replay_pb2
from fullrank_collector.publications import Publications
from fullrank_controller.collectors.blocks_in import BlockParser
from fullrank_controller.collectors.free_pool import CollectorProgress, FreePool
from fullrank_controller.membership.member import Numerics
from fullrank_replay.episode_parser import EpisodeParser
from fullrank_replay.pacing import Pacing
from fullrank_replay.writes import Writes
from fuzz_targets import Target, a_run, refusals

LAYOUT = EpisodeLayout(observation_sizes=(1,), action_sizes=(2,))
ROW_SIZE = LAYOUT.row_size + ENTRIES
PACE = Pace(updates_per_episode=0.7, slack=0, window=8, warmup=8, max_lag=9)
ARRIVAL = Arrival(episodes=LAYOUT, pace=PACE)
RUN_TERM = RunTerm("r", 1)
KEY = table_key(RUN_TERM.run, TABLE)
PLAN = BlockPlan(copies=2, size=2)
SECTION_SIZE = 4

T = TypeVar("T")


def awaited(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of work on the loop of this program."""
    return asyncio.get_event_loop().run_until_complete(work)


def an_episode(steps: int) -> FloatArray:
    """Make an episode that passes all checks."""
    rows: FloatArray = np.zeros((steps + 1, LAYOUT.row_size), np.float32)
    rows[:, LAYOUT.available] = 1.0
    rows[-1, LAYOUT.length] = steps
    return rows


def collector_stream() -> Target:
    """A collector's messages, up to the block or the report, keyed and free."""
    run, _ = a_run()
    problem = replace(run.identity.problem, episodes=LAYOUT, row_size=LAYOUT.row_size)
    identity = replace(run.identity, problem=problem)
    lengths = np.array([2, 3])
    rows = np.concatenate([an_episode(steps) for steps in lengths])
    played = PlayedBlock(rows, np.ones((2, 1)), np.array([True, False]), lengths)
    told: dict[str, Any] = {"earned": [1.0, 1.0], "won": played.won, "lengths": lengths}
    header = controller_pb2.Played(iteration=1, rows=len(rows), digest=played.digest, **told)
    hello = controller_pb2.Hello(
        version=__version__, host="h", process=b"p", served=run_term_message(RUN_TERM)
    )
    ready = controller_pb2.Ready(fingerprint="f", probe=[b"p"], stable=True)
    said = [
        controller_pb2.CollectorMessage(hello=hello),
        controller_pb2.CollectorMessage(ready=ready),
        controller_pb2.CollectorMessage(failed=controller_pb2.Failed(block=1, reason="gone")),
        controller_pb2.CollectorMessage(wrote=controller_pb2.Wrote(writer=7, settled=2, **told)),
        controller_pb2.CollectorMessage(played=header),
    ]
    valid = [message.SerializeToString() for message in said]
    chunks = b"".join(bundle(encode_chunks(rows, array_id=0, field=PLAYED_CHUNKS)))
    roster = run.roster
    pool = FreePool(ControllerSettings(), roster=roster, progress=run.progress, agents=1)
    member = roster.members[1]

    async def read_freely(message: controller_pb2.CollectorMessage) -> None:
        pool.players[member] = CollectorProgress(heard_at=0.0, version=0)
        pool.totals.clear()
        with refusals():
            pool.take(member, message)
        pool.take_written()

    def read(data: bytes) -> None:
        message = controller_pb2.CollectorMessage.FromString(data)
        with refusals():
            run_term_of(message.hello.served)
            check_version(message.hello.version, peer="collector", own="controller")
        Numerics.of(message.ready.fingerprint, message.ready.probe)
        awaited(read_freely(message))
        BlockParser(identity, PLAN, agents=1).parse(message)

    return Target(read=read, valid=[*valid, chunks, valid[-1] + chunks])


def order_stream() -> Target:
    """A controller's messages, as a collector parses them."""
    sections = [Section(id=each, role="policy", owner=None, size=SECTION_SIZE) for each in range(2)]
    announced = controller_pb2.Publication(version=3, sections=[0, 1], env_steps=5)
    play = controller_pb2.Play(iteration=4, block=1, version=3, env_steps=5, deadline_s=1.0)
    said = [
        controller_pb2.CollectorOrder(publication=announced),
        controller_pb2.CollectorOrder(play=play),
    ]
    valid = [message.SerializeToString() for message in said]
    values = np.ones(SECTION_SIZE, np.float32)
    chunks = b"".join(
        each
        for section in range(2)
        for each in bundle(encode_chunks(values, array_id=section, field=COLLECTOR_CHUNKS))
    )

    def read(data: bytes) -> None:
        order = controller_pb2.CollectorOrder.FromString(data)
        publications = Publications(sections, peer="controller")
        publications.take(order)
        if publications.newest is not None:
            awaited(publications.after(-1))

    return Target(read=read, valid=[*valid, chunks, valid[0] + chunks])


def writer_stream() -> Target:
    """A writer's messages, up to the table, and the rules of a table that grows by arrival."""
    table = Table(MemoryStorage(200, ROW_SIZE), capacity=200)
    rows = LAYOUT.synthetic(np.random.default_rng(0), 1)
    rows[-2, LAYOUT.terminated] = rows[-1, LAYOUT.action] = 0.0
    valid: list[Message] = [*episode_requests(1, 0, rows), arrival_message(ARRIVAL)]

    def read(data: bytes) -> None:
        with refusals():
            arrival_of(replay_pb2.Arrival.FromString(data), row_size=ROW_SIZE)
        parser = EpisodeParser(7, entries=LAYOUT.row_size, most_rows=50)
        intake = Intake(table, ARRIVAL)
        request = replay_pb2.WriteRequest.FromString(data)
        assert parser.bytes_of(request) <= 50 * 4 * LAYOUT.row_size
        episodes = [each for each in parser.feed(request) if isinstance(each, WrittenEpisode)]
        intake.store(episodes)

    return Target(read=read, valid=[message.SerializeToString() for message in valid])


def writer_answers() -> Target:
    """Replay's answers, as a writer takes them."""
    refusal = replay_pb2.EpisodeRefusal(sequence=3, field="length", reason="length is 0")
    answers = [
        replay_pb2.WriteResponse(settled=2),
        replay_pb2.WriteResponse(settled=4, refused=[refusal]),
    ]

    async def taken(response: replay_pb2.WriteResponse) -> None:
        writer = EpisodeWriter("127.0.0.1:1", run_term=RUN_TERM)
        await writer._take(response)
        await writer.flush()
        await writer.close()

    def read(data: bytes) -> None:
        awaited(taken(replay_pb2.WriteResponse.FromString(data)))

    return Target(read=read, valid=[answer.SerializeToString() for answer in answers])


class Impatient(Pacing):
    """Waits for no episode."""

    async def until(self, holds: Any) -> bool:
        return bool(holds())


def draws() -> Target:
    """Requests of iterations that are to begin, to a table of ten episodes."""
    store, fence = Store(None, sync=False), Fence(None)
    table = store.open(KEY, row_size=ROW_SIZE, capacity=200)
    Intake(table, ARRIVAL).store(
        [WrittenEpisode(7, each, 0, an_episode(2)) for each in range(1, 11)]
    )
    fence.raise_to(KEY, RUN_TERM, arrival=ARRIVAL.to_json())
    writes = Writes(store, fence, Impatient(), EventLog())
    term = run_term_message(RUN_TERM)
    requests = [
        replay_pb2.AwaitDrawRequest(table=TABLE, run_term=term, iteration=each, newest=newest)
        for each, newest in ((0, 9), (1, 30), (2, 2**40), (2**40, 1))
    ]

    def read(data: bytes) -> None:
        request = replay_pb2.AwaitDrawRequest.FromString(data)
        writes.opened(KEY, Intake(table, ARRIVAL))
        awaited(writes.await_draw(request))

    return Target(read=read, valid=[request.SerializeToString() for request in requests])
