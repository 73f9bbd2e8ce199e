"""A Work stream through the sidecar in virtual time: delays and throttles are exact."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from typing import Any, TypeVar

import grpc
import numpy as np
import pytest
from numpy.typing import NDArray
from tests.faultlab.simulation.virtual_loop import VirtualLoop

from fullrank.config import PluginSettings, load, to_toml
from fullrank.config.faults import ThrottleFault
from fullrank.net.codec import LEARNER_CHUNKS, encode_chunks
from fullrank.v1 import controller_pb2 as pb
from fullrank.v1.common_pb2 import Ids
from fullrank_straggler.gate import Control, injection_of
from fullrank_straggler.server import Relay, WorkRelay

LEARNERS, ITERATIONS, SEED = 5, 100, 11
OVERRIDES = [f"learners={LEARNERS}", f"seed={SEED}"]
CONFIGURATION = to_toml(load(None, environ={}, overrides=OVERRIDES).config)
EXPONENTIAL = PluginSettings(name="exponential", params={"mean_s": 0.3})
PARETO = PluginSettings(name="pareto", params={"scale_s": 0.3, "shape": 3.0})
NONE = PluginSettings(name="none")

T = TypeVar("T")


def in_virtual_time(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run to the end on a loop that jumps from timer to timer."""
    loop = VirtualLoop()
    try:
        return loop.run_until_complete(coroutine)
    finally:
        loop.close()


class Side(asyncio.Queue[bytes]):
    """One side of the stream, as the relay uses it: a gRPC context and a gRPC call in one."""

    def __init__(self) -> None:
        super().__init__()
        self.written = asyncio.Queue[bytes]()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            yield await self.get()

    async def write(self, message: bytes) -> None:
        self.written.put_nowait(message)

    async def initial_metadata(self) -> tuple[()]:
        return ()

    async def send_initial_metadata(self, metadata: tuple[()]) -> None:
        pass

    def cancel(self) -> None:
        pass


def vector(iteration: int) -> list[bytes]:
    """A coded vector as a learner sends it: its head, then its one chunk."""
    head = pb.LearnerMessage(coded=pb.Coded(ids=Ids(iteration=iteration)))
    chunks = encode_chunks(np.ones(500), array_id=0, field=LEARNER_CHUNKS)
    return [head.SerializeToString(), *map(bytes, chunks)]


async def crossing_s(control: Control, *, learner: int) -> NDArray[np.float64]:
    """Seconds that the vector of each iteration takes through the relay, shape (iterations,)."""
    clock = asyncio.get_running_loop().time
    here: Any = Side()
    beyond: Any = Side()
    relaying = asyncio.ensure_future(WorkRelay(aiter(here), here, beyond, control).run())
    welcome = pb.Welcome(learner=learner, configuration=CONFIGURATION)
    beyond.put_nowait(pb.ControllerMessage(welcome=welcome).SerializeToString())
    await here.written.get()
    seconds = np.empty(ITERATIONS)
    for iteration in range(ITERATIONS):
        assignment = pb.Assignment(ids=Ids(iteration=iteration))
        beyond.put_nowait(pb.ControllerMessage(assignment=assignment).SerializeToString())
        await here.written.get()
        sent = clock()
        for message in vector(iteration):
            here.put_nowait(message)
        for message in vector(iteration):
            assert await beyond.written.get() == message
        seconds[iteration] = clock() - sent
    relaying.cancel()
    await asyncio.wait({relaying})
    return seconds


@pytest.mark.parametrize("settings", [EXPONENTIAL, PARETO], ids=lambda settings: settings.name)
def test_five_hundred_vectors_arrive_as_late_as_the_delay_model_says(
    settings: PluginSettings,
) -> None:
    """The tests of the delay models judge the distribution of delays."""
    injection = injection_of(settings)
    arrived = [
        in_virtual_time(crossing_s(Control(injection), learner=learner))
        for learner in range(LEARNERS)
    ]
    decided = [
        injection.model.delays(seed=SEED, iteration=iteration, learners=LEARNERS)
        for iteration in range(ITERATIONS)
    ]
    np.testing.assert_allclose(np.transpose(arrived), decided, rtol=0, atol=1e-6)


def test_a_throttled_vector_takes_as_long_as_its_bytes() -> None:
    throttle = ThrottleFault(bytes_per_s=100_000.0, iterations=(3, 4))
    seconds = in_virtual_time(crossing_s(Control(injection_of(NONE, (throttle,))), learner=1))
    expected = np.zeros(ITERATIONS)
    expected[3:5] = sum(map(len, vector(3))) / throttle.bytes_per_s
    np.testing.assert_allclose(seconds, expected, rtol=0, atol=1e-6)


class Ended(Side):
    """An upstream call that has ended, as whoever writes to it is told."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self._error, self._told = error, asyncio.Event()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        await self._told.wait()
        return
        yield b""

    async def write(self, message: bytes) -> None:
        self._told.set()
        raise self._error

    async def trailing_metadata(self) -> tuple[()]:
        return ()

    async def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.ABORTED

    async def details(self) -> str:
        return "of another term"


class Caller(Side):
    """A caller that keeps the status of its stream."""

    def set_trailing_metadata(self, metadata: tuple[()]) -> None:
        pass

    def set_code(self, code: grpc.StatusCode) -> None:
        self.code = code

    def set_details(self, details: str) -> None:
        self.details = details


@pytest.mark.parametrize("error", [grpc.aio.InternalError(), asyncio.InvalidStateError()])
def test_who_writes_to_a_call_that_has_ended_gets_its_status(error: Exception) -> None:
    async def relayed() -> tuple[grpc.StatusCode, str]:
        here: Any = Caller()
        beyond: Any = Ended(error)
        here.put_nowait(b"too late")
        await Relay(aiter(here), here, beyond).run()
        return here.code, here.details

    assert in_virtual_time(relayed()) == (grpc.StatusCode.ABORTED, "of another term")
