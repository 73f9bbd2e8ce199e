"""Whatever a service answers, its client returns within bounds or raises the one error."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message import Message
from hypothesis import given
from tests.answering import GARBAGE, answering, dialogues
from tests.unit.services.replay.replay_service import ROW_SIZE, RUN_TERM, rows, sample
from tests.waiting import WAIT_S

from fullrank import __version__
from fullrank.common.errors import FullrankError, Malformed
from fullrank.config import load
from fullrank.config.tree import PluginSettings
from fullrank.net.codec import chunks
from fullrank.net.controller_client import ControllerClient, StatusPoller
from fullrank.net.messages import run_term_message, sample_message
from fullrank.net.replay_client import ReplayClient, close_run
from fullrank.net.status import RunStatus
from fullrank.net.straggler import encode_injection, get_injection, set_injection
from fullrank.v1 import common_pb2, controller_pb2, replay_pb2, straggler_pb2

Ask = Callable[[str], Awaitable[Any]]
"""Calls a service at an address, and takes what it answers."""

REPLAY = replay_pb2.DESCRIPTOR.services_by_name["ReplayService"]
CONTROLLER = controller_pb2.DESCRIPTOR.services_by_name["ControllerService"]
STRAGGLER = straggler_pb2.DESCRIPTOR.services_by_name["StragglerService"]
WHOLE = sample(size=4)
EPISODES = sample_message(WHOLE)
EPISODES.episodes.CopyFrom(common_pb2.EpisodeDraw(length=0, newest=4))


def of_replay(call: Callable[[ReplayClient], Awaitable[Any]]) -> Ask:
    async def ask(address: str) -> Any:
        client = ReplayClient(address, deadline_s=WAIT_S)
        client.under(RUN_TERM)
        try:
            return await call(client)
        finally:
            await client.close()

    return ask


async def opened(client: ReplayClient) -> None:
    tail, head = await client.open_table(row_size=3, capacity=10, head=4, run_term=RUN_TERM)
    assert 0 <= tail <= head <= 4


async def accepted(client: ReplayClient) -> None:
    unstaged = await client.accept(1, 0, [bytes(16)] * 2, rows=4, first=5)
    assert unstaged is None or set(unstaged.blocks) <= {5, 6}


def sampled(message: common_pb2.Sample, items: tuple[int, ...] | None) -> Ask:
    async def fetch(client: ReplayClient) -> None:
        gathered = await client.get_sample(message, row_size=ROW_SIZE, items=items)
        assert gathered.rows.shape[1] == ROW_SIZE

    return of_replay(fetch)


def of_controller(call: Callable[[ControllerClient], Awaitable[Any]]) -> Ask:
    async def ask(address: str) -> Any:
        client = ControllerClient(address)
        try:
            return await call(client)
        finally:
            await client.close()

    return ask


async def stood(client: ControllerClient) -> None:
    status = await client.status(timeout_s=WAIT_S)
    assert isinstance(status, controller_pb2.GetStatusResponse)


async def injected(address: str) -> None:
    await asyncio.to_thread(get_injection, address)
    await asyncio.to_thread(set_injection, address, model=PluginSettings(name="none"), faults=())


def minibatch(lengths: Sequence[int] = ()) -> Sequence[Message]:
    pieces = [*chunks(rows(4), array_id=0)]
    return [replay_pb2.GetSamplesResponse(chunk=piece, lengths=lengths) for piece in pieces]


INJECTION = encode_injection(PluginSettings(name="none"), ())
SOME = tuple(range(4))
CASES: dict[str, tuple[ServiceDescriptor, Sequence[Message], Ask]] = {
    "open a table": (
        REPLAY,
        [replay_pb2.OpenTableResponse(head=4, version=__version__)],
        of_replay(opened),
    ),
    "append": (
        REPLAY,
        [replay_pb2.AcceptBlocksResponse(head=2)],
        of_replay(lambda client: client.append(0, rows(2))),
    ),
    "accept": (REPLAY, [replay_pb2.AcceptBlocksResponse(head=4)], of_replay(accepted)),
    "accept later": (REPLAY, [replay_pb2.AcceptBlocksResponse(missing=[6])], of_replay(accepted)),
    "map a table": (
        REPLAY,
        [replay_pb2.LocateTableResponse(path="/dev/zero", opened=run_term_message(RUN_TERM))],
        of_replay(lambda client: client.map_table()),
    ),
    "confirm": (
        REPLAY,
        [replay_pb2.LocateTableResponse(path="/dev/zero", opened=run_term_message(RUN_TERM))],
        of_replay(lambda client: client.confirm()),
    ),
    "sample": (REPLAY, minibatch(), sampled(sample_message(WHOLE), None)),
    "sample some": (REPLAY, minibatch([1] * 4), sampled(sample_message(WHOLE), SOME)),
    "sample episodes": (REPLAY, minibatch(), sampled(EPISODES, None)),
    "sample some episodes": (REPLAY, minibatch([1] * 4), sampled(EPISODES, SOME)),
    "close a run": (
        REPLAY,
        [replay_pb2.CloseRunResponse()],
        lambda address: close_run(address, RUN_TERM),
    ),
    "stage": (
        REPLAY,
        [replay_pb2.StageBlockResponse()],
        of_replay(lambda client: client.stage(0, 0, rows(2), np.array([2]))),
    ),
    "heartbeat": (
        CONTROLLER,
        [controller_pb2.HeartbeatResponse()],
        of_controller(lambda client: client.heartbeat(b"lease", timeout_s=WAIT_S)),
    ),
    "status": (CONTROLLER, [controller_pb2.GetStatusResponse(run="run")], of_controller(stood)),
    "injection": (
        STRAGGLER,
        [straggler_pb2.GetInjectionResponse(injection=INJECTION)],
        injected,
    ),
}


@pytest.mark.parametrize(
    "answer",
    [
        GARBAGE,
        controller_pb2.GetStatusResponse(
            learners=[controller_pb2.LearnerStatus(batch_bytes=2**63)]
        ).SerializeToString(),
    ],
    ids=["no message", "a number out of range"],
)
async def test_a_status_that_cannot_be_read_is_none(answer: bytes, tmp_path: Path) -> None:
    """The run that `fullrank train` watches does not end with it."""
    async with answering(CONTROLLER) as answers:
        answers.given = [answer]
        config = load(overrides=[f"controller.address={answers.address}"]).config
        with StatusPoller(tmp_path, config) as watch:
            assert await asyncio.to_thread(watch.status) == RunStatus()


async def bounded(ask: Ask, address: str) -> None:
    """Ask, which ends."""
    async with asyncio.timeout(WAIT_S):
        await ask(address)


@pytest.mark.parametrize("name", CASES)
async def test_an_honest_answer_is_taken(name: str) -> None:
    service, honest, ask = CASES[name]
    async with answering(service) as answers:
        answers.given = [message.SerializeToString() for message in honest]
        if name == "map a table":
            with pytest.raises(FullrankError, match="/dev/zero"):
                await bounded(ask, answers.address)
        else:
            await bounded(ask, answers.address)


@pytest.mark.parametrize("name", CASES)
async def test_a_hostile_answer_is_taken_or_raises_a_named_error(name: str) -> None:
    service, honest, ask = CASES[name]
    loop = asyncio.get_running_loop()
    async with answering(service) as answers:

        @given(dialogues(honest))
        def check(messages: list[bytes]) -> None:
            answers.given = messages
            asking = asyncio.run_coroutine_threadsafe(bounded(ask, answers.address), loop)
            error = asking.exception(WAIT_S)
            assert error is None or isinstance(error, FullrankError), repr(error)
            assert "\n" not in str(error)
            assert len(str(error)) < 2000

        await asyncio.to_thread(check)


@pytest.mark.parametrize(
    "name", sorted(CASES.keys() - {"close a run", "append", "heartbeat", "stage"})
)
async def test_bytes_that_are_no_message_are_malformed(name: str) -> None:
    service, _, ask = CASES[name]
    async with answering(service) as answers:
        answers.given = [GARBAGE]
        with pytest.raises(Malformed, match=rf"^\w+ {answers.address}: its answer is no message"):
            await bounded(ask, answers.address)
