"""Bytes that are no message, on either side of a call.

gRPC has no status for what a deserializer raises: a server logs a traceback, and a caller gets
None. A stand-in takes the place of such a message instead.
"""

from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from google.protobuf.message import DecodeError

from fullrank.common.errors import Malformed

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
