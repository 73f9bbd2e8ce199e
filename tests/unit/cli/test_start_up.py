"""A process names itself, and judges its settings, before imports that take minutes elsewhere."""

import json
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from fullrank import __version__

pytestmark = pytest.mark.integration

WITHOUT = """
import io, json, logging, sys
from contextlib import redirect_stderr, redirect_stdout

class Refused:
    def find_spec(self, name, path=None, target=None):
        if name in ("torch", "grpc"):
            sys.exit(f"{name} is imported")

sys.meta_path.insert(0, Refused())
from fullrank.cli import main

ended = []
for words in json.loads(sys.argv[1]):
    logging.root.handlers.clear()
    with redirect_stdout(io.StringIO()) as output, redirect_stderr(io.StringIO()) as error:
        try:
            main(words)
        except SystemExit as end:
            ended.append((end.code, output.getvalue(), error.getvalue()))
print(json.dumps(ended))
"""


class Ended(NamedTuple):
    """What a command ended with: its exit code, or the import that it asked for."""

    code: int | str
    output: str
    error: str


def started(*commands: tuple[str, ...]) -> list[Ended]:
    """Run commands in a process in which each ends as soon as it imports torch or gRPC."""
    program = [sys.executable, "-c", WITHOUT, json.dumps(commands)]
    ran = subprocess.run(program, capture_output=True, text=True, check=True)
    return [Ended(*each) for each in json.loads(ran.stdout)]


WRONG = {
    ("train", "--set", "iteration=3"): "unknown key 'iteration' in --set",
    ("train", "--set", "iterations=few"): "iterations = 'few' in --set: must be",
    ("train", "--learners", "3", "--set", "code.tolerance=3"): "needs more than 3 learners",
    ("train", "--local", "--stragglers", "1"): "--local has none",
    ("train", "--env", "simple_spred"): "unknown environment 'simple_spred'",
    ("train", "--set", "algorithm.batch_sise=3"): "did you mean 'batch_size'?",
    ("train", "--set", "algorithm.batch_size=few"): "algorithm.batch_size = 'few' in --set",
    ("run", "submit", "one", "--set", "sed=1"): "unknown key 'sed' in --set",
    ("serve", "local", "--set", "algorithm.epsilon=1"): "'maddpg' has no parameter 'epsilon'",
    ("serve", "controller", "--set", "sed=1"): "unknown key 'sed' in --set",
    ("serve", "controller", "--set", "code.name=cyclical"): "unknown code 'cyclical'",
    ("serve", "local", "--set", "stragglers.name=x"): "unknown delay model 'x'",
    ("serve", "learner", "--set", "compute.device=gpu"): "compute.device = 'gpu' in --set",
    ("serve", "collector", "--set", "sed=1"): "unknown key 'sed' in --set",
    ("serve", "replay", "--set", "replay.capacity=0"): "replay.capacity = 0 in --set",
    ("serve", "straggler", "--set", "sidecar.address=x"): "or local",
    ("serve", "dashboard", "--set", "sed=1"): "unknown key 'sed' in --set",
    ("dashboard", "127.0.0.1:1", "--set", "sed=1"): "unknown key 'sed' in --set",
    ("simulate", "--set", "sed=1"): "unknown key 'sed' in --set",
    ("config", "show", "--set", "sed=1"): "unknown key 'sed' in --set",
}


def test_a_wrong_setting_is_said_before_torch_and_grpc_are_imported() -> None:
    helped, *refused = started(("--help",), *WRONG)
    assert not helped.code
    for (words, complaint), ended in zip(WRONG.items(), refused, strict=True):
        assert ended.code == 2, (words, ended)
        (line,) = (each for each in ended.error.splitlines() if each.startswith("fullrank: "))
        assert complaint in line


def test_a_service_names_itself_before_its_imports() -> None:
    names = ("controller", "learner", "replay", "collector", "straggler")
    for name, ended in zip(names, started(*(("serve", name) for name in names)), strict=True):
        assert f"fullrank {name} {__version__} starts (pid " in ended.error.splitlines()[0]
        assert ended.code in ("torch is imported", "grpc is imported")


def test_a_run_names_itself_before_its_imports(tmp_path: Path) -> None:
    (ended,) = started(("train", "--run-dir", f"{tmp_path}/run"))
    assert ended.output.startswith(f"fullrank train {__version__} starts (pid ")
    assert ended.code == "grpc is imported"
