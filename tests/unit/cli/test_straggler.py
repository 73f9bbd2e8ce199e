"""``fullrank straggler``: ``get`` prints the syntax of ``set``, and refusals give the reason."""

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.waiting import WAIT_S

from fullrank.config import PluginSettings
from fullrank.config.values import LOCAL
from fullrank.host.run_directory import announce, withdraw
from fullrank.net.channel import PLAINTEXT
from fullrank.net.server import Server
from fullrank.v1 import straggler_pb2 as pb
from fullrank_straggler.gate import Control, injection_of
from fullrank_straggler.server import StragglerServicer

from .conftest import Command


async def _serve(addresses: "list[str]", listening: threading.Event, stop: asyncio.Event) -> None:
    control = Control(injection_of(PluginSettings(name="none")))
    descriptor = pb.DESCRIPTOR.services_by_name["StragglerService"]
    server = Server(descriptor, StragglerServicer(control), security=PLAINTEXT)
    addresses.append(await server.start(LOCAL))
    listening.set()
    await stop.wait()
    await server.stop()


@pytest.fixture
def address() -> Iterator[str]:
    """The control address of a sidecar that injects nothing."""
    addresses: list[str] = []
    listening, loop, stop = threading.Event(), asyncio.new_event_loop(), asyncio.Event()
    thread = threading.Thread(
        target=lambda: loop.run_until_complete(_serve(addresses, listening, stop))
    )
    thread.start()
    assert listening.wait(WAIT_S)
    yield addresses[0]
    loop.call_soon_threadsafe(stop.set)
    thread.join()
    loop.close()


def test_it_is_set_and_read_in_the_same_words(fullrank: Command, address: str) -> None:
    assert fullrank("straggler", "get", address) == (0, "model  none\n", "")
    model = ("--model", "pareto", "--set", "scale_s=0.5", "--set", "shape=3.0")
    faults = ("hold learners=[1,2] iterations=[7]", "corrupt byte=5 mend_checksum=true")
    words = [word for fault in faults for word in ("--fault", fault)]
    code, output, _ = fullrank("straggler", "set", address, *model, *words)
    assert code == 0
    first, *rest = output.splitlines()
    assert first.split()[:2] == ["model", "pareto"]
    assert set(first.split()[2:]) == {"probability=1", "scale_s=0.5", "shape=3"}
    assert rest == [f"fault  {fault}" for fault in faults]
    assert fullrank("straggler", "get", address).output == output


def test_a_run_directory_names_its_sidecar(fullrank: Command, address: str, tmp_path: Path) -> None:
    announce(tmp_path, "straggler-control", address)
    fullrank("straggler", "set", str(tmp_path), "--model", "fixed_k", "--set", "delay_s=1.0")
    assert fullrank("straggler", "get", str(tmp_path)).output.startswith("model  fixed_k")
    assert fullrank("straggler", "get", address).output.startswith("model  fixed_k")
    withdraw(tmp_path, "straggler-control")
    outcome = fullrank("straggler", "get", str(tmp_path))
    assert outcome.code == 9
    assert "the straggler-control has not announced its address" in outcome.error


def test_what_is_not_named_stays(fullrank: Command, address: str) -> None:
    fullrank("straggler", "set", address, "--model", "fixed_k", "--fault", "drop learners=[3]")
    fullrank("straggler", "set", address, "--model", "none")
    facts = json.loads(fullrank("straggler", "get", address, "--json").output)
    assert facts["model"] == {"name": "none"}
    assert facts["faults"] == [{"kind": "drop", "learners": [3], "iterations": []}]
    fullrank("straggler", "set", address, "--fault", "none")
    assert fullrank("straggler", "get", address).output == "model  none\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--model", "fixd_k"], "model.name: unknown delay model 'fixd_k'; did you mean 'fixed_k'"),
        (["--model", "fixed_k", "--set", "delay_s=-1"], "model.params: fixed_k: delay_s must be"),
        (["--set", "k=1"], "name the model with --model"),
        (["--fault", "drop", "--fault", "none"], "sidecar.faults.1"),
        (["--fault", "hold byte=1"], "sidecar.faults.0.hold.byte"),
        (["--fault", "throttle bytes_per_s=0"], "must be greater than 0"),
    ],
)
def test_what_is_refused_says_why_and_changes_nothing(
    fullrank: Command, address: str, words: list[str], said: str
) -> None:
    code, output, error = fullrank("straggler", "set", address, *words)
    assert (code, output) == (2, "")
    assert said in error
    assert fullrank("straggler", "get", address).output == "model  none\n"


def test_a_sidecar_that_does_not_answer_is_lost(fullrank: Command) -> None:
    code, _, error = fullrank("straggler", "get", "127.0.0.1:1")
    assert code == 9
    assert error.startswith("fullrank: straggler 127.0.0.1:1: UNAVAILABLE")
