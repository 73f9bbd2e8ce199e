"""Examples that need no services run as they are; other tests run the rest with services."""

import ast
import difflib
import os
import runpy
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from fullrank.config import load

EXAMPLES = Path(__file__).parents[3] / "examples"


def printed(name: str) -> list[str]:
    """Lines that the example prints."""
    command = [sys.executable, str(EXAMPLES / name)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout.splitlines()


@pytest.mark.integration
def test_the_quickstart_ends_with_the_bits_of_the_centralised_run() -> None:
    *iterations, coded, centralised = printed("quickstart.py")
    assert len(iterations) == 20
    assert coded.split() == ["coded", centralised.split()[1]]


def test_coded_maddpg_in_one_file_ends_with_the_bits_of_one_place() -> None:
    path = EXAMPLES / "maddpg_plain.py"
    assert len(path.read_text().splitlines()) <= 150
    threads = torch.get_num_threads()
    plain = runpy.run_path(str(path))
    torch.set_num_threads(threads)
    coded = plain["train"](plain["learners"], iterations=3)
    assert coded == plain["train"](plain["one_place"], iterations=3)
    assert coded != plain["train"](plain["one_place"], iterations=4)


def test_the_configuration_of_eight_agents_is_valid() -> None:
    config = load(EXAMPLES / "eight_agents.toml", environ={}).check().config
    assert config.environment.agents == 8
    assert config.algorithm.name == "vdn"


def test_the_configuration_of_three_agents_ends_with_a_collection() -> None:
    config = load(EXAMPLES / "three_agents.toml", environ={}).check().config
    assert config.environment.agents in (0, 3)
    assert config.algorithm.name == "ippo"
    assert config.algorithm.params["anneal_iterations"] == config.iterations


def test_a_study_of_optuna_trains_a_run_for_each_trial_and_goes_on(tmp_path: Path) -> None:
    pytest.importorskip("optuna", reason="needs optuna, which no extra installs")
    study = [sys.executable, str(EXAMPLES / "optuna_study.py"), str(tmp_path / "study")]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for trials in (1, 2):
        run = subprocess.run(
            [*study, "--trials", "1", "--iterations", "2"],
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
        assert run.returncode == 0, run.stderr
        assert run.stdout.splitlines()[-1].startswith("best return ")
        assert len([*(tmp_path / "study").glob("trial-*/evaluations.jsonl")]) == trials


@pytest.mark.thorough
def test_an_environment_of_one_s_own_is_learnt() -> None:
    first, last = (float(line.split()[-1]) for line in printed("bring_your_environment.py"))
    assert last > first


def test_a_loop_of_one_s_own_is_coded_by_15_lines_to_the_same_bits_in_any_order() -> None:
    plain, coded = ((EXAMPLES / name).read_text() for name in ("ppo.py", "ppo_coded.py"))
    code = [
        [line for line in ast.unparse(_without_docstrings(ast.parse(text))).splitlines() if line]
        for text in (plain, coded)
    ]
    changed = [line for line in difflib.ndiff(code[0], code[1]) if line.startswith("+ ")]
    assert len(changed) <= 15, changed
    threads = torch.get_num_threads()
    module = runpy.run_path(str(EXAMPLES / "ppo_coded.py"))
    digests = set()
    for order in ((0, 1, 2, 3), (3, 1, 2, 0)):
        module["train"].__globals__["as_completed"] = partial(_in_order, order)
        agent = module["train"](1, _Inline())
        digests.add(b"".join(each.detach().numpy().tobytes() for each in agent.parameters()))
    torch.set_num_threads(threads)
    assert len(digests) == 1


class _Inline:
    """A pool that computes at once."""

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(function(*arguments))
        return future


def _in_order(order: Sequence[int], rows: Mapping[Future[Any], int]) -> Iterator[Future[Any]]:
    return iter(sorted(rows, key=lambda future: order.index(rows[future])))


def _without_docstrings(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef) and ast.get_docstring(
            node
        ):
            node.body = node.body[1:]
    return tree
