"""Composition root of the sidecar: a port that relays every call, and one that steers it."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from math import inf
from typing import Any, TypeAlias

import grpc

from fullrank.common.errors import ConfigError, InvalidContribution
from fullrank.config.faults import Fault
from fullrank.config.layers import Resolved
from fullrank.host.certificates import Role
from fullrank.host.process import Launch, first, stop_event, tune_process
from fullrank.host.run_directory import announce, remove_socket, resolve, withdraw
from fullrank.net.channel import UNLIMITED, Security, open_channel
from fullrank.net.errors import CALL_ENDED, Context
from fullrank.net.prometheus import Exporter, Family, gauge
from fullrank.net.server import Health, Server, bind, guarded_server
from fullrank.net.straggler import decode_fault, decode_model, encode_injection
from fullrank.stragglers import delay_models
from fullrank.v1 import controller_pb2
from fullrank.v1 import straggler_pb2 as pb
from fullrank_straggler.gate import Control, Gate, Injection, StreamIdentity, injection_of

log = logging.getLogger(__name__)

RawMessages: TypeAlias = AsyncIterator[bytes]
Upstream: TypeAlias = grpc.aio.StreamStreamCall[bytes, bytes]

HOP = frozenset({"user-agent"})
"""Metadata that belong to one connection and are not forwarded."""


def dial(channel: grpc.aio.Channel, method: str, context: Context) -> Upstream:
    """Make the same call upstream, with its metadata and the rest of its deadline."""
    metadata: Any = tuple(
        (key, value) for key, value in context.invocation_metadata() or () if key not in HOP
    )
    remaining_s: float | None = context.time_remaining()
    return channel.stream_stream(method)(metadata=metadata, timeout=remaining_s)


class Relay:
    """Forwards a call until the upstream peer ends it, and ends it with the same status.

    Unary calls are streams of one message, on the wire too. With or without a proxy, ``grpc.aio``
    may lose the initial metadata of a call that ends at once, and the status of a call that ends
    while a message is written, which then is INTERNAL (grpc/grpc#36066).

    Args:
        requests: Messages of the caller.
        context: The caller's side.
        call: The upstream side; cancelled when the caller cancels.
    """

    def __init__(self, requests: RawMessages, context: Context, call: Upstream) -> None:
        self._requests = requests
        self._context = context
        self._call = call

    async def run(self) -> None:
        """Forward everything, including the status."""
        try:
            await first(self._down(), self._until_ended(self._up()))
        finally:
            self._call.cancel()

    async def _until_ended(self, sending: Awaitable[None]) -> None:
        """Send, then wait for ever: only the upstream peer ends a call."""
        with suppress(*CALL_ENDED):  # _down forwards the status
            await sending
        await asyncio.get_running_loop().create_future()

    async def _up(self) -> None:
        """Forward the requests and the end of their stream."""
        async for message in self._requests:
            await self._send(message)
        await self._call.done_writing()

    async def _send(self, message: bytes) -> None:
        await self._call.write(message)

    async def _down(self) -> None:
        """Forward initial metadata, responses and status."""
        with suppress(grpc.RpcError):  # its status follows
            await self._context.send_initial_metadata(await self._call.initial_metadata())
            async for message in self._call:
                await self._receive(message)
        self._context.set_trailing_metadata(await self._call.trailing_metadata())
        self._context.set_code(await self._call.code())
        self._context.set_details(await self._call.details() or "")

    async def _receive(self, message: bytes) -> None:
        await self._context.write(message)


class WorkRelay(Relay):
    """Forwards a Work stream, delayed vectors when they are due.

    Args:
        requests: Messages of the learner.
        context: The learner's side.
        call: The controller's side.
        control: The injection.
    """

    def __init__(
        self, requests: RawMessages, context: Context, call: Upstream, control: Control
    ) -> None:
        super().__init__(requests, context, call)
        self._control = control
        self._gate = Gate(control.injection)
        self._clock = asyncio.get_running_loop().time
        self._writing = asyncio.Lock()
        self._wake = asyncio.Event()
        self._change = asyncio.Event()

    @property
    def identity(self) -> StreamIdentity | None:
        """Learner that it serves; None before Welcome."""
        return self._gate.identity

    def changed(self) -> None:
        """Handle a change: held vectors may be due, a throttle may be gone."""
        self._wake.set()
        self._change.set()
        self._change = asyncio.Event()

    async def run(self) -> None:
        """Forward everything, including the status.

        Raises:
            FullrankError: A fault drops the connection, or the delay model is impossible here.
        """
        self._control.attach(self)
        try:
            await first(super().run(), self._until_ended(self._release()))
        finally:
            self._control.detach(self)

    async def _release(self) -> None:
        """Send held vectors when they are due."""
        while True:
            due = self._gate.due()
            with suppress(TimeoutError):
                async with asyncio.timeout_at(None if due == inf else due):
                    await self._wake.wait()
            self._wake.clear()
            await self._drain()

    async def _send(self, message: bytes) -> None:
        self._gate.take(message, now=self._clock())
        await self._drain()
        if self._gate.due() < inf:
            self._wake.set()

    async def _drain(self) -> None:
        """Write the messages that are due, one writer at a time."""
        async with self._writing:
            while (message := self._gate.next(now=self._clock())) is not None:
                await self._pace(len(message))
                await super()._send(message)

    async def _receive(self, message: bytes) -> None:
        self._gate.hear(message, now=self._clock())
        await self._pace(len(message))
        await super()._receive(message)

    async def _pace(self, size: int) -> None:
        """Sleep for as long as the current throttle takes for ``size`` bytes."""
        left = float(size)
        while (bytes_per_s := self._gate.bytes_per_s) is not None:
            started = self._clock()
            try:
                async with asyncio.timeout(left / bytes_per_s):
                    await self._change.wait()
            except TimeoutError:
                return
            left -= (self._clock() - started) * bytes_per_s


WORK = f"/{controller_pb2.DESCRIPTOR.services_by_name['ControllerService'].full_name}/Work"


class Proxy(grpc.GenericRpcHandler):
    """Listens in place of the controller.

    Args:
        upstream: Returns the controller's address; raises ``ServiceLost`` while it is unknown.
        control: Injection into Work streams.
        security: Credentials of a learner, because it calls on behalf of learners: callers without
            access to the controller have none to the proxy.
    """

    def __init__(
        self, upstream: Callable[[], str], control: Control, *, security: Security
    ) -> None:
        self._upstream = upstream
        self._control = control
        self._security = security
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._server, self._bound = guarded_server(security, options=UNLIMITED), ""
        self._server.add_generic_rpc_handlers((self,))

    async def start(self, address: str) -> str:
        """Bind an address as ``bind`` does, serve, and return the address bound.

        Raises:
            AddressInUse: The address is taken or cannot be bound.
            ConfigError: It would be plain text beyond loopback.
        """
        self._bound = bind(self._server, address, security=self._security)
        await self._server.start()
        return self._bound

    async def stop(self) -> None:
        """End every call, as a lost connection would: peers dial again."""
        await self._server.stop(None)
        remove_socket(self._bound)
        for channel in self._channels.values():
            await channel.close()

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        """A handler for any method; messages stay bytes."""
        method = handler_call_details.method

        async def relay(requests: RawMessages, context: Context) -> None:
            call = dial(self._channel(), method, context)
            if method == WORK:
                await WorkRelay(requests, context, call, self._control).run()
            else:
                await Relay(requests, context, call).run()

        return grpc.stream_stream_rpc_method_handler(relay)

    def _channel(self) -> grpc.aio.Channel:
        """The channel to the controller at its current address."""
        address = self._upstream()
        if address not in self._channels:
            trust = self._security.towards(Role.CONTROLLER)
            self._channels[address] = open_channel(address, trust=trust, options=UNLIMITED)
        return self._channels[address]


class StragglerServicer:
    """StragglerService over the injection of one process."""

    def __init__(self, control: Control) -> None:
        self._control = control

    async def GetInjection(
        self, request: pb.GetInjectionRequest, context: Context
    ) -> pb.GetInjectionResponse:
        """Report the current injection."""
        return pb.GetInjectionResponse(injection=self._encoded())

    async def SetInjection(
        self, request: pb.SetInjectionRequest, context: Context
    ) -> pb.SetInjectionResponse:
        """Apply a change as a whole or not at all."""
        injection = self._control.injection()
        if request.HasField("faults"):
            faults = enumerate(request.faults.faults)
            injection = replace(
                injection, faults=tuple(_fault(index, fault) for index, fault in faults)
            )
        if request.HasField("model"):
            injection = _with_model(injection, request.model)
        try:
            self._control.change(injection)
        except ConfigError as error:
            raise InvalidContribution(f"model.params: {error}") from None
        return pb.SetInjectionResponse(injection=self._encoded())

    def _encoded(self) -> pb.Injection:
        injection = self._control.injection()
        return encode_injection(injection.settings, injection.faults)


def _with_model(injection: Injection, model: pb.DelayModel) -> Injection:
    field = "model.params" if model.name in delay_models else "model.name"
    try:
        settings = decode_model(model)
        origin = {f"stragglers.{key}": "the request" for key in settings.params}
        return injection_of(settings, injection.faults, origin=origin)
    except ConfigError as error:
        raise InvalidContribution(f"{field}: {error}") from None


def _fault(index: int, fault: pb.Fault) -> Fault:
    try:
        return decode_fault(fault)
    except ConfigError as error:
        raise InvalidContribution(f"faults.{index}.{error}") from None


def main(launch: Launch) -> int:
    """Serve until told to stop; returns the exit code."""
    tune_process(launch)
    asyncio.run(serve(launch))
    return 0


async def serve(launch: Launch, stop: asyncio.Event | None = None) -> None:
    """Serve until ``stop`` is set, by default until the process is told to stop.

    Raises:
        ConfigError: The configured delay model or certificate cannot be.
        AddressInUse: An address is taken.
    """
    stop = stop or stop_event(launch)
    settings, run_dir = launch.config.sidecar, launch.run_dir
    control = Control(_configured(launch.resolved))
    security = Security.configured(launch.config.tls, Role.LEARNER)
    proxy = Proxy(
        partial(resolve, launch.config.controller.address, run_dir, "controller"),
        control,
        security=security,
    )
    descriptor = pb.DESCRIPTOR.services_by_name["StragglerService"]
    server = Server(descriptor, StragglerServicer(control), security=security)
    exporter = Exporter(
        launch.config.metrics.prometheus,
        lambda: _metrics(control),
        run_dir=launch.run_dir,
        name="straggler",
        expires_at=lambda: security.expires_at,
    )
    async with Health(launch.config.health.address) as health, exporter:
        bound = {
            "straggler": await proxy.start(settings.address),
            "straggler-control": await server.start(settings.control),
        }
        for name, address in bound.items():
            announce(run_dir, name, address)
        log.info("serving address=%s control=%s", *bound.values())
        await health.at_work(True)
        await stop.wait()
        await health.at_work(False)
        for name in bound:
            withdraw(run_dir, name)
        await server.stop()
        await proxy.stop()


def _metrics(control: Control) -> Iterator[Family]:
    """Metrics of this process."""
    yield gauge("straggler_streams", "Streams that pass through.", control.attached)
    yield gauge("straggler_faults", "Faults injected.", len(control.injection().faults))


def _configured(resolved: Resolved) -> Injection:
    config = resolved.config
    return injection_of(config.stragglers, config.sidecar.faults, origin=resolved.origin)
