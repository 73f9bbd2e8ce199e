"""A process names itself, and judges its settings, before imports that take minutes elsewhere."""

import subprocess
import sys

import pytest

from fullrank import __version__

WITHOUT = """
import sys

class Refused:
    def find_spec(self, name, path=None, target=None):
        if name in ("torch", "grpc"):
            sys.exit(f"{name} is imported")

sys.meta_path.insert(0, Refused())
from fullrank.cli import main

main(sys.argv[1:])
"""


def started(*words: str) -> "subprocess.CompletedProcess[str]":
    """Run a command that ends as soon as it imports torch or gRPC."""
    command = [sys.executable, "-c", WITHOUT, *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("train", "--set", "iteration=3"), "unknown key 'iteration' in --set"),
        (("train", "--set", "iterations=few"), "iterations = 'few' in --set: must be"),
        (("train", "--learners", "3", "--set", "code.tolerance=3"), "needs more than 3 learners"),
        (("train", "--local", "--stragglers", "1"), "--local has none"),
        (("train", "--env", "simple_spred"), "unknown environment 'simple_spred'"),
        (("train", "--set", "algorithm.batch_sise=3"), "did you mean 'batch_size'?"),
        (("train", "--set", "algorithm.batch_size=few"), "algorithm.batch_size = 'few' in --set"),
        (("serve", "local", "--set", "algorithm.epsilon=1"), "'maddpg' has no parameter 'epsilon'"),
        (("serve", "controller", "--set", "sed=1"), "unknown key 'sed' in --set"),
        (("serve", "controller", "--set", "code.name=cyclical"), "unknown code 'cyclical'"),
        (("serve", "local", "--set", "stragglers.name=x"), "unknown delay model 'x'"),
        (("serve", "learner", "--set", "compute.device=gpu"), "compute.device = 'gpu' in --set"),
        (("serve", "collector", "--set", "sed=1"), "unknown key 'sed' in --set"),
        (("serve", "replay", "--set", "replay.capacity=0"), "replay.capacity = 0 in --set"),
        (("serve", "straggler", "--set", "sidecar.address=x"), "or local"),
        (("serve", "dashboard", "--set", "sed=1"), "unknown key 'sed' in --set"),
        (("dashboard", "127.0.0.1:1", "--set", "sed=1"), "unknown key 'sed' in --set"),
        (("simulate", "--set", "sed=1"), "unknown key 'sed' in --set"),
        (("config", "show", "--set", "sed=1"), "unknown key 'sed' in --set"),
    ],
)
def test_a_wrong_setting_is_said_before_torch_and_grpc_are_imported(
    words: tuple[str, ...], complaint: str
) -> None:
    outcome = started(*words)
    assert outcome.returncode == 2, outcome
    (line,) = (each for each in outcome.stderr.splitlines() if each.startswith("fullrank: "))
    assert complaint in line


@pytest.mark.parametrize("name", ["controller", "learner", "replay", "collector", "straggler"])
def test_a_service_names_itself_before_its_imports(name: str) -> None:
    outcome = started("serve", name)
    assert f"fullrank {name} {__version__} starts (pid " in outcome.stderr.splitlines()[0]
    assert outcome.stderr.splitlines()[-1] in ("torch is imported", "grpc is imported")


def test_a_run_names_itself_before_its_imports(tmp_path: object) -> None:
    outcome = started("train", "--run-dir", f"{tmp_path}/run")
    assert outcome.stdout.startswith(f"fullrank train {__version__} starts (pid ")
    assert outcome.stderr == "grpc is imported\n"
