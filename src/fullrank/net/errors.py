"""Errors of calls: Fullrank errors as gRPC statuses and back, and bytes that are no message.

gRPC has no status for what a deserializer raises: a server logs a traceback, and a caller gets
None. A stand-in takes the place of such a message instead.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, NoReturn, TypeAlias, TypeVar

import grpc
from google.protobuf.message import DecodeError
from grpc import StatusCode

from fullrank.common import errors
from fullrank.common.errors import Malformed
from fullrank.common.text import plain

T = TypeVar("T")


class NoMessage:
    """Stands for bytes that are no message: whatever is read of it raises ``Malformed``."""

    def __getattr__(self, name: str) -> NoReturn:
        raise Malformed("its answer is no message of this call")


def checked(answer: T) -> T:
    """Return an answer, or raise ``Malformed`` if its bytes are no message."""
    if isinstance(answer, NoMessage):
        answer.read()
    return answer


def marking(deserializer: Callable[[bytes], Any] | None) -> Callable[[bytes], Any] | None:
    """A deserializer that returns a ``NoMessage`` instead of raising."""
    if deserializer is None:
        return None

    def marked(data: bytes) -> Any:
        try:
            return deserializer(data)
        except DecodeError:
            return NoMessage()

    return marked


Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]
"""Context of a call in its service: metadata, deadline and status."""

STATUS: dict[type[errors.FullrankError], StatusCode] = {
    errors.ConfigError: StatusCode.FAILED_PRECONDITION,
    errors.VersionMismatch: StatusCode.FAILED_PRECONDITION,
    errors.Malformed: StatusCode.INVALID_ARGUMENT,
    errors.OutOfRange: StatusCode.OUT_OF_RANGE,
    errors.NotDecodable: StatusCode.UNAVAILABLE,
    errors.ServiceLost: StatusCode.UNAVAILABLE,
    errors.AccessDenied: StatusCode.PERMISSION_DENIED,
    errors.Unauthenticated: StatusCode.UNAUTHENTICATED,
    errors.Overloaded: StatusCode.RESOURCE_EXHAUSTED,
    errors.DeadlinePassed: StatusCode.DEADLINE_EXCEEDED,
    errors.NotFound: StatusCode.NOT_FOUND,
    errors.Corrupted: StatusCode.DATA_LOSS,
    errors.StaleTerm: StatusCode.ABORTED,
    errors.StorageFailed: StatusCode.RESOURCE_EXHAUSTED,
}


RAISED: dict[StatusCode, type[errors.FullrankError]] = {
    StatusCode.FAILED_PRECONDITION: errors.ConfigError,
    StatusCode.INVALID_ARGUMENT: errors.InvalidContribution,
    StatusCode.OUT_OF_RANGE: errors.OutOfRange,
    StatusCode.PERMISSION_DENIED: errors.AccessDenied,
    StatusCode.UNAUTHENTICATED: errors.Unauthenticated,
    StatusCode.NOT_FOUND: errors.NotFound,
    StatusCode.DATA_LOSS: errors.Corrupted,
    StatusCode.ABORTED: errors.StaleTerm,
}
"""Errors that a caller raises; every other status is a ``ServiceLost``."""


OF_VERSIONS = re.compile("^version .* of the .* differs from |this version of Fullrank reads ")
"""Texts of a ``VersionMismatch``, which has the status of a ``ConfigError``: peers of all releases
send them."""


CALL_ENDED = (grpc.RpcError, grpc.aio.InternalError, asyncio.InvalidStateError)
"""Errors of ``grpc.aio`` for whoever writes to, or half-closes, a call that has ended."""


RETRY_AFTER = "retry-after-s"
"""Trailing metadata of a refusal: seconds after which to try again."""


def status_of(error: errors.FullrankError) -> StatusCode:
    """The status that a peer sees."""
    return next((STATUS[cls] for cls in type(error).__mro__ if cls in STATUS), StatusCode.INTERNAL)


@asynccontextmanager
async def statuses(context: Context) -> AsyncIterator[None]:
    """Wrap a handler: end the call with the status and message of a Fullrank error."""
    try:
        yield
    except errors.Overloaded as error:
        again = ((RETRY_AFTER, f"{error.retry_after_s:.3f}"),)
        await context.abort(status_of(error), str(error), again)
    except errors.FullrankError as error:
        await context.abort(status_of(error), str(error))


@contextmanager
def translated(peer: str) -> Iterator[None]:
    """Wrap a call: raise Fullrank errors instead of ``grpc.RpcError``.

    ``Malformed`` is an answer that no version of Fullrank gives. ``ServiceLost`` means that trying
    again may help. A cancelled task gets its ``CancelledError`` in any case: where a call ends at
    that moment, gRPC raises the error of the call instead, and a caller that tries again would do
    so for ever.
    """
    try:
        yield
    except (asyncio.InvalidStateError, grpc.aio.InternalError, asyncio.CancelledError):
        # a write to, or the half-close of, a stream that has ended or ends at that moment; a read
        # from one that another task's cancelled write has cancelled
        _check_task()
        raise errors.ServiceLost(f"{peer}: the stream has ended") from None
    except errors.Malformed as error:
        raise type(error)(f"{peer}: {error}") from None
    except grpc.RpcError as error:
        _check_task()
        code, details = error.code(), plain(error.details() or error.code().name)
        if code is StatusCode.FAILED_PRECONDITION and OF_VERSIONS.search(details):
            raise errors.VersionMismatch(f"{peer}: {details}") from None
        if code in RAISED:
            raise RAISED[code](f"{peer}: {details}") from None
        if code is StatusCode.RESOURCE_EXHAUSTED:
            raise errors.Overloaded(
                f"{peer}: {code.name}: {details}", retry_after_s=_retry_after_s(error)
            ) from None
        raise _lost(peer, code, details) from None


def _check_task() -> None:
    """Raise ``CancelledError`` if the current task is cancelled; blocking calls have no task."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return
    if task is not None and task.cancelling():
        raise asyncio.CancelledError from None


def _retry_after_s(error: grpc.RpcError) -> float:
    """Pause that the service asks for, at most a minute; 0 without a valid one."""
    trailing: Any = error.trailing_metadata() or ()
    pauses = [value for key, value in trailing if key == RETRY_AFTER]
    try:
        return min(60.0, max(0.0, float(pauses[0])))
    except (IndexError, ValueError):
        return 0.0


HANDSHAKES = {
    "CERTIFICATE_VERIFY_FAILED": "its certificate is expired or not of our authority",
    "Hostname Verification": "its certificate is not of the role and run that are expected there",
    "WRONG_VERSION_NUMBER": "it speaks plain text; set its tls.certificates, or unset ours",
}
"""Text of gRPC for a handshake broken off by this side, and its meaning."""

REFUSED = (
    "it ended the connection at once: it is going down, or refuses our certificate, or wants one "
    "and tls.certificates is not set here"
)


def _lost(peer: str, code: StatusCode, details: str) -> errors.FullrankError:
    """The error of a call that failed; gRPC reports a broken handshake as a lost service."""
    if code is StatusCode.UNAVAILABLE:
        for sign, meaning in HANDSHAKES.items():
            if sign in details:
                return errors.Unauthenticated(f"{peer}: {meaning}")
        if "failed to connect" in details and "Socket closed" in details:
            return errors.ServiceLost(f"{peer}: {REFUSED}")
    return errors.ServiceLost(f"{peer}: {code.name}: {details}")
