"""Health on an address of its own, as a probe sees it."""

import asyncio
import subprocess
import sys
from importlib import import_module

import pytest
from tests.addresses import free_address
from tests.waiting import WAIT_S

from fullrank.cli import main
from fullrank.common.errors import AddressInUse
from fullrank.host import probe as probe_file
from fullrank.host.probe import probe
from fullrank.net.server import LIVE, Health


@pytest.fixture
def address() -> str:
    """An address without a listener yet."""
    return free_address()


async def probed(address: str, service: str = "") -> str:
    """Answer that a probe receives."""
    try:
        return await asyncio.to_thread(probe, address, service, WAIT_S)
    except OSError as error:
        return str(error)


async def test_health_follows_the_work_and_the_process_lives_all_along(address: str) -> None:
    async with Health(address) as health:
        assert await probed(address) == "NOT_SERVING"
        assert await probed(address, LIVE) == "SERVING"
        await health.at_work(True)
        assert await probed(address) == "SERVING"
        await health.at_work(False)
        assert await probed(address) == "NOT_SERVING"
    assert "refused" in await probed(address)


async def test_a_name_that_nobody_serves_is_not_found(address: str) -> None:
    async with Health(address):
        assert "serves no such name" in await probed(address, "nobody")


async def test_two_processes_never_share_a_health_address(address: str) -> None:
    async with Health(address):
        with pytest.raises(AddressInUse, match=f"cannot listen on {address}"):
            async with Health(address):
                pass


async def test_without_an_address_nothing_is_served() -> None:
    async with Health("") as health:
        await health.at_work(True)


async def test_the_command_prints_one_line_and_ends_with_the_documented_code(
    address: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_module("fullrank.cli.doctor"), "TIMEOUT_S", WAIT_S)

    def asked() -> tuple[object, str, str]:
        with pytest.raises(SystemExit) as ended:
            main(["doctor", address])
        return (ended.value.code, *capsys.readouterr())

    async with Health(address) as health:
        await health.at_work(True)
        assert await asyncio.to_thread(asked) == (0, "SERVING\n", "")
        await health.at_work(False)
        expected = (9, "", f"fullrank: {address}: NOT_SERVING\n")
        assert await asyncio.to_thread(asked) == expected


async def test_the_file_itself_is_a_probe_that_imports_nothing(address: str) -> None:
    def asked() -> tuple[int, str, set[str]]:
        bare = (sys.executable, "-I", "-S")
        started, run = (
            subprocess.run(
                [*bare, "-X", "importtime", *words], capture_output=True, text=True, check=False
            )
            for words in (["-c", ""], [probe_file.__file__, address])
        )
        before, after = (
            {line.split()[-1] for line in each.stderr.splitlines()} for each in (started, run)
        )
        return run.returncode, run.stdout, after - before

    async with Health(address) as health:
        assert await asyncio.to_thread(asked) == (1, "NOT_SERVING\n", {"_socket"})
        await health.at_work(True)
        assert (await asyncio.to_thread(asked))[:2] == (0, "SERVING\n")


async def test_what_serves_something_else_is_not_healthy(unused_tcp_port: int) -> None:
    async def other(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"trailers")
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(other, "127.0.0.1", unused_tcp_port):
        assert "does it serve grpc.health.v1" in await probed(f"127.0.0.1:{unused_tcp_port}")
