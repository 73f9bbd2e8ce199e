"""One catalogue of statuses: every error has one, and a caller raises the original error."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc import StatusCode
from tests.addresses import free_address

from fullrank.common import errors
from fullrank.common.errors import FullrankError
from fullrank.net.errors import RAISED, RETRY_AFTER, STATUS, NoMessage, status_of, translated
from fullrank.replay.file_format import read_header


def every_error(base: type[FullrankError] = FullrankError) -> Iterator[type[FullrankError]]:
    for error in base.__subclasses__():
        yield error
        yield from every_error(error)


TRAVELLING = set(STATUS)


def rpc_error(code: StatusCode, details: str, *trailing: tuple[str, str]) -> grpc.aio.AioRpcError:
    metadata = grpc.aio.Metadata()
    return grpc.aio.AioRpcError(code, metadata, grpc.aio.Metadata(*trailing), details=details)


@pytest.mark.parametrize("error", list(every_error()))
def test_every_error_has_a_status_that_is_not_ok(error: type[FullrankError]) -> None:
    code = status_of(error("why"))
    assert code is not StatusCode.OK
    assert (code is StatusCode.INTERNAL) == (not TRAVELLING & set(error.__mro__))


@pytest.mark.parametrize("error", list(STATUS))
def test_a_caller_raises_what_was_meant(error: type[FullrankError]) -> None:
    said = "version 1 of the controller differs from the replay service's 2"
    meant = pytest.raises(FullrankError, match=rf"replay here: .*{said}")
    with meant as raised, translated("replay here"):
        raise rpc_error(status_of(error("")), said)
    if any(issubclass(each, error) for each in RAISED.values()) and error is not errors.ConfigError:
        assert issubclass(raised.type, error)
    elif status_of(error("")) is StatusCode.FAILED_PRECONDITION:
        assert raised.type is errors.VersionMismatch
    elif status_of(error("")) is StatusCode.RESOURCE_EXHAUSTED:
        assert raised.type is errors.Overloaded
    else:
        assert raised.type is errors.ServiceLost


@pytest.mark.parametrize(
    "said", ["another row size", "cannot open /data/conversion/replay: Permission denied"]
)
def test_a_precondition_that_is_no_version_is_a_matter_of_configuration(said: str) -> None:
    with pytest.raises(errors.ConfigError, match=said), translated("replay"):
        raise rpc_error(StatusCode.FAILED_PRECONDITION, said)


def test_a_file_of_another_format_is_a_matter_of_versions(tmp_path: Path) -> None:
    with pytest.raises(errors.VersionMismatch) as found:
        read_header(tmp_path / "t.table", b"FRTABLE9" + bytes(100))
    with pytest.raises(errors.VersionMismatch), translated("replay"):
        raise rpc_error(StatusCode.FAILED_PRECONDITION, str(found.value))


def test_an_answer_that_is_no_message_is_malformed_and_names_the_peer() -> None:
    with pytest.raises(errors.Malformed, match="replay: its answer is no"), translated("replay"):
        _ = NoMessage().field
    with pytest.raises(errors.Malformed, match=r"^replay: rows: too many$"), translated("replay"):
        raise errors.Malformed("rows: too many")


def test_an_unexpected_status_is_a_lost_service_and_named() -> None:
    lost = pytest.raises(errors.ServiceLost, match="replay: UNIMPLEMENTED: what")
    with lost, translated("replay"):
        raise rpc_error(StatusCode.UNIMPLEMENTED, "what")


@pytest.mark.parametrize(
    ("said", "heard_s"),
    [("1.500", 1.5), ("1e9", 60.0), ("-1", 0.0), ("nan", 0.0), ("soon", 0.0)],
)
def test_a_caller_is_told_when_to_ask_again_within_reason(said: str, heard_s: float) -> None:
    with pytest.raises(errors.Overloaded) as raised, translated("replay"):
        raise rpc_error(StatusCode.RESOURCE_EXHAUSTED, "full", (RETRY_AFTER, said))
    assert raised.value.retry_after_s == heard_s


@pytest.mark.parametrize("error", [asyncio.InvalidStateError, grpc.aio.InternalError])
def test_writing_to_an_ended_stream_is_a_lost_service(error: type[Exception]) -> None:
    with pytest.raises(errors.ServiceLost, match="the stream has ended"), translated("controller"):
        raise error


def test_what_is_no_status_passes_through() -> None:
    with pytest.raises(ZeroDivisionError), translated("replay"):
        raise ZeroDivisionError


async def test_a_cancellation_at_the_moment_at_which_a_call_ends_is_not_lost() -> None:
    """Here gRPC raises the error of the call; a caller that tries again would never end."""
    async with grpc.aio.insecure_channel(free_address()) as channel:  # nothing listens there
        call: grpc.aio.StreamStreamCall[bytes, bytes] = channel.stream_stream("/service/Method")()

        async def caller() -> None:
            with translated("controller"):
                await call.read()

        task = asyncio.create_task(caller())

        def stop(_: object) -> None:
            task.cancel()

        call.add_done_callback(stop)
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_a_failed_call_of_a_task_that_is_not_cancelled_is_a_lost_service() -> None:
    async with grpc.aio.insecure_channel(free_address()) as channel:
        call: grpc.aio.StreamStreamCall[bytes, bytes] = channel.stream_stream("/service/Method")()
        with pytest.raises(errors.ServiceLost), translated("controller"):
            await call.read()


async def test_a_call_that_another_task_cancelled_is_a_lost_service() -> None:
    """As gRPC does if a write of that task is cancelled; nobody has cancelled who reads."""
    async with grpc.aio.insecure_channel(free_address()) as channel:  # nothing listens there
        method: Any = channel.stream_stream("/service/Method")
        call = method(wait_for_ready=True)
        asyncio.get_running_loop().call_soon(call.cancel)
        with pytest.raises(errors.ServiceLost, match="has ended"), translated("controller"):
            await call.read()
