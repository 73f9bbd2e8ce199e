"""Whatever well-formed message a peer sends, its reader returns or raises the one error."""

import json
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, TypeVar

import numpy as np
import pytest
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st
from tests.hostile import TEXTS, hostile
from tests.unit.runs.test_record import record

from fullrank.cli.status_view import headline, learners, players
from fullrank.common.errors import (
    ConfigError,
    FullrankError,
    InvalidContribution,
    Malformed,
    VersionMismatch,
)
from fullrank.config import from_toml
from fullrank.net.channel import PLAINTEXT
from fullrank.net.codec import decode_agent
from fullrank.net.messages import episode_layout_of, head_of, run_term_of, sample_of
from fullrank.net.monitor import AsyncMonitor, _policies
from fullrank.net.monitor_messages import (
    decode_code,
    decode_iteration,
    decode_setup,
    decode_status,
    encode_iteration,
)
from fullrank.net.server import Server
from fullrank.net.status import RunState, Status
from fullrank.net.straggler import decode_fault, decode_model
from fullrank.v1 import common_pb2, controller_pb2, replay_pb2, straggler_pb2
from fullrank.v1 import monitor_pb2 as pb
from fullrank_dashboard.following import _delay_model
from fullrank_dashboard.server import PageState
from fullrank_dashboard.view import RunView

M = TypeVar("M")
T = TypeVar("T")

STATUS = controller_pb2.GetStatusResponse(
    run="run",
    term=1,
    state=controller_pb2.RUN_STATE_RUNNING,
    iterations=10,
    learners=[controller_pb2.LearnerStatus(learner=0, host="host", rows=[0])],
    collectors=[controller_pb2.CollectorStatus(collector=0)],
)
CODE = pb.GetCodeResponse(
    epoch=1,
    name="cyclic",
    parameters="{}",
    units=2,
    rows=[controller_pb2.Row(row=0, units=[0, 1], coefficients=[1.0, 2.0])],
    holders=[pb.Holder(row=0, learner=0)],
    plan=pb.Plan(code="cyclic", forecasts=[pb.Forecast(code="cyclic", mean_s=1.0)]),
)
AGENT = controller_pb2.Agent(
    name="agent", observation_size=4, discrete=controller_pb2.Discrete(n=2), always_zero=[1]
)
SETUP = pb.GetConfigurationResponse(run="run", version="1", configuration="", agents=[AGENT])
ITERATION = encode_iteration(
    record(
        assigned_s={0: 0.0, 3: 0.1},
        started_s={0: 0.1, 3: 0.2},
        sent_s={0: 0.8, 3: 0.7},
        arrival_s={0: 0.9, 3: 0.8},
        rows={0: 0, 3: 1},
        decodable_s=0.8,
        code_rows=4,
    )
)
POLICIES = pb.GetPoliciesResponse(iteration=1)
POLICIES.chunk.total = 8


def read(reader: Callable[[M], T], message: M, *errors: type[FullrankError]) -> T | None:
    """What a reader returns; None if it raises one of the errors, in one line."""
    try:
        return reader(message)
    except errors as error:
        reason = str(error)
    assert "\n" not in reason
    assert len(reason) < 2000
    return None


def look(status: Any, code: Any, iterations: Any) -> None:
    """Show everything that a monitor has answered, as page and terminal do."""
    view = RunView("run")
    if iterations is not None:
        view.committed(iterations)
    if status is not None:
        view.stands(status, code)
        shown = Status(now=status, records=iterations or ())
        headline(shown)
        json.dumps(shown.facts(), allow_nan=False)
        learners(Status(now=status))
        players(status)
    json.dumps(PageState().news(view), allow_nan=False)


@given(hostile(STATUS))
def test_a_status_is_shown_or_malformed(message: controller_pb2.GetStatusResponse) -> None:
    if (status := read(decode_status, message, Malformed)) is not None:
        look(status, None, None)


def test_the_state_of_a_later_version_is_named_by_its_number() -> None:
    for number in (0, 99):
        message = controller_pb2.GetStatusResponse()
        message.CopyFrom(STATUS)
        message.state = number  # type: ignore[assignment]
        status = decode_status(message)
        assert status.state == f"unknown ({number})"
        assert f"term 1: unknown ({number}), 0 of 10" in headline(Status(now=status))[0]
    assert decode_status(STATUS).state is RunState.RUNNING


@given(hostile(CODE))
def test_a_code_is_shown_or_malformed(message: pb.GetCodeResponse) -> None:
    if (code := read(decode_code, message, Malformed)) is not None:
        look(decode_status(STATUS), code, None)


@given(hostile(ITERATION))
def test_an_iteration_is_shown_or_malformed(message: pb.Iteration) -> None:
    if (iteration := read(decode_iteration, message, Malformed)) is not None:
        look(None, None, [iteration])


def test_numbers_that_are_not_finite_are_unknown_as_in_a_file() -> None:
    message = encode_iteration(
        record(return_mean=np.inf, condition=np.nan, statistics={"loss": np.nan, "value": 1.0})
    )
    message.side_returns["prey"] = np.nan
    read = decode_iteration(message)
    assert (read.return_mean, read.condition) == (None, None)
    assert read.statistics == {"value": 1.0}
    assert read.side_returns == {"team": -1.5}
    message.round_s = np.nan
    with pytest.raises(Malformed, match="the iteration: round_s: "):
        decode_iteration(message)


@given(hostile(SETUP))
def test_a_configuration_is_read_or_refused(message: pb.GetConfigurationResponse) -> None:
    setup = read(decode_setup, message, ConfigError, Malformed, VersionMismatch)
    if setup is None:
        return
    view = RunView("run")
    view.is_of(setup.config, _delay_model(setup.config.stragglers))
    try:
        view.committed([record(late=(1,), decodable_s=0.1, arrival_s={0: 0.1, 3: 0.1})])
    except ConfigError:  # more stragglers than learners
        return
    json.dumps(PageState().news(view), allow_nan=False)


@given(TEXTS)
def test_the_text_of_a_configuration_is_read_or_refused_in_one_line(text: str) -> None:
    read(from_toml, text, ConfigError, VersionMismatch)


@given(st.lists(hostile(POLICIES), min_size=1, max_size=3))
def test_policies_are_whole_or_refused(messages: list[pb.GetPoliciesResponse]) -> None:
    read(_policies, messages, FullrankError)


READERS: dict[str, tuple[Message, Any]] = {
    "agent": (AGENT, decode_agent),
    "run term": (common_pb2.RunTerm(run="run", term=1), run_term_of),
    "sample": (
        common_pb2.Sample(table="transitions", size=1, once=common_pb2.EachOnce()),
        sample_of,
    ),
    "episodes": (
        replay_pb2.EpisodeSizes(observation_sizes=[3], action_sizes=[2]),
        lambda message: episode_layout_of(message, row_size=20),
    ),
    "head": (
        controller_pb2.ContainerHead(container=1, updates=2),
        lambda message: head_of(message, size=4),
    ),
    "delay model": (straggler_pb2.DelayModel(name="none"), decode_model),
    "fault": (straggler_pb2.Fault(learners=[1], hold=straggler_pb2.Hold()), decode_fault),
}


def test_steps_that_need_larger_rows_are_refused() -> None:
    """An action, the reward, the end and the length have entries besides those that are named."""
    sizes = replay_pb2.EpisodeSizes(observation_sizes=[2], action_sizes=[1])
    assert episode_layout_of(sizes, row_size=7).row_size == 7
    with pytest.raises(InvalidContribution, match="episodes needs rows of 7, not 6"):
        episode_layout_of(sizes, row_size=6)


@pytest.mark.parametrize("name", READERS)
def test_every_other_reader_returns_or_raises_a_named_error(name: str) -> None:
    honest, reader = READERS[name]

    @given(hostile(honest))
    def check(message: Message) -> None:
        read(reader, message, ConfigError, Malformed)

    check()


def test_a_record_with_more_rows_than_any_code_is_malformed() -> None:
    message = encode_iteration(replace(record(), assigned_s={0: 0.0}))
    message.rows_per_learner = 2**32 - 1
    with pytest.raises(Malformed, match="rows_per_learner"):
        decode_iteration(message)


async def test_answers_that_are_no_messages_are_malformed_for_every_call_of_a_monitor() -> None:
    async def garbage(request: Any, context: Any) -> bytes:
        return b"\xff" * 9

    async def stream(request: Any, context: Any) -> None:
        await context.write(b"\xff" * 9)

    service = pb.DESCRIPTOR.services_by_name["MonitorService"]
    names = {method.name: method.server_streaming for method in service.methods}
    servicer = SimpleNamespace(
        **{name: stream if streaming else garbage for name, streaming in names.items()}
    )
    server = Server(service, servicer, security=PLAINTEXT, prebuilt=frozenset(names))
    address = await server.start("127.0.0.1:0")
    try:
        async with AsyncMonitor(address) as monitor:
            for call in (monitor.status, monitor.code, monitor.setup, monitor.policies):
                with pytest.raises(Malformed, match=rf"^monitor {address}: its answer is no"):
                    await call()
            with pytest.raises(Malformed, match=rf"^monitor {address}: its answer is no"):
                await anext(monitor.watch())
    finally:
        await server.stop()
