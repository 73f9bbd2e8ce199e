"""The protocol only grows: what a released peer sends keeps its meaning."""

import copy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tools.proto_compatibility import broken, protocol

ROOT = Path(__file__).resolve().parents[3]
HELLO = "fullrank.v1.Hello"
WORK = "rpc fullrank.v1.ControllerService.Work"


def test_the_protocol_keeps_all_that_was_released() -> None:
    command = [sys.executable, str(ROOT / "tools" / "proto_compatibility.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("element", "change", "said"),
    [
        (f"field 1 of {HELLO}", {"name": "release"}, "was name version"),
        (f"field 1 of {HELLO}", {"type": "TYPE_BYTES"}, "is name version, type TYPE_BYTES"),
        (f"field 1 of {HELLO}", {"repeated": True}, "repeated True"),
        (f"field 1 of {HELLO}", None, "is gone"),
        (f"message {HELLO}", None, "is gone"),
        (WORK, {"clientStreaming": False}, "add another instead"),
        (f"ROLE_LEARNER of {WORK}", None, "is gone"),
        ("value 1 of fullrank.v1.Refusal", {"name": "REFUSAL_OLD"}, "was name"),
    ],
)
def test_what_is_removed_or_changed_is_named(
    element: str, change: dict[str, Any] | None, said: str
) -> None:
    baseline, current = protocol(), copy.deepcopy(protocol())
    if change is None:
        del current[element]
    else:
        current[element] |= change
    [fault] = broken(baseline, current)
    assert fault.startswith(element)
    assert said in fault


def test_additions_are_free() -> None:
    current = protocol()
    baseline = {name: current[name] for name in list(current)[::2]}
    assert broken(baseline, current) == []
