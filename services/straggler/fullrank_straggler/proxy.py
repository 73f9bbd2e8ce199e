"""Proxied port: forwards every method of every service to the controller."""

from collections.abc import Callable
from typing import Any

import grpc

from fullrank.rpc.channel import UNLIMITED, open_channel
from fullrank.rpc.errors import Context, statuses
from fullrank.rpc.identity import Role
from fullrank.rpc.security import Security
from fullrank.rpc.server import bind, guarded_server
from fullrank.v1 import controller_pb2 as pb
from fullrank_straggler.control import Control
from fullrank_straggler.relay import RawMessages, Relay, WorkRelay, dial

WORK = f"/{pb.DESCRIPTOR.services_by_name['ControllerService'].full_name}/Work"


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
        self._server = guarded_server(security, options=UNLIMITED)
        self._server.add_generic_rpc_handlers((self,))

    async def start(self, address: str) -> str:
        """Bind ``host:port`` (port 0 picks one), serve, and return the address bound.

        Raises:
            AddressInUse: The address is taken or cannot be bound.
            ConfigError: It would be plain text beyond loopback.
        """
        bound = bind(self._server, address, security=self._security)
        await self._server.start()
        return bound

    async def stop(self) -> None:
        """End every call, as a lost connection would: peers dial again."""
        await self._server.stop(None)
        for channel in self._channels.values():
            await channel.close()

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        """A handler for any method; messages stay bytes."""
        method = handler_call_details.method

        async def relay(requests: RawMessages, context: Context) -> None:
            async with statuses(context):
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
