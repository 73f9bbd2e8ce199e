"""Malformed messages of writers crash nothing, and a valid episode is taken after each of them."""

import numpy as np
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from fullrank.common.errors import InvalidContribution
from fullrank.common.types import FloatArray
from fullrank.net.replay_streams import episode_requests
from fullrank.replay import EpisodeLayout, MemoryStorage, Table
from fullrank.replay.authorship import ENTRIES, MOST
from fullrank.replay.intake import Arrival, Fate, Intake, WrittenEpisode
from fullrank.replay.pace import Pace
from fullrank.v1 import replay_pb2 as pb
from fullrank.v1.tensor_pb2 import Chunk
from fullrank_replay.episode_parser import EpisodeParser, RejectedEpisode

LAYOUT = EpisodeLayout(observation_sizes=(1,), action_sizes=(2,))
ENTRIES_SENT = LAYOUT.row_size
PACE = Pace(updates_per_episode=0.0, slack=0, window=1, warmup=0, max_lag=9)


def parser() -> EpisodeParser:
    return EpisodeParser(7, entries=ENTRIES_SENT, most_rows=50)


def episode(steps: int = 2) -> FloatArray:
    rows: FloatArray = np.zeros((steps + 1, ENTRIES_SENT), np.float32)
    rows[:, LAYOUT.available] = 1.0
    rows[-1, LAYOUT.length] = steps
    return rows


def takes(reader: EpisodeParser, sequence: int) -> bool:
    """True if a valid episode is taken now."""
    decided = [
        each
        for request in episode_requests(sequence, 0, episode())
        for each in reader.feed(request)
    ]
    last = decided[-1]
    return isinstance(last, WrittenEpisode) and np.array_equal(last.rows, episode())


chunks = st.builds(
    Chunk,
    array=st.integers(0, 1),
    offset=st.sampled_from([0, 4, 2**63]),
    total=st.sampled_from([0, 4, 24, 48, 72, 2**40]),
    crc32c=st.sampled_from([0, 2**32 - 1]),
    data=st.binary(max_size=80),
)
heads = st.builds(
    pb.EpisodeHead,
    sequence=st.one_of(st.integers(0, 40), st.just(2**63)),
    version=st.sampled_from([0, MOST, 2**64 - 1]),
)
requests = st.builds(
    lambda head, chunk: pb.WriteRequest(episode=head, chunk=chunk),
    st.none() | heads,
    st.none() | chunks,
)


@given(st.lists(requests, max_size=12))
def test_whatever_comes_is_decided_and_a_valid_episode_is_taken_after_it(
    messages: list[pb.WriteRequest],
) -> None:
    reader = parser()
    for message in messages:
        assert reader.bytes_of(message) <= 50 * 4 * ENTRIES_SENT
        for decided in reader.feed(message):
            assert isinstance(decided, RejectedEpisode | WrittenEpisode)
            if isinstance(decided, RejectedEpisode):
                assert decided.message().field in decided.reason
    assert takes(reader, reader.last + 1)
    assert not reader.receiving


def test_a_long_episode_comes_in_many_chunks() -> None:
    rows = np.zeros((2**18, ENTRIES_SENT), np.float32)
    reader = EpisodeParser(7, entries=ENTRIES_SENT, most_rows=2**18)
    messages = list(episode_requests(3, 5, rows))
    decided = [each for message in messages for each in reader.feed(message)]
    assert len(messages) > 8
    assert [(each.sequence, each.rows.nbytes) for each in decided] == [(3, rows.nbytes)]  # type: ignore[union-attr]


def malformed(count: int, *, seed: int) -> None:
    """Feed that many damaged copies of valid messages, and store what is accepted."""
    generator = np.random.default_rng(seed)
    table = Table(MemoryStorage(200, ENTRIES_SENT + ENTRIES), capacity=200)
    intake = Intake(table, Arrival(episodes=LAYOUT, pace=PACE))
    valid = [
        bytearray(request.SerializeToString())
        for steps in (1, 3, 9)
        for request in episode_requests(1, 0, episode(steps))
    ]
    reader, stored = parser(), 0
    places = generator.integers(0, 2**31, size=(count, 4))
    for number, (which, place, value, kind) in enumerate(places.tolist()):
        data = bytearray(valid[which % len(valid)])
        if kind % 3:
            data[place % len(data)] = value % 256
        if kind % 3 == 2:
            del data[value % len(data) :]
        try:
            message = pb.WriteRequest.FromString(bytes(data))
            decided = reader.feed(message)
        except (DecodeError, InvalidContribution):
            continue
        for each in decided:
            if isinstance(each, WrittenEpisode):
                stored += intake.store([each])[0].fate is Fate.STORED
        if number % 100 == 0:
            reader = parser()
    assert takes(parser(), 1)
    rows = table.gather(np.arange(table.tail, table.head))
    assert np.isfinite(rows).all()
    assert intake.draws.episodes == stored


def test_damaged_messages_crash_nothing() -> None:
    malformed(3_000, seed=1)


@pytest.mark.thorough
def test_very_many_damaged_messages_crash_nothing() -> None:
    malformed(100_000, seed=2)
