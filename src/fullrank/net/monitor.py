"""Clients of MonitorService: ``AsyncMonitor``, and ``Monitor`` that blocks; their address."""

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Thread
from typing import Any, Literal, Self, TypeVar

import numpy as np

from fullrank.common.errors import Malformed, ServiceLost
from fullrank.common.types import FloatArray
from fullrank.config.elsewhere import read_run, require
from fullrank.config.tree import RunConfig, TlsSettings
from fullrank.host.certificates import CERTIFICATE, Role
from fullrank.host.run_directory import is_address, resolve, trainer_of
from fullrank.net.channel import PLAINTEXT, Security, open_channel
from fullrank.net.codec import Assembler
from fullrank.net.errors import translated
from fullrank.net.monitor_messages import decode_code, decode_iteration, decode_setup, decode_status
from fullrank.net.status import CodeInUse, RunStatus, Setup
from fullrank.runs.ending import read_ending
from fullrank.runs.record import IterationRecord, published
from fullrank.v1 import controller_pb2
from fullrank.v1 import monitor_pb2 as pb
from fullrank.v1.monitor_pb2_grpc import MonitorServiceStub

T = TypeVar("T")

CALL_S = 10.0
"""Deadline of a call that does not wait for new iterations."""

AWAY_S, LONGEST_PAUSE_S = 600.0, 10.0
"""Pauses while a controller is away, in all and the longest, seconds."""

POLICIES_BYTES = 2**32
"""Most bytes of the policies of a run."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Policies:
    """The policies of a checkpoint."""

    iteration: int
    """Last iteration whose update they contain."""
    term: int
    """Term in which they were saved."""
    parameters: dict[int, FloatArray]
    """Flat parameters by agent, in the layout that monitor.proto describes."""


def _pauses() -> Iterator[float]:
    """Pauses before a controller that is away is dialled again, ``AWAY_S`` in all."""
    pause_s, left_s = 0.2, AWAY_S
    while left_s > 0:
        yield pause_s
        left_s, pause_s = left_s - pause_s, min(2 * pause_s, LONGEST_PAUSE_S)


def _ignore(lost: int) -> None:
    """Ignore lost iterations."""


def _records(response: pb.WatchResponse, on_lost: Callable[[int], None]) -> list[IterationRecord]:
    if response.lost:
        on_lost(response.lost)
    return [decode_iteration(iteration) for iteration in response.iterations]


def _policies(responses: Iterable[pb.GetPoliciesResponse]) -> Policies:
    iteration, term, announced, assemblers = 0, 0, 0, dict[int, Assembler]()
    parameters: dict[int, FloatArray] = {}
    for response in responses:
        iteration, term, chunk = response.iteration, response.term, response.chunk
        if chunk.array not in parameters:
            announced += chunk.total
            if chunk.total % 4 or announced > POLICIES_BYTES:
                raise Malformed(f"policies of {announced} bytes; {POLICIES_BYTES} are the limit")
            parameters[chunk.array] = np.empty(chunk.total // 4, np.float32)
            assemblers[chunk.array] = Assembler(parameters[chunk.array], array_id=chunk.array)
        assemblers[chunk.array].add(chunk)
    if not all(assembler.complete for assembler in assemblers.values()):
        raise ServiceLost("the policies are incomplete; ask again")
    return Policies(iteration=iteration, term=term, parameters=parameters)


class AsyncMonitor:
    """A client of a run's monitor; an asynchronous context manager.

    Every method raises ``ServiceLost`` if the controller does not answer, ``NotFound`` if the run
    does not have the answer yet, and ``Malformed`` if no version of Fullrank answers so.

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
        """Close the channel."""
        await self._channel.close()

    async def status(self) -> RunStatus:
        """Current status of the run."""
        with translated(self._peer):
            request = controller_pb2.GetStatusRequest()
            return decode_status(await self._stub.GetStatus(request, timeout=CALL_S))

    async def watch(
        self,
        from_iteration: int = 0,
        *,
        seen_term: int = 0,
        until_now: bool = False,
        on_lost: Callable[[int], None] = _ignore,
    ) -> AsyncGenerator[IterationRecord, None]:
        """The committed iterations: the existing ones, then each new one until the run ends.

        An iteration that comes again under a later term supersedes it and all after it. Once it has
        begun, a controller that is away is dialled again for ``AWAY_S``, and the iterations go on
        where they stopped; not so ``until_now``.

        Args:
            from_iteration: First iteration.
            seen_term: Term of the iteration before it, if the caller has that iteration.
            until_now: End with the last iteration committed at the time of the call.
            on_lost: Called with the number of iterations left out because the caller reads slowly.
        """
        pauses_s: Iterator[float] | None = None  # none before the first iteration
        while True:
            request = pb.WatchRequest(
                from_iteration=from_iteration, seen_term=seen_term, until_now=until_now
            )
            call = self._stub.Watch(request, timeout=CALL_S if until_now else None)
            try:
                with translated(self._peer):
                    async for response in call:
                        for record in _records(response, on_lost):
                            from_iteration, seen_term = record.iteration + 1, record.term
                            pauses_s = _pauses()
                            yield record
                return
            except ServiceLost:
                if until_now or pauses_s is None or (pause_s := next(pauses_s, None)) is None:
                    raise
            finally:
                call.cancel()
            await asyncio.sleep(pause_s)

    async def code(self) -> CodeInUse:
        """C, the holders of its rows, and the planner's forecasts."""
        with translated(self._peer):
            return decode_code(await self._stub.GetCode(pb.GetCodeRequest(), timeout=CALL_S))

    async def setup(self) -> Setup:
        """Configuration and agents of the run."""
        with translated(self._peer):
            request = pb.GetConfigurationRequest()
            return decode_setup(await self._stub.GetConfiguration(request, timeout=CALL_S))

    async def policies(self) -> Policies:
        """Policies of the newest checkpoint."""
        with translated(self._peer):
            call = self._stub.GetPolicies(pb.GetPoliciesRequest(), timeout=CALL_S)
            return _policies([response async for response in call])


class Monitor:
    """``AsyncMonitor`` for programs without an event loop; a context manager.

    Each method blocks until its counterpart of ``AsyncMonitor`` has returned, on a thread of its
    own.

    Args:
        address: ``host:port`` of the controller's monitor.
        security: How to dial it.
    """

    def __init__(self, address: str, *, security: Security = PLAINTEXT) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

        async def dial() -> AsyncMonitor:
            return AsyncMonitor(address, security=security)

        self._monitor = self._wait(dial())

    def _wait(self, call: Coroutine[Any, Any, T]) -> T:
        future = asyncio.run_coroutine_threadsafe(call, self._loop)
        try:
            return future.result()
        finally:
            future.cancel()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the channel and end the thread."""
        if self._loop.is_closed():
            return
        self._wait(self._monitor.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def status(self) -> RunStatus:
        """Return the run's status; see ``AsyncMonitor.status``."""
        return self._wait(self._monitor.status())

    def watch(
        self,
        from_iteration: int = 0,
        *,
        seen_term: int = 0,
        until_now: bool = False,
        on_lost: Callable[[int], None] = _ignore,
    ) -> Iterator[IterationRecord]:
        """Yield committed iterations; see ``AsyncMonitor.watch``."""
        records = self._monitor.watch(
            from_iteration, seen_term=seen_term, until_now=until_now, on_lost=on_lost
        )

        async def following() -> IterationRecord | None:
            return await anext(records, None)

        try:
            while (record := self._wait(following())) is not None:
                yield record
        finally:
            if not self._loop.is_closed():
                self._wait(records.aclose())

    def code(self) -> CodeInUse:
        """Return the code in use; see ``AsyncMonitor.code``."""
        return self._wait(self._monitor.code())

    def setup(self) -> Setup:
        """Return the run's configuration; see ``AsyncMonitor.setup``."""
        return self._wait(self._monitor.setup())

    def policies(self) -> Policies:
        """Return the newest policies; see ``AsyncMonitor.policies``."""
        return self._wait(self._monitor.policies())


def monitor_of(
    run: str,
    tls: TlsSettings,
    *,
    port: Literal["monitor", "controller"] = "monitor",
    role: Role = Role.MONITOR,
) -> tuple[str, Security]:
    """Address and security of a run's monitor; a restarted controller may listen elsewhere.

    Args:
        run: The run's directory, or ``host:port``.
        tls: Certificates to present; without any, those that the run is configured with.
        port: The controller's port that is called.
        role: Role of the caller.

    Raises:
        FullrankError: The directory is not that of a run, or the certificates cannot be used.
        ServiceLost: The run has no controller at the moment.
    """
    if is_address(run):
        held = Path(tls.certificates, role, CERTIFICATE)
        own = Path(tls.certificates, Role.CONTROLLER, CERTIFICATE)
        if role is Role.MONITOR and tls.certificates and not held.exists() and own.exists():
            role = Role.CONTROLLER  # its container asks itself, and holds no other certificate
        return run, Security.configured(tls, role)
    config, dropped = read_run(Path(run), os.environ)
    require(dropped, f"{port}.address", origin=run)
    if not tls.certificates:
        require(dropped, "tls.certificates", origin=run)
    tls = replace(tls, certificates=tls.certificates or config.tls.certificates)
    try:
        address = resolve(getattr(config, port).address, Path(run), port)
    except ServiceLost:
        if port == "controller" and _in_one_process(Path(run), config):
            raise ServiceLost(
                f"{run} is trained by one process, which takes no orders: `fullrank run stop "
                f"{run}`, change its config.toml, and `fullrank run resume {run}`"
            ) from None
        raise ServiceLost(_why_away(Path(run), config.iterations)) from None
    return address, Security.configured(tls, role)


def _in_one_process(run: Path, config: RunConfig) -> bool:
    """True if a process trains a run, and serves monitors alone."""
    try:
        resolve(config.monitor.address, run, "monitor")
    except ServiceLost:
        return False
    return trainer_of(run) is not None


def _why_away(run: Path, iterations: int) -> str:
    """The reason that a run has no controller, and the remedy."""
    if (ending := read_ending(run)) is not None and ending.state == "failed":
        return f"{run} has failed: {ending.reason}; then `fullrank run resume {run}` continues it"
    if published(run) >= iterations:
        return (
            f"{run} is finished after {iterations} iterations and has no controller; "
            f"`fullrank eval {run}` plays its policies, `fullrank plot {run}` draws its curves"
        )
    return f"{run} has no controller; `fullrank run resume {run}` starts one"
