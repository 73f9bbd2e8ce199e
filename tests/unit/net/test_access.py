"""Every call requires an identity that may make it; the table of roles follows the protos."""

import logging
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message_factory import GetMessageClass
from grpc import StatusCode
from tests.certificates import RUN, certify, named, security
from tests.waiting import WAIT_S

import fullrank.v1
from fullrank.common.errors import FullrankError, ServiceLost, Unauthenticated
from fullrank.host.certificates import Role
from fullrank.net.access import Gatekeeper, is_proved, roles_of
from fullrank.net.channel import PLAINTEXT, Security, Trust, open_channel
from fullrank.net.errors import translated
from fullrank.net.server import Server


def services() -> Iterator[ServiceDescriptor]:
    """Every service of every proto."""
    for module in iter_modules(fullrank.v1.__path__):
        if module.name.endswith("_pb2"):
            descriptor = import_module(f"fullrank.v1.{module.name}").DESCRIPTOR
            yield from descriptor.services_by_name.values()


METHODS = [method for service in services() for method in service.methods]


def path(method: MethodDescriptor) -> str:
    return f"/{method.containing_service.full_name}/{method.name}"


every_method = pytest.mark.parametrize("method", METHODS, ids=path)


def test_the_table_holds_the_services_that_there_are() -> None:
    names = {method.containing_service.name for method in METHODS}
    assert {"ControllerService", "ReplayService", "StragglerService"} <= names


@every_method
def test_every_call_declares_who_may_make_it(method: MethodDescriptor) -> None:
    assert roles_of(path(method)), f"give {path(method)} the option access in its proto"


def test_each_role_may_make_these_calls_and_no_others() -> None:
    made = {role: {each.name for each in METHODS if role in roles_of(path(each))} for role in Role}
    reading = {"GetStatus", "Watch", "GetCode", "GetConfiguration", "GetPolicies", "GetInjection"}
    orders = {"Checkpoint", "Drain", "Stop", "SetIterations"}
    assert made == {
        Role.CONTROLLER: {
            *("GetStatus", "Watch", "OpenTable", "CloseRun"),
            *("LocateTable", "GetSamples", "GrantBlocks", "AcceptBlocks"),
        },
        Role.LEARNER: {"Work", "Heartbeat", "GetStatus", "LocateTable", "GetSamples"},
        Role.COLLECTOR: {"Collect", "Heartbeat", "GetStatus", "StageBlock"},
        Role.REPLAY: set(),
        Role.MONITOR: reading,
        Role.ADMIN: {*reading, "SetInjection", *orders},
    }
    assert {each.name for each in METHODS if is_proved(path(each))} == orders


def test_servers_are_built_in_one_place_with_the_interceptor() -> None:
    root = Path(__file__).resolve().parents[3]
    sources = [*(root / "src").rglob("*.py"), *(root / "services").rglob("*.py")]
    building = [path for path in sources if re.search(r"(aio|grpc)\.server\(", path.read_text())]
    assert [path.relative_to(root) for path in building] == [Path("src/fullrank/net/server.py")]


def test_what_is_not_declared_is_closed() -> None:
    for method in ("/fullrank.v1.ControllerService/Forgotten", "/a.B/C", "nonsense", ""):
        assert roles_of(method) == frozenset()


async def test_a_call_whose_connection_was_forgotten_is_counted_out_of_it() -> None:
    peers = iter(["ipv4:10.0.0.1:5", ""])
    context: Any = SimpleNamespace(peer=lambda: next(peers))

    async def answer(requests: Any, context: Any) -> str:
        return "answer"

    guarded: Any = Gatekeeper(None)._guarded("/a.B/C", answer)
    assert await guarded(None, context) == "answer"


@asynccontextmanager
async def serving(
    service: ServiceDescriptor, own: Security, reached: list[str]
) -> AsyncIterator[str]:
    """A server whose handlers only record that they were reached."""

    def handler(method: MethodDescriptor) -> Any:
        async def answer(requests: Any, context: Any) -> Any:
            reached.append(path(method))
            return None if method.server_streaming else GetMessageClass(method.output_type)()

        return answer

    servicer = SimpleNamespace(**{each.name: handler(each) for each in service.methods})
    server = Server(service, servicer, security=own)
    try:
        yield await server.start("127.0.0.1:0")
    finally:
        await server.stop()


async def outcome(
    address: str, method: str, trust: Trust | None, *, message: bytes = b""
) -> tuple[StatusCode, str]:
    """Outcome of a call with one message; on the wire a unary call is a stream as well."""
    async with open_channel(address, trust=trust) as channel:
        dial: Any = channel.unary_stream(method)
        call = dial(message)
        with suppress(grpc.RpcError):
            async for _ in call:
                pass
        return await call.code(), await call.details() or ""


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Certificates of every role."""
    return certify(tmp_path_factory.mktemp("certificates"))


def owner(method: MethodDescriptor) -> Role:
    """The role of the server that serves the method."""
    name = method.containing_service.name
    return Role.REPLAY if name == "ReplayService" else Role.CONTROLLER


@every_method
async def test_declared_roles_reach_the_handler_and_all_others_are_denied_and_noted(
    method: MethodDescriptor, certificates: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "fullrank.audit")
    for role in Role:
        reached: list[str] = []
        own = security(certificates, owner(method))
        async with serving(method.containing_service, own, reached) as address:
            caplog.clear()
            trust = security(certificates, role).towards(owner(method))
            code, details = await outcome(address, path(method), trust)
        if role in roles_of(path(method)):
            assert (code, reached) == (StatusCode.OK, [path(method)])
            continue
        assert (code, reached) == (StatusCode.PERMISSION_DENIED, [])
        assert details.startswith(f"role {role} may not call {path(method)}; ")
        assert f"caller=fullrank://{RUN}/{role} " in caplog.text
        assert "outcome=refused: " in caplog.text


@every_method
async def test_a_certificate_of_another_run_or_without_a_name_of_ours_is_refused(
    method: MethodDescriptor, certificates: Path
) -> None:
    may = next(iter(sorted(roles_of(path(method)))))
    reached: list[str] = []
    own = security(certificates, owner(method))
    async with serving(method.containing_service, own, reached) as address:
        for uris, expected in (
            ((f"fullrank://other/{may}",), StatusCode.PERMISSION_DENIED),
            ((), StatusCode.UNAUTHENTICATED),
            ((f"https://{RUN}/{may}",), StatusCode.UNAUTHENTICATED),
            ((f"fullrank://{RUN}/king",), StatusCode.UNAUTHENTICATED),
            ((f"fullrank://{RUN}/{may}",) * 2, StatusCode.UNAUTHENTICATED),
        ):
            trust = named(certificates, *uris, role=may).towards(owner(method))
            assert (await outcome(address, path(method), trust))[0] is expected, uris
    assert reached == []


@every_method
async def test_who_shows_no_valid_certificate_does_not_even_connect(
    method: MethodDescriptor, certificates: Path, tmp_path: Path
) -> None:
    may = next(iter(sorted(roles_of(path(method)))))
    own = security(certificates, owner(method))
    honest = security(certificates, may).towards(owner(method))
    stranger = security(certify(tmp_path), may).towards(owner(method))
    assert honest is not None
    assert stranger is not None
    mine = own.credentials
    assert mine is not None
    nobody = grpc.ssl_channel_credentials(mine.trusted)
    uri = f"fullrank://{RUN}/{may}"
    reached: list[str] = []
    async with serving(method.containing_service, own, reached) as address:
        for trust in (
            None,
            Trust(credentials=nobody, server_name=honest.server_name),
            stranger,
            named(certificates, uri, role=may, age_days=2).towards(owner(method)),
        ):
            assert (await outcome(address, path(method), trust))[0] is StatusCode.UNAVAILABLE
        assert reached == []
        assert (await outcome(address, path(method), honest))[0] is StatusCode.OK


async def failure(address: str, trust: Trust | None) -> FullrankError:
    """Error raised by the library's client."""
    async with open_channel(address, trust=trust) as channel:
        call: Any = channel.unary_unary(path(METHODS[0]))
        with pytest.raises((ServiceLost, Unauthenticated)) as raised, translated(address):
            await call(b"", timeout=WAIT_S)
    return raised.value


async def test_a_broken_handshake_is_one_clear_line(certificates: Path, tmp_path: Path) -> None:
    service = METHODS[0].containing_service
    learner = security(certificates, Role.LEARNER)
    stranger = security(certify(tmp_path), Role.LEARNER)
    async with serving(service, security(certificates, Role.CONTROLLER), []) as address:
        other = await failure(address, stranger.towards(Role.CONTROLLER))
        wrong = await failure(address, learner.towards(Role.REPLAY))
        plain = await failure(address, None)
    async with serving(service, PLAINTEXT, []) as address:
        secure = await failure(address, learner.towards(Role.CONTROLLER))
    assert isinstance(other, Unauthenticated)
    assert str(other).endswith("its certificate is expired or not of our authority")
    assert isinstance(wrong, Unauthenticated)
    assert "not of the role and run that are expected" in str(wrong)
    assert isinstance(plain, ServiceLost)
    assert "wants one and tls.certificates is not set here" in str(plain)
    assert isinstance(secure, Unauthenticated)
    assert "it speaks plain text" in str(secure)


@pytest.mark.parametrize(
    ("fails", "noted"), [(False, "INVALID_ARGUMENT"), (True, "ZeroDivisionError")]
)
async def test_an_administrator_s_call_that_fails_is_noted_with_its_status(
    certificates: Path, caplog: pytest.LogCaptureFixture, fails: bool, noted: str
) -> None:
    caplog.set_level(logging.INFO, "fullrank.audit")
    [method] = [each for each in METHODS if each.name == "SetInjection"]
    own = security(certificates, Role.LEARNER)
    trust = security(certificates, Role.ADMIN).towards(Role.LEARNER)

    async def refuse(request: Any, context: Any) -> None:
        if fails:
            raise ZeroDivisionError
        await context.abort(StatusCode.INVALID_ARGUMENT, "no such model")

    names = {each.name for each in method.containing_service.methods}
    servicer = SimpleNamespace(**dict.fromkeys(names, refuse))
    server = Server(method.containing_service, servicer, security=own)
    code, _ = await outcome(await server.start("127.0.0.1:0"), path(method), trust)
    await server.stop()
    assert code is not StatusCode.OK
    [line] = [each.getMessage() for each in caplog.records if each.name == "fullrank.audit"]
    assert line.endswith(f"outcome={noted}")


async def test_calls_of_administrators_are_noted_with_their_outcome(
    certificates: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "fullrank.audit")
    [method] = [each for each in METHODS if each.name == "SetInjection"]
    own = security(certificates, Role.LEARNER)
    async with serving(method.containing_service, own, []) as address:
        for role, name in ((Role.ADMIN, "SetInjection"), (Role.MONITOR, "GetInjection")):
            trust = security(certificates, role).towards(Role.LEARNER)
            await outcome(address, f"/fullrank.v1.StragglerService/{name}", trust)
    [line] = [record.getMessage() for record in caplog.records]
    assert line.startswith(f"call method={path(method)} caller=fullrank://{RUN}/admin peer=ipv4:")
    assert line.endswith("outcome=OK")


@every_method
async def test_bytes_that_are_no_message_are_an_invalid_argument_of_every_call(
    method: MethodDescriptor, caplog: pytest.LogCaptureFixture
) -> None:
    async def read(requests: Any, context: Any) -> Any:
        if method.client_streaming:
            async for _ in requests:
                pass
        return None if method.server_streaming else GetMessageClass(method.output_type)()

    service = method.containing_service
    servicer = SimpleNamespace(**{each.name: read for each in service.methods})
    server = Server(service, servicer, security=PLAINTEXT)
    alone = is_proved(path(method))  # on TCP it is refused unread
    address = await server.start("local" if alone else "127.0.0.1:0")
    try:
        for _ in range(3):
            code, details = await outcome(address, path(method), None, message=b"\xff" * 100)
            assert code is StatusCode.INVALID_ARGUMENT
            assert details == f"{path(method)} was sent bytes that are no message of it"
        assert (await outcome(address, path(method), None))[0] is StatusCode.OK
    finally:
        await server.stop()
    audited = [each.getMessage() for each in caplog.records if each.name == "fullrank.audit"]
    [line] = (each for each in audited if not each.startswith("call "))
    peer = "unix:" if alone else "ipv4:127.0.0.1:"
    assert line.startswith(f"malformed method={path(method)} peer={peer}")
    assert "Traceback" not in caplog.text


async def test_bytes_that_are_no_request_of_a_standard_service_are_an_invalid_argument() -> None:
    service = METHODS[0].containing_service
    server = Server(
        service,
        SimpleNamespace(**{each.name: print for each in service.methods}),
        security=PLAINTEXT,
    )
    address = await server.start("127.0.0.1:0")
    try:
        for call in (
            "/grpc.health.v1.Health/Check",
            "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
        ):
            code, _ = await outcome(address, call, None, message=b"\xff")
            assert code is StatusCode.INVALID_ARGUMENT
    finally:
        await server.stop()
