"""One catalogue: which gRPC status stands for which error, in both directions."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import grpc
from grpc import StatusCode

from fullrank import errors

STATUS: dict[type[errors.FullrankError], StatusCode] = {
    errors.ConfigError: StatusCode.FAILED_PRECONDITION,
    errors.VersionMismatch: StatusCode.FAILED_PRECONDITION,
    errors.InvalidContribution: StatusCode.INVALID_ARGUMENT,
    errors.OutOfRange: StatusCode.OUT_OF_RANGE,
    errors.NotDecodable: StatusCode.UNAVAILABLE,
    errors.ServiceLost: StatusCode.UNAVAILABLE,
    errors.DeadlinePassed: StatusCode.DEADLINE_EXCEEDED,
    errors.NotFound: StatusCode.NOT_FOUND,
    errors.Corrupted: StatusCode.DATA_LOSS,
    errors.Deposed: StatusCode.ABORTED,
}


RAISED: dict[StatusCode, type[errors.FullrankError]] = {
    StatusCode.FAILED_PRECONDITION: errors.ConfigError,
    StatusCode.INVALID_ARGUMENT: errors.InvalidContribution,
    StatusCode.OUT_OF_RANGE: errors.OutOfRange,
    StatusCode.NOT_FOUND: errors.NotFound,
    StatusCode.DATA_LOSS: errors.Corrupted,
    StatusCode.ABORTED: errors.Deposed,
}
"""What a caller raises; every other status is a ``ServiceLost``."""


def status_of(error: errors.FullrankError) -> StatusCode:
    """The status that a peer sees."""
    return next((STATUS[cls] for cls in type(error).__mro__ if cls in STATUS), StatusCode.INTERNAL)


@asynccontextmanager
async def statuses(context: grpc.aio.ServicerContext[Any, Any]) -> AsyncIterator[None]:
    """Within a handler: end the call with the right status and message for a Fullrank error."""
    try:
        yield
    except errors.FullrankError as error:
        await context.abort(status_of(error), str(error))


@contextmanager
def translated(peer: str) -> Iterator[None]:
    """Around a call: raise Fullrank errors instead of ``grpc.RpcError``.

    ``ServiceLost`` means that trying again may help.
    """
    try:
        yield
    except asyncio.InvalidStateError:  # a write to a stream that the peer has ended
        raise errors.ServiceLost(f"{peer}: the stream has ended") from None
    except grpc.RpcError as error:
        code, details = error.code(), error.details() or error.code().name
        if code is StatusCode.FAILED_PRECONDITION and "version" in details:
            raise errors.VersionMismatch(f"{peer}: {details}") from None
        if code in RAISED:
            raise RAISED[code](f"{peer}: {details}") from None
        raise errors.ServiceLost(f"{peer}: {code.name}: {details}") from None
