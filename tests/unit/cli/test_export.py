"""``fullrank export``: the files written, the model card, and refusals."""

import runpy
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.unit.environments.games import Locks
from tests.unit.environments.test_several_choices import Gliding

from fullrank.cli.policies import trained
from fullrank.common.types import JSON, FloatArray
from fullrank.config import read_config
from fullrank.environments import make_environment
from fullrank.environments.capabilities import available_of
from fullrank.export import tensors
from fullrank.training.episodes import team_reward
from fullrank.training.evaluation import Greedy

from .conftest import Command, finished

LOCKS: JSON = {
    "environment__name": f"{Locks.__module__}:Locks",
    "environment__agents": 0,
    "algorithm__name": "ippo",
    "algorithm__batch_size": 4,
    "iterations": 5,
}
EXAMPLE = Path(__file__).parents[3] / "examples" / "play_onnx.py"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return finished(tmp_path / "mine")


@pytest.mark.parametrize("form", ["safetensors", "onnx"])
def test_every_agent_gets_a_file_beside_a_card(fullrank: Command, run: Path, form: str) -> None:
    folder = run / "export" / form
    words = ("export", str(run), "--format", form, "--episodes", "2")
    assert fullrank(*words) == (0, f"{folder}\n", "")
    names = ["README.md", *(f"policy_{unit:03d}.{form}" for unit in range(3))]
    assert sorted(path.name for path in folder.iterdir()) == names
    assert [path.name for path in folder.parent.iterdir()] == [form]


def test_the_card_tells_environment_variant_code_seeds_and_returns(
    fullrank: Command, tmp_path: Path
) -> None:
    run = finished(tmp_path / "mine", environment__name="predator_prey", seed=7)
    assert fullrank("export", str(run), "--episodes", "3").code == 0
    card = (run / "export" / "safetensors" / "README.md").read_text()
    for line in (
        "# Policies of mine",
        "| environment | predator_prey (horizon = 25, variant = openai",
        "| variant | openai |",
        "| code | cyclic (tolerance = 1) |",
        "| seed | 7 |",
        "| iterations | 1 |",
        "Means over 3 undiscounted episodes",
        "of seed 1000",
        "| policy | all agents | predator | prey |",
        "| policy_000.safetensors | predator_0 | predator |",
        " at most (relative to the largest output where that is above 1).",
    ):
        assert line in card, card
    returns = [line for line in card.splitlines() if line.startswith(("| trained", "| random"))]
    assert [line.count("[") for line in returns] == [3, 3]


@pytest.mark.integration
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"environment__name": "predator_prey", "environment__adversaries": 2},
        {
            "environment__name": "mpe2.simple_speaker_listener_v4:parallel_env",
            "environment__agents": 0,
            "environment__max_cycles": 7,
        },
        {"environment__name": "switch_riddle", "environment__days": 5},
        {"environment__name": "switch_riddle", "environment__days": 5, "algorithm__name": "qmix"},
        LOCKS,
        {**LOCKS, "environment__mask": [1, 0, 1, 0, 1]},
        {**LOCKS, "environment__mask": [1, 0, 1, 0, 1], "algorithm__layer_norm": True},
        {"environment__name": f"{Gliding.__module__}:Gliding", "environment__agents": 0},
    ],
)
def test_the_example_plays_an_episode_as_the_run_does(
    fullrank: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: JSON
) -> None:
    run = finished(tmp_path / "mine", **options)
    fullrank("export", str(run), "--format", "onnx", "--episodes", "1")
    printed: list[str] = []
    monkeypatch.setattr(sys, "argv", ["play_onnx.py", str(run / "export" / "onnx")])
    monkeypatch.setattr("builtins.print", printed.append)
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    assert printed == [f"return {_return_of_an_episode(run):.3f}"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["{}"], "{} holds no policy; write some by fullrank export RUN --format onnx"),
        ([], "usage: python play_onnx.py DIRECTORY"),
    ],
)
def test_the_example_says_in_one_line_that_it_has_no_policies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], message: str
) -> None:
    given = [word.format(tmp_path) for word in words]
    monkeypatch.setattr(sys, "argv", ["play_onnx.py", *given])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(EXAMPLE), run_name="__main__")
    assert ended.value.code == message.format(tmp_path)  # Python prints it, and exits with 1


def _return_of_an_episode(run: Path) -> float:
    config = read_config(run)
    act, task = Greedy(trained(run, config).algorithm.actor), config.environment
    environment = make_environment(task.name, agents=task.agents, copies=1, **task.params)
    observation, earned, ended = environment.reset([0], [0]), 0.0, False
    act.begin(np.array([0]), 1)
    while not ended:
        step = environment.step(act(observation, available_of(environment)))
        observation, ended = step.observation, bool(step.ended[0])
        earned += float(team_reward(environment, step.reward)[0])
    return earned


def refused(fullrank: Command, *words: str) -> tuple[int, str]:
    """Exit code and error line of a failing command."""
    code, output, error = fullrank("export", *words)
    assert (output, len(error.splitlines())) == ("", 1)
    return code, error


def test_what_is_there_is_not_overwritten(fullrank: Command, run: Path) -> None:
    (run / "other").mkdir()
    code, error = refused(fullrank, str(run), "--output", str(run / "other"))
    assert (code, "other exists already; choose another --output" in error) == (1, True)
    assert list((run / "other").iterdir()) == []


def test_an_unknown_run_and_one_without_checkpoint_are_one_line(
    fullrank: Command, run: Path
) -> None:
    assert "there is no run" in refused(fullrank, str(run / "gone"))[1]
    for path in (run / "checkpoints" / "000000").iterdir():
        path.unlink()
    (run / "checkpoints" / "000000").rmdir()
    code, error = refused(fullrank, str(run))
    assert (code, "holds no checkpoint yet" in error) == (8, True)


@pytest.mark.parametrize("package", ["onnx", "onnxruntime"])
def test_without_the_extra_it_says_what_to_install(
    fullrank: Command, run: Path, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    code, error = refused(fullrank, str(run), "--format", "onnx")
    assert (code, "pip install 'fullrank[onnx]'" in error) == (2, True)
    assert list((run / "export").iterdir()) == []


def test_policies_that_differ_are_not_kept(
    fullrank: Command, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(policy: object, path: Path) -> object:
        def play(observation: FloatArray) -> FloatArray:
            outputs: FloatArray = right(observation) + 1.0
            return outputs

        right = load(policy, path)  # type: ignore[arg-type]
        return play

    load = tensors.load
    monkeypatch.setattr(tensors, "load", wrong)
    assert "differ from the run's by" in refused(fullrank, str(run))[1]
    assert list((run / "export").iterdir()) == []


def test_the_card_says_that_greedy_play_does_not_end(
    fullrank: Command, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fullrank.training.evaluation.longest_of", lambda environment: 3)
    assert fullrank("export", str(run)).code == 0
    card = (run / "export" / "safetensors" / "README.md").read_text()
    assert "## Returns\n\nNone: greedy play does not end: an episode has had 3 steps" in card
    assert "| policy_000.safetensors | agent_0 |" in card
