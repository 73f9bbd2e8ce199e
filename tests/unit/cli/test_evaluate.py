import json
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self, cast

import numpy as np
import pytest

from fullrank.cli.evaluate import PublishedPolicies
from fullrank.cli.policies import Version, trained
from fullrank.common.errors import ServiceLost
from fullrank.config import RunConfig, read_config
from fullrank.environments.base import Environment
from fullrank.net import monitor
from fullrank.runs.evaluations import read_evaluations
from fullrank.runs.scalars import scalars
from fullrank.runs.statistics import wilson
from fullrank.training.evaluation import Evaluation, Greedy
from fullrank.v1 import monitor_pb2 as pb
from fullrank.wiring.plugins import environment_of
from fullrank_controller.monitor import servicer

from .conftest import Command, finished


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    return finished(tmp_path)


@pytest.fixture
def evaluate(fullrank: Any) -> Callable[..., str]:
    """``evaluate(*words)`` returns the printed output or the error."""

    def run(*words: str) -> str:
        outcome = fullrank("eval", *words)
        printed: str = outcome.error if outcome.code else outcome.output
        return printed

    return run


def test_it_plays_trained_and_random_policies_on_the_same_states(
    run_dir: Path, evaluate: Callable[..., str]
) -> None:
    facts = json.loads(evaluate(str(run_dir), "--episodes", "70", "--json"))
    assert (facts["iteration"], facts["episodes"], facts["seed"]) == (0, 70, 1000)
    assert (facts["environment"], facts["variant"]) == ("cooperative_navigation", "openai")
    for policy in ("trained", "random"):
        assert facts[policy]["low"] < facts[policy]["mean"] < facts[policy]["high"] < 0


@pytest.mark.parametrize("verb", ["eval", "compare", "render", "export"])
def test_a_seed_beyond_64_bits_is_a_usage_error(verb: str, fullrank: Command) -> None:
    outcome = fullrank(verb, "run", "--seed", str(2**70))
    assert (outcome.code, outcome.output) == (2, "")
    assert str(2**63 - 1) in outcome.error


def test_what_an_environment_prints_is_kept_out_of_the_results(
    run_dir: Path, fullrank: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def chatty(config: RunConfig, *, copies: int) -> Environment:
        print("pygame says hello")
        return environment_of(config, copies=copies)

    monkeypatch.setattr("fullrank.cli.policies.environment_of", chatty)
    outcome = fullrank("eval", str(run_dir), "--episodes", "2", "--json")
    assert json.loads(outcome.output)["trained"]["mean"] < 0
    assert outcome.error.count("pygame says hello") == 2


def test_a_contest_has_a_win_rate_with_its_interval(
    run_dir: Path, evaluate: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ones = np.ones(4)
    won = np.array([True, True, True, False])
    played = Evaluation(ones, {"team": ones}, np.full(4, 7), won)
    monkeypatch.setattr("fullrank.cli.evaluate.play_episodes", lambda *_, **__: played)
    shown = evaluate(str(run_dir), "--episodes", "4")
    assert "win rate in %" in shown
    assert "75.0 [30.1, 95.4]" in shown
    evaluate(str(run_dir), "--episodes", "4", "--follow", "--patience", "0")
    (record,) = read_evaluations(run_dir)
    assert record.win_rate == wilson(won)
    assert scalars(record)["win_rate"] == 0.75


def test_equal_seeds_play_equal_episodes(run_dir: Path, evaluate: Callable[..., str]) -> None:
    words = (str(run_dir), "--episodes", "5", "--json", "--no-random", "--seed")
    first, again, other = (evaluate(*words, seed) for seed in ("7", "7", "8"))
    assert first == again
    assert json.loads(first)["trained"] != json.loads(other)["trained"]
    assert "random" not in json.loads(first)


def test_a_damaged_checkpoint_is_named(run_dir: Path, evaluate: Callable[..., str]) -> None:
    (run_dir / "checkpoints" / "000000" / "state.safetensors").write_bytes(b"")
    printed = evaluate(str(run_dir))
    assert "000000/state.safetensors: damaged" in printed
    assert len(printed.splitlines()) == 1


def test_a_directory_that_is_no_run_is_refused(
    tmp_path: Path, evaluate: Callable[..., str]
) -> None:
    assert "is this a run?" in evaluate(str(tmp_path))


@pytest.mark.parametrize("algorithm", ["maddpg", "qmix"])
def test_published_policies_act_as_those_of_the_checkpoint(algorithm: str, tmp_path: Path) -> None:
    run = finished(tmp_path / "mine", algorithm__name=algorithm)
    messages = servicer._policies(run / "checkpoints")

    class Published:
        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def setup(self) -> SimpleNamespace:
            return SimpleNamespace(config=read_config(run))

        def policies(self) -> monitor.Policies:
            return monitor._policies(map(pb.GetPoliciesResponse.FromString, messages))

    source = PublishedPolicies("mine", lambda: cast(monitor.Monitor, Published()))
    published = source.newer(Version(0, -1))
    assert published is not None
    stored = trained(run, source.config)
    assert published.version == stored.version
    sizes = [agent.observation_size for agent in stored.agents]
    seen = np.random.default_rng(0).standard_normal((20, sum(sizes)), dtype=np.float32)
    actions = []
    for policies in (published, stored):
        act = Greedy(policies.algorithm.actor)
        act.begin(np.arange(20), 20)
        actions.append(act(seen))
    np.testing.assert_array_equal(actions[0], actions[1])


def test_the_number_of_iterations_is_what_a_controller_has_said_last() -> None:
    said: list[int | None] = [3, 5, None]

    class Ordered:
        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def setup(self) -> SimpleNamespace:
            return SimpleNamespace(config=RunConfig(iterations=1))

        def status(self) -> SimpleNamespace:
            if (iterations := said.pop(0)) is None:
                raise ServiceLost("it is away")
            return SimpleNamespace(iterations=iterations)

    source = PublishedPolicies("mine", lambda: cast(monitor.Monitor, Ordered()))
    assert [source.iterations() for _ in range(3)] == [3, 5, 5]


def test_play_without_end_is_one_line_and_a_followed_run_goes_on(
    run_dir: Path, fullrank: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fullrank.training.evaluation.longest_of", lambda environment: 3)
    told = "greedy play does not end: an episode has had 3 steps; give the environment a time limit"
    ended = fullrank("eval", str(run_dir))
    assert ended == (3, "", f"fullrank: {told}\n")
    followed = fullrank("eval", str(run_dir), "--follow", "--patience", "0")
    assert (followed.code, followed.output) == (0, "")
    assert followed.error.splitlines() == [f"iteration 0: {told}"]
    assert not read_evaluations(run_dir)


def test_one_episode_has_a_return_without_bounds(
    run_dir: Path, evaluate: Callable[..., str]
) -> None:
    facts = json.loads(evaluate(str(run_dir), "--episodes", "1", "--json"))
    for played in (facts["trained"], facts["trained"]["sides"]["team"], facts["gap_closed"]):
        assert (played["low"], played["high"]) == (None, None)
    shown = evaluate(str(run_dir), "--episodes", "1", "--follow", "--patience", "0")
    assert re.fullmatch(r"iteration 0: return -\d+\.\d+\n", shown)
    (record,) = read_evaluations(run_dir)
    assert record.returns == (facts["trained"]["mean"],) * 3
