"""Every line of a service's log is an object in JSON, whatever printed it."""

import json
import logging
import os
import subprocess
import sys
from typing import Any

import pytest

from fullrank import __version__
from fullrank.cli.say import LOG_FORMAT
from fullrank.common.place import PLACE

FAILING = """
import asyncio, logging, sys, warnings
from fullrank.cli.say import log, start_service_log
from fullrank.common.place import PLACE

start_service_log("learner")
log.debug("unsaid")
PLACE.update(run="mine", term=2, learner=0, iteration=7)
logging.getLogger("x").info("reason=%s", "\\x1b[2J\\nfullrank: all is well")
print("fullrank: problem; remedy", file=sys.stderr)
warnings.warn("an old call")

import grpc

async def shake_hands():
    async def answer(reader, writer):
        writer.write(b"this is no TLS\\n")
        writer.close()
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    address = "127.0.0.1:%d" % server.sockets[0].getsockname()[1]
    channel = grpc.aio.secure_channel(address, grpc.ssl_channel_credentials())
    try:
        await channel.unary_unary("/x/y")(b"")
    except grpc.RpcError as error:
        log.warning("refused status=%s", error.code().name)

asyncio.run(shake_hands())
raise ValueError("of nobody")
"""


def lines_of(program: str, form: str = "json") -> list[str]:
    """Standard error of a program that ends by an exception."""
    environ = {key: value for key, value in os.environ.items() if key != "GRPC_VERBOSITY"}
    command = [sys.executable, "-c", program]
    ran = subprocess.run(command, capture_output=True, text=True, env=environ | {LOG_FORMAT: form})
    assert ran.returncode == 1
    return ran.stderr.splitlines()


def test_every_line_of_a_service_is_one_object_with_its_place() -> None:
    lines = lines_of(FAILING)
    said: list[dict[str, Any]] = [json.loads(line) for line in lines]
    assert all(line.isascii() and line.isprintable() for line in lines)
    reason, problem, warned, refused, ended = said
    assert reason["message"] == "reason=\x1b[2J\nfullrank: all is well"
    place = {"run": "mine", "term": 2, "learner": 0, "iteration": 7, "service": "learner"}
    assert all(each.items() >= place.items() for each in said)
    assert reason["timestamp"].endswith("Z")
    assert (reason["level"], reason["logger"]) == ("INFO", "x")
    assert reason["instance"].partition("/")[2].isdecimal()
    assert problem["message"] == "fullrank: problem; remedy"
    assert "an old call" in warned["message"]
    assert refused["message"] == "refused status=UNAVAILABLE"  # and no line of gRPC's core
    assert (ended["level"], ended["message"]) == ("CRITICAL", "of nobody")
    assert "ValueError: of nobody" in ended["exception"]


def test_text_is_the_default_and_has_no_line_of_grpc_s_core() -> None:
    lines = lines_of(FAILING, form="text")
    assert any(line.endswith(r"INFO x reason=\x1b[2J\nfullrank: all is well") for line in lines)
    assert "fullrank: problem; remedy" in lines
    assert not any("ssl_transport_security" in line for line in lines)


def test_another_format_is_refused(fullrank: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.root, "handlers", [])
    monkeypatch.setenv(LOG_FORMAT, "yaml")
    outcome = fullrank("serve", "replay")
    assert (outcome.code, outcome.error) == (
        2,
        f"fullrank: {LOG_FORMAT} = 'yaml' in the environment: must be text or json\n",
    )


def test_a_service_names_itself_and_its_error_in_json() -> None:
    arguments = ["-m", "fullrank", "serve", "replay", "--set", "replay.capacity=0"]
    ran = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        env=os.environ | {LOG_FORMAT: "json"},
    )
    first, last = map(json.loads, ran.stderr.splitlines())
    assert ran.returncode == 2
    assert first["message"].startswith(f"fullrank replay {__version__} starts (pid ")
    assert last["message"].startswith("fullrank: replay.capacity = 0 in --set")
    assert PLACE.keys().isdisjoint(last)
