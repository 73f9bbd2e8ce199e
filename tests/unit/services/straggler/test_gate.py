"""Messages that a gate passes, and when, in virtual time."""

from collections.abc import Iterator
from math import inf
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullrank.common.errors import ConfigError, ServiceLost
from fullrank.config import PluginSettings, load, to_toml
from fullrank.config.faults import CorruptFault, DropFault, Fault, HoldFault, ThrottleFault
from fullrank.net.codec import LEARNER_CHUNKS, encode_chunks
from fullrank.v1 import controller_pb2 as pb
from fullrank.v1.common_pb2 import Ids
from fullrank_straggler.gate import Gate, Injection, injection_of

SEED, LEARNERS = 5, 4
OVERRIDES = [f"seed={SEED}", f"learners={LEARNERS}"]
CONFIGURATION = to_toml(load(None, environ={}, overrides=OVERRIDES).config)


def injection(name: str = "none", *faults: Fault, **params: object) -> Injection:
    return injection_of(PluginSettings(name=name, params=params), faults)


def late(delay_s: float, *faults: Fault) -> Injection:
    """Delay every learner by the same time."""
    return injection("bernoulli", *faults, probability=1.0, delay_s=delay_s)


class Stand:
    """A gate between a learner and a controller, with its injection."""

    def __init__(self, injected: Injection, *, learner: int = 1) -> None:
        self.injected = injected
        self.gate = Gate(lambda: self.injected)
        self.hear(welcome=pb.Welcome(learner=learner, configuration=CONFIGURATION))

    def hear(self, *, now: float = 0.0, **said: object) -> None:
        message = pb.ControllerMessage(**said)  # type: ignore[arg-type]
        self.gate.hear(message.SerializeToString(), now=now)

    def assign(self, iteration: int, *, now: float = 0.0) -> None:
        self.hear(assignment=pb.Assignment(ids=Ids(iteration=iteration)), now=now)

    def commit(self, iteration: int) -> None:
        self.hear(commit=pb.Commit(ids=Ids(iteration=iteration)))

    def send(self, messages: list[bytes], *, now: float) -> list[bytes]:
        """Accept messages; returns those due at once."""
        for message in messages:
            self.gate.take(message, now=now)
        return self.passed(now=now)

    def passed(self, *, now: float) -> list[bytes]:
        return list(self._passed(now))

    def _passed(self, now: float) -> Iterator[bytes]:
        while (message := self.gate.next(now=now)) is not None:
            yield message


def done(unit: int) -> bytes:
    return pb.LearnerMessage(units=[pb.UnitDone(unit=unit, digest=bytes(16))]).SerializeToString()


def vector(
    iteration: int, row: int = 1, *, entries: int = 150_000, compute_s: float = 0.0
) -> list[bytes]:
    """A coded vector as a learner sends it: its head, then three chunks."""
    head = pb.Coded(ids=Ids(iteration=iteration), row=row, compute_s=compute_s)
    chunks = encode_chunks(np.full(entries, float(row)), array_id=row, field=LEARNER_CHUNKS)
    return [pb.LearnerMessage(coded=head).SerializeToString(), *map(bytes, chunks)]


@pytest.mark.parametrize("entries", [1, 150_000])
def test_switched_off_every_message_goes_straight_through(entries: int) -> None:
    stand = Stand(injection())
    stand.assign(0)
    for message in [done(0), *vector(0, entries=entries), b"\xff\xff\xff", b"", done(1)]:
        [passed] = stand.send([message], now=0.0)
        assert passed is message
    assert stand.gate.due() == inf


@given(iteration=st.integers(0, 10**6), learner=st.integers(0, LEARNERS - 1))
def test_a_vector_is_held_for_the_delay_that_the_learner_itself_would_inject(
    iteration: int, learner: int
) -> None:
    stand = Stand(injection("exponential", mean_s=3.0), learner=learner)
    delays = stand.injected.model.delays(seed=SEED, iteration=iteration, learners=LEARNERS)
    stand.assign(iteration)
    messages = vector(iteration, entries=1)
    assert stand.send(messages, now=100.0) == []
    assert stand.gate.due() == 100.0 + delays[learner]
    assert stand.passed(now=np.nextafter(100.0 + delays[learner], 0.0)) == []
    assert stand.passed(now=100.0 + delays[learner]) == messages


def test_a_learner_beyond_the_configured_number_is_never_late() -> None:
    stand = Stand(late(1.0), learner=LEARNERS)
    stand.assign(0)
    assert len(stand.send(vector(0), now=0.0)) == 4


def test_chunks_that_come_after_the_delay_follow_their_head_at_once() -> None:
    stand = Stand(late(1.0))
    stand.assign(0)
    head, *chunks = vector(0)
    assert stand.send([head, chunks[0]], now=0.0) == []
    assert stand.passed(now=1.0) == [head, chunks[0]]
    assert stand.send([chunks[1]], now=1.5) == [chunks[1]]


def test_reports_overtake_the_vector_also_out_of_its_own_message() -> None:
    stand = Stand(late(1.0))
    stand.assign(0)
    bundled = done(0) + vector(0)[0]
    assert stand.send([bundled, done(1)], now=0.0) == [done(0), done(1)]
    assert stand.passed(now=1.0) == [vector(0)[0]]


def test_the_vector_of_a_newer_iteration_overtakes_a_held_one() -> None:
    stand = Stand(injection("trace", rows=[[0, 1, 9.0], [1, 1, 0.0]]))
    stand.assign(0)
    assert stand.send(vector(0), now=0.0) == []
    assert stand.send(vector(1), now=1.0) == vector(1)
    assert stand.passed(now=9.0) == vector(0)


def test_a_vector_that_is_under_way_is_finished_before_the_next_begins() -> None:
    stand = Stand(late(1.0))
    stand.assign(0)
    stand.send(vector(0, row=1), now=0.0)
    stand.injected = injection("trace", rows=[[1, 1, 9.0]])  # none in iteration 0
    first, rest = stand.gate.next(now=0.1), vector(0, row=1)[1:]
    assert first == vector(0, row=1)[0]
    assert stand.send(vector(0, row=2), now=0.2) == [*rest, *vector(0, row=2)]


def test_two_held_rows_leave_in_the_order_of_their_delays() -> None:
    stand = Stand(late(1.0))
    stand.assign(0)
    stand.send(vector(0, row=1), now=0.0)
    stand.send(vector(0, row=2), now=0.5)
    assert stand.passed(now=1.0) == vector(0, row=1)
    assert stand.gate.due() == 1.5
    assert stand.passed(now=1.5) == vector(0, row=2)


def test_further_work_of_an_iteration_waits_for_no_more_than_the_rest_of_the_delay() -> None:
    stand = Stand(late(5.0))
    stand.assign(0, now=10.0)
    assert stand.send(vector(0, row=1), now=11.0) == []
    assert stand.passed(now=16.0) == vector(0, row=1)
    stand.assign(0, now=12.0)
    assert stand.send(vector(0, row=2), now=20.0) == []
    assert stand.gate.due() == 23.0
    stand.assign(0, now=30.0)
    assert stand.send(vector(0, row=3), now=31.0) == vector(0, row=3)
    stand.assign(1, now=40.0)
    assert stand.send(vector(1), now=41.0) == []
    assert stand.gate.due() == 46.0


def test_a_slow_machine_is_held_for_the_time_that_its_computing_would_take_longer() -> None:
    stand = Stand(injection("slow_learners", k=LEARNERS, factor=4.0))
    stand.assign(0)
    assert stand.send(vector(0, row=1, compute_s=1.0), now=1.0) == []
    assert stand.send(vector(0, row=2, compute_s=2.0), now=2.0) == []
    assert stand.passed(now=4.0) == vector(0, row=1, compute_s=1.0)
    assert stand.gate.due() == 8.0


@pytest.mark.parametrize("compute_s", [np.nan, np.inf, -1.0])
def test_a_computing_time_that_cannot_be_is_not_made_longer(compute_s: float) -> None:
    stand = Stand(injection("slow_learners", k=LEARNERS))
    stand.assign(0)
    assert len(stand.send(vector(0, compute_s=compute_s), now=0.0)) == 4


def test_a_learner_that_is_away_is_heard_of_only_by_its_reports(tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_text("time_s,learner,away\n0,1,1\n50,1,0\n")
    stand = Stand(injection("trace", path=str(tmp_path / "trace.csv")))
    stand.assign(0, now=20.0)
    assert stand.send([done(0), *vector(0)], now=20.0) == [done(0)]
    assert stand.gate.due() == 50.0
    stand.assign(1, now=50.0)
    assert stand.send(vector(1), now=50.0) == vector(1)


def test_slow_units_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"^slow_units: no sidecar sees a unit computed; set it"):
        injection("slow_units")


@pytest.mark.parametrize("over", ["commit", "assign"])
def test_what_is_held_is_dropped_when_its_iteration_is_over(over: str) -> None:
    stand = Stand(late(1.0))
    stand.assign(0)
    head, *chunks = vector(0)
    assert stand.send([head, chunks[0]], now=0.0) == []
    stand.commit(0) if over == "commit" else stand.assign(1)
    assert stand.gate.due() == inf
    assert stand.send([*chunks[1:], done(3)], now=9.0) == [done(3)]
    assert stand.send(vector(0, row=2), now=9.0) == []
    assert stand.passed(now=99.0) == []


def test_what_has_not_left_of_a_released_vector_is_dropped_too() -> None:
    stand = Stand(late(1.0))
    stand.assign(0)
    stand.send(vector(0), now=0.0)
    assert stand.gate.next(now=1.0) is not None
    stand.commit(0)
    assert stand.passed(now=1.0) == []
    stand.assign(1)
    assert stand.send(vector(1), now=2.0) == []
    assert stand.passed(now=3.0) == vector(1)


def test_a_commit_of_an_older_iteration_drops_nothing() -> None:
    stand = Stand(late(1.0))
    stand.assign(6)
    stand.send(vector(6), now=0.0)
    stand.commit(5)
    assert stand.passed(now=1.0) == vector(6)


def test_an_undelayed_vector_passes_whatever_is_committed_meanwhile() -> None:
    stand = Stand(injection())
    stand.assign(0)
    head, *chunks = vector(0)
    assert stand.send([head], now=0.0) == [head]
    stand.commit(0)
    assert stand.send(chunks, now=0.0) == chunks


def test_a_change_counts_for_what_is_held() -> None:
    stand = Stand(injection("none", HoldFault()))
    stand.assign(0)
    assert stand.send(vector(0), now=0.0) == []
    assert stand.gate.due() == inf
    stand.injected = late(2.0)
    assert stand.gate.due() == 2.0
    stand.injected = injection()
    assert stand.passed(now=1.0) == vector(0)


def test_faults_strike_the_learners_and_iterations_that_they_name() -> None:
    stand = Stand(injection("none", HoldFault(learners=(1,), iterations=(3,))))
    other = Stand(injection("none", HoldFault(learners=(1,), iterations=(3,))), learner=2)
    for iteration in range(5):
        stand.assign(iteration)
        other.assign(iteration)
        assert bool(stand.send(vector(iteration), now=0.0)) == (iteration != 3)
        assert other.send(vector(iteration), now=0.0) == vector(iteration)


def test_a_dropped_connection_ends_with_the_vector() -> None:
    stand = Stand(injection("none", DropFault(iterations=(2,))))
    stand.assign(2)
    assert stand.send([done(0)], now=0.0) == [done(0)]
    with pytest.raises(ServiceLost, match="iteration 2"):
        stand.gate.take(vector(2)[0], now=0.0)


def test_a_corrupted_vector_differs_in_one_byte() -> None:
    stand = Stand(late(1.0, CorruptFault(byte=9)))
    stand.assign(0)
    stand.send([done(0) + vector(0, entries=2)[0] + vector(0, entries=2)[1]], now=0.0)
    [message] = stand.passed(now=1.0)
    [chunk] = pb.LearnerMessage.FromString(message).chunks
    expected = bytearray(np.ones(2).tobytes())
    expected[9] ^= 0xFF
    assert chunk.data == bytes(expected)


def test_the_throttle_of_now_counts() -> None:
    stand = Stand(injection("none", ThrottleFault(bytes_per_s=5.0, iterations=(1,))))
    assert stand.gate.bytes_per_s is None
    stand.assign(1)
    assert stand.gate.bytes_per_s == 5.0
    stand.injected = injection()
    assert stand.gate.bytes_per_s is None


@pytest.mark.parametrize("name", ["fixed_k", "slow_learners"])
def test_a_model_that_cannot_be_for_the_run_is_refused_at_welcome(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name}: k = 5 stragglers need at least 5 learners"):
        Stand(injection(name, k=5))
