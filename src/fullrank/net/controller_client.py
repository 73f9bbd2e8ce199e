"""Clients of the controller: asynchronous for services, blocking for the command line."""

from collections.abc import Callable
from pathlib import Path
from typing import Self, TypeAlias, TypeVar

import grpc

from fullrank.common.errors import ConfigError, Malformed, ServiceLost
from fullrank.config.tree import RunConfig
from fullrank.host.certificates import Role
from fullrank.host.run_directory import resolve
from fullrank.net.channel import PLAINTEXT, Security, open_blocking_channel, open_channel
from fullrank.net.errors import checked, translated
from fullrank.net.monitor_messages import decode_status
from fullrank.net.status import RunStatus
from fullrank.v1 import controller_pb2 as pb
from fullrank.v1.controller_pb2_grpc import ControllerServiceStub

Order = TypeVar("Order", pb.ControllerMessage, pb.CollectorOrder)
"""A message of the controller to a learner or a collector."""
WorkCall: TypeAlias = grpc.aio.StreamStreamCall[bytes, pb.ControllerMessage]
CollectCall: TypeAlias = grpc.aio.StreamStreamCall[bytes, pb.CollectorOrder]

CALL_S = 10.0
"""Deadline of a small unary call."""


class ControllerClient:
    """Client of ControllerService.

    Args:
        address: ``host:port``.
        security: Identity of the caller.
    """

    def __init__(self, address: str, *, security: Security = PLAINTEXT) -> None:
        self._channel = open_channel(address, trust=security.towards(Role.CONTROLLER))
        self._stub = ControllerServiceStub(self._channel)
        self.peer = f"controller {address}"

    def work(self) -> WorkCall:
        """Open the Work stream; requests are encoded messages.

        It has no deadline of its own: the controller bounds each step of the dialogue, and
        heartbeats bound its silence.
        """
        return self._stream("Work", pb.ControllerMessage)

    def collect(self) -> CollectCall:
        """Open the Collect stream, which is bounded as ``work`` is."""
        return self._stream("Collect", pb.CollectorOrder)

    def _stream(self, method: str, order: type[Order]) -> grpc.aio.StreamStreamCall[bytes, Order]:
        service = pb.DESCRIPTOR.services_by_name["ControllerService"].full_name
        encoded: Callable[[bytes], bytes] = bytes  # they are messages already
        return self._channel.stream_stream(f"/{service}/{method}", encoded, order.FromString)()

    async def heartbeat(self, lease: bytes, *, timeout_s: float) -> None:
        """Renew the lease; ``NotFound`` if it has ended."""
        request = pb.HeartbeatRequest(lease=lease)
        with translated(self.peer):
            await self._stub.Heartbeat(request, timeout=timeout_s)

    async def status(self, *, timeout_s: float = CALL_S) -> pb.GetStatusResponse:
        """Status of the run."""
        with translated(self.peer):
            return checked(await self._stub.GetStatus(pb.GetStatusRequest(), timeout=timeout_s))

    async def close(self) -> None:
        """Close the channel."""
        await self._channel.close()


ORDER_S = 600.0
"""Deadline of an order; a checkpoint waits for the end of an iteration."""
ORDERS = "checkpoint, stop, drain=LEARNER or iterations=NUMBER"
MOST_DIGITS = {"drain": 9, "iterations": 18}
"""Most digits of the number of an order that has one: it is sent in 32 or 64 bits."""


def give_order(address: str, order: str, *, security: Security = PLAINTEXT) -> str:
    """Give a controller an order of an administrator, one of ``ORDERS``; returns what it has done.

    Raises:
        ConfigError: There is no such order, or the controller cannot obey it.
        NotFound: There is no such learner.
        AccessDenied: The caller has not proved the role.
        ServiceLost: It does not answer, or the run is not under way.
    """
    name, _, number = order.partition("=")
    is_number = number.isdecimal() and len(number) <= MOST_DIGITS.get(name, 0)
    if not is_number and order not in ("checkpoint", "stop"):
        raise ConfigError(f"order {order!r}: must be {ORDERS}")
    trust = security.towards(Role.CONTROLLER)
    with (
        open_blocking_channel(address, trust=trust) as channel,
        translated(f"controller {address}"),
    ):
        stub = ControllerServiceStub(channel)
        if name == "checkpoint":
            saved = stub.Checkpoint(pb.CheckpointRequest(), timeout=ORDER_S)
            return f"checkpoint after {saved.iterations} iterations"
        if name == "stop":
            stub.Stop(pb.StopRequest(), timeout=CALL_S)
            return "the controller finishes the update in progress, checkpoints and ends"
        if name == "drain":
            stub.Drain(pb.DrainRequest(learner=int(number)), timeout=CALL_S)
            return f"learner {number} holds no row after this iteration; stop its process then"
        stub.SetIterations(pb.SetIterationsRequest(iterations=int(number)), timeout=CALL_S)
        return f"the run ends after {number} iterations"


STATUS_S = 2.0
"""Deadline of one call."""


class StatusPoller:
    """Asks the controller of a run for its status, which is STARTING until it answers one."""

    def __init__(self, run_dir: Path, config: RunConfig) -> None:
        self._run_dir = run_dir
        self._configured = config.controller.address
        self._tls = config.tls
        self._channel: grpc.Channel | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def _close(self) -> None:
        if self._channel is not None:
            self._channel.close()
        self._channel = None

    def status(self) -> RunStatus:
        """Status of the run now."""
        try:
            if self._channel is None:
                address = resolve(self._configured, self._run_dir, "controller")
                trust = Security.configured(self._tls, Role.MONITOR).towards(Role.CONTROLLER)
                self._channel = open_blocking_channel(address, trust=trust)
            stub = ControllerServiceStub(self._channel)
            return decode_status(stub.GetStatus(pb.GetStatusRequest(), timeout=STATUS_S))
        except (ServiceLost, Malformed, grpc.RpcError):
            self._close()  # a restarted controller may listen elsewhere
            return RunStatus()
