"""Whatever a controller says, a session with it returns or raises the one error."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import cache
from typing import Any, cast

import numpy as np
import pytest
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st
from tests.answering import GARBAGE, Answers, answering, dialogues
from tests.waiting import WAIT_S

from fullrank.common.errors import ConfigError, FullrankError, Malformed
from fullrank.config import from_toml, load, to_toml
from fullrank.config.tree import RunConfig
from fullrank.net.channel import PLAINTEXT
from fullrank.net.codec import chunks, encode_environment
from fullrank.net.server import Health
from fullrank.replay.table import TABLE
from fullrank.runs.events import EventLog
from fullrank.training.block_player import acting_sections
from fullrank.v1 import controller_pb2 as pb
from fullrank.v1 import replay_pb2
from fullrank.v1.common_pb2 import Ids, Sample
from fullrank.wiring.training import initial_algorithm, training_of
from fullrank_collector.run_context import CollectorContext
from fullrank_collector.server import CollectorSession
from fullrank_learner.run_context import LearnerContext
from fullrank_learner.session import LearnerSession

pytestmark = pytest.mark.integration

CONTROLLER = pb.DESCRIPTOR.services_by_name["ControllerService"]
REPLAY = replay_pb2.DESCRIPTOR.services_by_name["ReplayService"]
BATCH = 8
SETTINGS = (
    f"algorithm.batch_size={BATCH}",
    "algorithm.hidden=4",
    "compute.device=cpu",
    "learners=4",
    "code.name=uncoded",
)
KEYED = ("collect.mode=keyed", "collect.block=1", "environment.copies=1", "collectors.count=1")

Serve = Callable[[str], Awaitable[None]]


@cache
def setup(*overrides: str) -> tuple[pb.Welcome, Sequence[tuple[int, bytes]], Sequence[int]]:
    """Welcome of a run, its sections, and those that act."""
    config = load(environ={}, overrides=[*SETTINGS, *overrides]).check().config
    training = training_of(config)
    algorithm = initial_algorithm(config, training)
    welcome = pb.Welcome(
        run="run",
        term=1,
        configuration=to_toml(config),
        **encode_environment(training.environment),
        lease=b"lease",
    )
    sections = [
        (section.id, algorithm.parameters.view(section.id).tobytes())
        for section in training.problem.sections
    ]
    training.collector.close()
    return welcome, sections, acting_sections(algorithm)


def pieces(*, of: Sequence[int], overrides: Sequence[str] = ()) -> list[Any]:
    sections = dict(setup(*overrides)[1])
    return [
        piece
        for section in of
        for piece in chunks(np.frombuffer(sections[section], np.float32), array_id=section)
    ]


def assignment() -> pb.Assignment:
    sections = [section for section, _ in setup()[1]]
    return pb.Assignment(
        ids=Ids(run="run", term=1, iteration=3),
        rows=[pb.Row(row=0, units=[0, 1], coefficients=[1.0, 2.0])],
        version=3,
        sample=Sample(table=TABLE, iteration=3, head=20, size=BATCH),
        deadline_s=1.0,
        sections=sections,
    )


def welcome(replay: str, *overrides: str) -> pb.Welcome:
    """The welcome of a run whose replay has that address."""
    message = pb.Welcome(replay_address=replay)
    message.MergeFrom(setup(*overrides)[0])
    return message


def to_learner(replay: str) -> list[Message]:
    chunked = pieces(of=assignment().sections)
    return [
        pb.ControllerMessage(welcome=welcome(replay)),
        pb.ControllerMessage(assignment=assignment()),
        pb.ControllerMessage(chunks=chunked),
        pb.ControllerMessage(refused=pb.Refused(reason=pb.REFUSAL_UNREADABLE)),
        pb.ControllerMessage(commit=pb.Commit(ids=Ids(iteration=3))),
    ]


def to_collector(replay: str) -> list[Message]:
    _, _, acting = setup(*KEYED)
    publication = pb.Publication(version=1, sections=acting)
    return [
        pb.CollectorOrder(welcome=welcome(replay, *KEYED)),
        pb.CollectorOrder(publication=publication),
        pb.CollectorOrder(chunks=pieces(of=acting, overrides=KEYED)),
        pb.CollectorOrder(play=pb.Play(version=1, env_steps=1, deadline_s=1.0)),
    ]


def learning(pool: ThreadPoolExecutor) -> Serve:
    async def serve(address: str) -> None:
        session = LearnerSession(load(environ={}).config, pool=pool, event_log=EventLog())
        await session.run(address, PLAINTEXT, Health(""))

    return serve


def collecting(pool: ThreadPoolExecutor) -> Serve:
    config = load(environ={}, overrides=[*SETTINGS, *KEYED]).config

    async def serve(address: str) -> None:
        session = CollectorSession(config, pool=pool)
        try:
            await session.run(address, PLAINTEXT, Health(""))
        finally:
            if session.context is not None:
                session.context.close()

    return serve


SESSIONS = {"learner": (to_learner, learning), "collector": (to_collector, collecting)}


async def bounded(ending: Awaitable[None]) -> None:
    async with asyncio.timeout(WAIT_S):
        await ending


async def each(strategy: st.SearchStrategy[Any], ending: Callable[[Any], Awaitable[None]]) -> None:
    """Check that every drawn dialogue ends, and by a named error if by one."""
    loop = asyncio.get_running_loop()

    @given(strategy)
    def check(drawn: Any) -> None:
        ends = asyncio.run_coroutine_threadsafe(cast(Any, bounded(ending(drawn))), loop)
        error = ends.exception(WAIT_S)
        assert error is None or isinstance(error, FullrankError), repr(error)
        assert "\n" not in str(error)

    await asyncio.to_thread(check)


def check_log(caplog: pytest.LogCaptureFixture) -> None:
    """No session raised what it does not mean to; gRPC logs how the fake controller is left."""
    own = [record for record in caplog.records if not record.name.startswith("grpc")]
    raised = [record.getMessage() for record in own if record.exc_info]
    # The poller of gRPC may still wake the loop of a test that is over.
    assert not [text for text in raised if "PollerCompletionQueue" not in text], caplog.text[-3000:]


@asynccontextmanager
async def peers() -> AsyncIterator[tuple[Answers, str]]:
    """A controller that holds its streams open, and the address of a replay without tables."""
    async with answering(CONTROLLER) as controller, answering(REPLAY) as replay:
        controller.waits, replay.given = True, [b""]
        yield controller, replay.address


@pytest.mark.parametrize("role", SESSIONS)
async def test_a_session_ends_by_a_named_error_whatever_its_controller_says(
    role: str, caplog: pytest.LogCaptureFixture
) -> None:
    honest, session_of = SESSIONS[role]
    with ThreadPoolExecutor(1) as pool:
        serve = session_of(pool)
        async with peers() as (controller, replay):

            async def ending(given: list[bytes]) -> None:
                controller.given = [*given, GARBAGE]
                await serve(controller.address)

            said = dialogues(honest(replay), spared=frozenset({"replay_address"}))
            await each(said, ending)
    check_log(caplog)


@pytest.mark.parametrize(
    "context", [LearnerContext, lambda welcome: CollectorContext(welcome, RunConfig())]
)
@pytest.mark.parametrize(
    ("vast", "reason"),
    [
        ({"hidden": 10**15}, "parameters"),
        ({"batch_size": 10**12}, "the largest minibatch"),
    ],
)
def test_a_run_that_needs_more_memory_than_any_is_refused_before_it_is_allocated(
    context: Callable[[pb.Welcome], Any], vast: dict[str, int], reason: str
) -> None:
    said = welcome("")
    config = from_toml(said.configuration)
    algorithm = replace(config.algorithm, params={**config.algorithm.params, **vast})
    said.configuration = to_toml(replace(config, algorithm=algorithm))
    with pytest.raises(ConfigError, match=reason):
        context(said)


@pytest.mark.parametrize("agents", [0, 3])
def test_an_environment_of_no_or_vast_agents_is_malformed(agents: int) -> None:
    vast = pb.Agent(name="vast", observation_size=2**20, discrete=pb.Discrete(n=2**20))
    said = welcome("")
    del said.agents[:]
    said.agents.extend([vast] * agents)
    with pytest.raises(Malformed, match=f"^{agents} agents with {agents * 2**21} observed"):
        LearnerContext(said)
