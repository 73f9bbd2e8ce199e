"""Access control: one interceptor for every server, before any handler runs.

The roles of a call stand beside it in its proto, as the option ``access``; undeclared methods are
closed. In plain text callers have no identity, and only the limits apply; calls whose role must be
proved are then open on unix sockets alone.

Bytes that are no message of their method end the call with INVALID_ARGUMENT, whatever it is, and
with a line of the log at most every ``QUIET_S``.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import lru_cache, partial
from inspect import isasyncgen
from typing import Any, Self, TypeAlias

import grpc
from google.protobuf.descriptor_pool import Default
from grpc_health.v1 import health
from grpc_reflection.v1alpha import reflection

from fullrank.common.errors import AccessDenied, Malformed, Unauthenticated
from fullrank.host.certificates import Identity, Role
from fullrank.host.process import return_freed_pages
from fullrank.host.run_directory import is_socket
from fullrank.net.errors import Context, NoMessage, marking, statuses
from fullrank.net.limits import CallRefusal, Limits, LogPace
from fullrank.v1 import access_pb2 as pb

log = logging.getLogger("fullrank.audit")

Handler: TypeAlias = Callable[[Any, Context], Any]

STANDARD = frozenset({health.SERVICE_NAME, reflection.SERVICE_NAME})
"""Services defined by gRPC, open to every role: they reveal nothing about a run."""

HEARTBEAT = "/fullrank.v1.ControllerService/Heartbeat"
"""The call by which a learner keeps its lease, whatever else comes from its address."""

FLOOD = 1000
"""Refusals that make a flood, whose memory is worth giving back."""
QUIET_S = 10.0
"""Shortest time between two lines about malformed messages of one server, seconds."""

KNOWN = 256
"""Most methods whose roles are cached, so that unknown names cannot exhaust memory."""


def _access_of(method: str) -> pb.Access:
    """The option ``access`` of ``/package.Service/Method``; empty for an undeclared method."""
    try:
        found = Default().FindMethodByName(method.removeprefix("/").replace("/", ".", 1))
    except KeyError:
        return pb.Access()
    return found.GetOptions().Extensions[pb.access]


@lru_cache(maxsize=KNOWN)
def roles_of(method: str) -> frozenset[Role]:
    """Roles that may call ``/package.Service/Method``; empty for an undeclared method."""
    if method.removeprefix("/").partition("/")[0] in STANDARD:
        return frozenset(Role)
    names = map(pb.Role.Name, _access_of(method).roles)
    return frozenset(Role(name.removeprefix("ROLE_").lower()) for name in names)


@lru_cache(maxsize=KNOWN)
def is_proved(method: str) -> bool:
    """True if callers of a method must prove their role, also where a server has no certificate."""
    return _access_of(method).proved


class Gatekeeper(grpc.aio.ServerInterceptor):
    """Passes a call on to its handler, or ends it.

    Args:
        server: Identity of the server whose calls it guards; None in plain text.
    """

    def __init__(self, server: Identity | None) -> None:
        self._server = server
        self._limits = Limits()
        self._refusals = self._waiting = 0
        self._pace = LogPace(QUIET_S)

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """Wrap the handler; calls of unknown methods end as gRPC ends them."""
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        kind = "_".join(
            "stream" if streaming else "unary"
            for streaming in (handler.request_streaming, handler.response_streaming)
        )
        make = getattr(grpc, f"{kind}_rpc_method_handler")
        return make(
            self._guarded(
                handler_call_details.method,
                getattr(handler, kind),
                streaming=handler.request_streaming,
            ),
            request_deserializer=marking(handler.request_deserializer),
            response_serializer=handler.response_serializer,
        )

    def _guarded(self, method: str, handler: Handler, *, streaming: bool = False) -> Handler:
        async def guarded(requests: Any, context: Context) -> Any:
            peer = context.peer()  # gRPC may have forgotten it when the call has ended
            check = partial(self._check_intact, method, peer)
            checked = partial(_handled, handler, check=check, streaming=streaming)
            if is_socket(peer):  # this user's own, and not told apart by connection
                return await self._admitted(method, checked, requests, context)
            now = asyncio.get_running_loop().time()
            if refusal := self._limits.begin(peer, now=now, urgent=method == HEARTBEAT):
                return await self._refuse(refusal, context)
            try:
                return await self._admitted(method, checked, requests, context)
            finally:
                self._limits.end(peer)

        return guarded

    async def _refuse(self, refusal: CallRefusal, context: Context) -> None:
        """End a call in its turn; after the last of a flood, give back the memory of it.

        ``abort`` would raise an exception that keeps the call alive.
        """
        self._refusals += 1
        self._waiting += 1
        try:
            await asyncio.sleep(refusal.after_s)
            context.set_code(grpc.StatusCode.RESOURCE_EXHAUSTED)
            context.set_details(f"{refusal.reason}; call less often")
        finally:
            self._waiting -= 1
        if not self._waiting and self._refusals >= FLOOD:
            self._refusals = 0
            await asyncio.to_thread(return_freed_pages)

    def _check_intact(self, method: str, peer: str, message: Any) -> Any:
        """Return a message of a call.

        Raises:
            Malformed: Its bytes were none.
        """
        if not isinstance(message, NoMessage):
            return message
        unsaid = self._pace.admit(now=asyncio.get_running_loop().time())
        if unsaid is not None:
            log.warning("malformed method=%s peer=%s since_last_line=%d", method, peer, unsaid)
        raise Malformed(f"{method} was sent bytes that are no message of it")

    async def _admitted(
        self, method: str, handler: Handler, requests: Any, context: Context
    ) -> Any:
        """The handler's answer, if the caller is admitted."""
        caller = None
        async with statuses(context):
            try:
                if self._server is not None:
                    caller = identity_of(context)
                    _check(caller, server=self._server, method=method)
                elif is_proved(method) and not is_socket(context.peer()):
                    raise Unauthenticated(
                        f"{method} is open to administrators alone, and plain text proves nothing: "
                        "set tls.certificates, or call the unix socket of the service"
                    )
            except AccessDenied as error:
                _audit(method, context, caller, outcome=f"refused: {error}")
                raise
        if not _is_audited(method, caller):
            return await handler(requests, context)
        outcome = "OK"
        try:
            return await handler(requests, context)
        except BaseException as error:
            code = context.code()
            outcome = code.name if isinstance(code, grpc.StatusCode) else type(error).__name__
            raise
        finally:
            _audit(method, context, caller, outcome=outcome)


class _Intact:
    """The messages of a stream, each checked.

    Args:
        messages: The stream.
        check: Returns a message, or raises.
    """

    def __init__(self, messages: AsyncIterator[Any], check: Callable[[Any], Any]) -> None:
        self._messages, self._check = messages, check

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        return self._check(await anext(self._messages))


async def _handled(
    handler: Handler,
    requests: Any,
    context: Context,
    *,
    check: Callable[[Any], Any],
    streaming: bool,
) -> Any:
    """Run a handler of any kind with checked messages; responses that it yields are written."""
    async with statuses(context):
        outcome = handler(_Intact(requests, check) if streaming else check(requests), context)
        if not isasyncgen(outcome):
            return await outcome
        async for response in outcome:
            await context.write(response)
    return None


def identity_of(context: Context) -> Identity:
    """Identity of the caller, from its certificate.

    Raises:
        Unauthenticated: The certificate names no identity, or several.
    """
    uris = [uri.decode() for uri in (context.auth_context() or {}).get("peer_uri", ())]
    try:
        [uri] = uris
        return Identity.parse(uri)
    except ValueError:
        raise Unauthenticated(
            f"the certificate names {' and '.join(uris) or 'no service'}, not one fullrank://RUN/ROLE"
        ) from None


def _check(caller: Identity, *, server: Identity, method: str) -> None:
    if caller.run != server.run:
        raise AccessDenied(f"the certificate is of run {caller.run}, not {server.run}")
    roles = roles_of(method)
    if caller.role not in roles:
        others = " or ".join(sorted(roles)) or "no role"
        raise AccessDenied(f"role {caller.role} may not call {method}; {others} may")


def _is_audited(method: str, caller: Identity | None) -> bool:
    """True if the caller is an administrator, or the method is open to administrators alone."""
    return roles_of(method) == {Role.ADMIN} or (caller is not None and caller.role is Role.ADMIN)


def _audit(method: str, context: Context, caller: Identity | None, *, outcome: str) -> None:
    who = caller.uri if caller is not None else "none"
    log.info("call method=%s caller=%s peer=%s outcome=%s", method, who, context.peer(), outcome)
