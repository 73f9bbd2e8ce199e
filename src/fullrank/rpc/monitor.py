"""Clients of MonitorService: ``Monitor`` blocks, ``AsyncMonitor`` does not; both say the same."""

from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np

from fullrank.common.errors import ServiceLost
from fullrank.common.types import FloatArray
from fullrank.rpc.channel import open_blocking_channel, open_channel
from fullrank.rpc.codec import Assembler
from fullrank.rpc.errors import translated
from fullrank.rpc.identity import Role
from fullrank.rpc.iterations import decode_iteration
from fullrank.rpc.run_status import (
    CodeInUse,
    RunStatus,
    Setup,
    decode_code,
    decode_setup,
    decode_status,
)
from fullrank.rpc.security import PLAINTEXT, Security
from fullrank.runs.record import IterationRecord
from fullrank.v1 import controller_pb2
from fullrank.v1 import monitor_pb2 as pb
from fullrank.v1.monitor_pb2_grpc import MonitorServiceStub

CALL_S = 10.0
"""Deadline of a call that asks for what there is."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Policies:
    """The policies of a checkpoint."""

    iteration: int
    """The last one that they learnt from."""
    term: int
    """In which they were saved."""
    parameters: dict[int, FloatArray]
    """Agent to flat parameters, laid out as monitor.proto says."""


def _nothing(lost: int) -> None:
    """Nobody wants to know."""


def _records(response: pb.WatchResponse, on_lost: Callable[[int], None]) -> list[IterationRecord]:
    if response.lost:
        on_lost(response.lost)
    return [decode_iteration(each) for each in response.iterations]


def _policies(responses: Iterable[pb.GetPoliciesResponse]) -> Policies:
    iteration, term, assemblers = 0, 0, dict[int, Assembler]()
    parameters: dict[int, FloatArray] = {}
    for response in responses:
        iteration, term, chunk = response.iteration, response.term, response.chunk
        if chunk.array not in parameters:
            parameters[chunk.array] = np.empty(chunk.total // 4, np.float32)
            assemblers[chunk.array] = Assembler(parameters[chunk.array], array_id=chunk.array)
        assemblers[chunk.array].add(chunk)
    if not all(assembler.complete for assembler in assemblers.values()):
        raise ServiceLost("the policies are not whole; ask again")
    return Policies(iteration=iteration, term=term, parameters=parameters)


class Monitor:
    """Watches a run; a context manager.

    Every method raises ``ServiceLost`` where the controller does not answer, and ``NotFound`` where
    what is asked for is not there yet.

    Args:
        address: ``host:port`` of the controller's monitor.
        security: How to dial it.
    """

    def __init__(self, address: str, *, security: Security = PLAINTEXT) -> None:
        self._channel = open_blocking_channel(address, trust=security.towards(Role.CONTROLLER))
        self._stub = MonitorServiceStub(self._channel)
        self._peer = f"monitor {address}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Hang up."""
        self._channel.close()

    def status(self) -> RunStatus:
        """Where the run stands at this moment."""
        with translated(self._peer):
            request = controller_pb2.GetStatusRequest()
            return decode_status(self._stub.GetStatus(request, timeout=CALL_S))

    def watch(
        self,
        from_iteration: int = 0,
        *,
        seen_term: int = 0,
        until_now: bool = False,
        on_lost: Callable[[int], None] = _nothing,
    ) -> Iterator[IterationRecord]:
        """The committed iterations, those that there are and then each new one, to the run's end.

        An iteration that comes again under a later term supersedes it and all after it.

        Args:
            from_iteration: The first one wanted.
            seen_term: Term of the iteration before it, if that was seen.
            until_now: End when all that is committed now has come.
            on_lost: Called with the number of iterations that are left out because we read slowly.
        """
        request = pb.WatchRequest(
            from_iteration=from_iteration, seen_term=seen_term, until_now=until_now
        )
        call = self._stub.Watch(request, timeout=CALL_S if until_now else None)
        try:
            with translated(self._peer):
                for response in call:
                    yield from _records(response, on_lost)
        finally:
            call.cancel()

    def code(self) -> CodeInUse:
        """C, who holds its rows, and the planner's reasons."""
        with translated(self._peer):
            return decode_code(self._stub.GetCode(pb.GetCodeRequest(), timeout=CALL_S))

    def setup(self) -> Setup:
        """What is trained, and how."""
        with translated(self._peer):
            request = pb.GetConfigurationRequest()
            return decode_setup(self._stub.GetConfiguration(request, timeout=CALL_S))

    def policies(self) -> Policies:
        """The policies of the newest checkpoint."""
        with translated(self._peer):
            return _policies(self._stub.GetPolicies(pb.GetPoliciesRequest(), timeout=CALL_S))


class AsyncMonitor:
    """``Monitor`` for an event loop; an asynchronous context manager.

    Args:
        address: ``host:port`` of the controller's monitor.
        security: How to dial it.
    """

    def __init__(self, address: str, *, security: Security = PLAINTEXT) -> None:
        self._channel = open_channel(address, trust=security.towards(Role.CONTROLLER))
        self._stub = MonitorServiceStub(self._channel)
        self._peer = f"monitor {address}"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Hang up."""
        await self._channel.close()

    async def status(self) -> RunStatus:
        """As ``Monitor.status``."""
        with translated(self._peer):
            request = controller_pb2.GetStatusRequest()
            return decode_status(await self._stub.GetStatus(request, timeout=CALL_S))

    async def watch(
        self,
        from_iteration: int = 0,
        *,
        seen_term: int = 0,
        until_now: bool = False,
        on_lost: Callable[[int], None] = _nothing,
    ) -> AsyncGenerator[IterationRecord, None]:
        """As ``Monitor.watch``."""
        request = pb.WatchRequest(
            from_iteration=from_iteration, seen_term=seen_term, until_now=until_now
        )
        call = self._stub.Watch(request, timeout=CALL_S if until_now else None)
        try:
            with translated(self._peer):
                async for response in call:
                    for record in _records(response, on_lost):
                        yield record
        finally:
            call.cancel()

    async def code(self) -> CodeInUse:
        """As ``Monitor.code``."""
        with translated(self._peer):
            return decode_code(await self._stub.GetCode(pb.GetCodeRequest(), timeout=CALL_S))

    async def setup(self) -> Setup:
        """As ``Monitor.setup``."""
        with translated(self._peer):
            request = pb.GetConfigurationRequest()
            return decode_setup(await self._stub.GetConfiguration(request, timeout=CALL_S))

    async def policies(self) -> Policies:
        """As ``Monitor.policies``."""
        with translated(self._peer):
            call = self._stub.GetPolicies(pb.GetPoliciesRequest(), timeout=CALL_S)
            return _policies([response async for response in call])
