"""``fullrank train`` before it starts a service."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.faultlab.simulation import toy_algorithm
from tests.registries import shipped

from fullrank.algorithms import algorithms
from fullrank.cli import processes, train
from fullrank.common.errors import ConfigError, RunDirectoryInUse, Unsound
from fullrank.config import RunConfig
from fullrank.config.layers import load
from fullrank.config.plugins import EPISODIC, PER_AGENT, spec_of
from fullrank.host.run_directory import lock_launch
from fullrank.net.status import RunState
from fullrank.wiring import plugins

from .conftest import Command

assert toy_algorithm  # importing it registers the algorithm


@pytest.mark.parametrize("inside", ["file/run", "/proc/nothing/run"])
def test_a_run_directory_that_cannot_be_made_is_one_line(
    inside: str, tmp_path: Path, fullrank: Any
) -> None:
    (tmp_path / "file").write_text("")
    outcome = fullrank("train", "--run-dir", str(tmp_path / inside))
    assert outcome.code == 1
    assert outcome.error.startswith(f"fullrank: cannot make {tmp_path / inside}: ")
    assert len(outcome.error.splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (
            ("--agents", "8", "--learners", "1"),
            "code.tolerance = 1 lost learners needs more than 1 learners: use --learners 2 or a "
            "lower code.tolerance",
        ),
        (
            ("--set", "code.tolerance=two"),
            "code.tolerance = 'two' in --set: must be a valid integer",
        ),
    ],
)
def test_impossible_sizes_are_one_line_and_leave_nothing(
    words: tuple[str, ...], complaint: str, tmp_path: Path, fullrank: Any
) -> None:
    outcome = fullrank("train", "--run-dir", str(tmp_path / "run"), *words)
    assert outcome == (2, "", f"fullrank: {complaint}\n")
    assert not (tmp_path / "run").exists()


def test_a_second_train_on_one_directory_is_refused_and_removes_nothing(
    tmp_path: Path, fullrank: Any
) -> None:
    """The first has made its directory, and has not written anything yet."""
    with lock_launch(tmp_path):
        for words in (
            ["train", "--run-dir", str(tmp_path)],
            ["run", "resume", "--attach", str(tmp_path)],
        ):
            outcome = fullrank(*words)
            assert outcome.code == RunDirectoryInUse.exit_code
            assert (
                f"{tmp_path} is held by another `fullrank train` or `run resume`" in outcome.error
            )
            assert sorted(path.name for path in tmp_path.rglob("*")) == EXPECTED[words[0]]
            (tmp_path / "config.toml").write_text("seed = 0\n")  # the first has begun


@pytest.mark.parametrize("name", ["link", "."])
def test_a_run_that_fails_at_once_is_said_to_in_a_directory_that_cannot_be_removed(
    name: str, tmp_path: Path, fullrank: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: Path, config: RunConfig, local: bool, coding: bool) -> None:
        raise Unsound("the numbers are not finite")

    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to("empty")
    monkeypatch.chdir(tmp_path / "empty" if name == "." else tmp_path)
    monkeypatch.setattr(processes, "run_to_end", fail)
    outcome = fullrank("train", "--local", "--run-dir", name)
    assert (outcome.code, outcome.error) == (
        Unsound.exit_code,
        "fullrank: the numbers are not finite\n",
    )


EXPECTED = {"train": ["lock", "logs"], "run": ["config.toml", "lock", "logs"]}


SUM = ("--set", "algorithm.name=summed_toy", "--agents", "4", "--code", "fractional")


@pytest.mark.parametrize(
    ("words", "begins"),
    [
        ((*SUM, "--learners", "3"), True),
        (("--agents", "4", "--code", "fractional", "--learners", "3"), True),
        ((*SUM, "--set", "algorithm.groups=2", "--learners", "3"), True),
        ((*SUM, "--learners", "1"), False),
    ],
)
def test_a_code_is_refused_unless_it_keeps_its_tolerance(
    words: tuple[str, ...],
    begins: bool,
    tmp_path: Path,
    fullrank: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun: list[Path] = []
    monkeypatch.setattr(
        processes, "run_to_end", lambda path, config, local, coding: begun.append(path)
    )
    outcome = fullrank("train", "--run-dir", str(tmp_path / "run"), *words)
    assert (outcome.code == 0) is begins, outcome
    assert begun == [tmp_path / "run"] * begins
    assert (tmp_path / "run").exists() is begins


@pytest.mark.parametrize(
    ("words", "learners", "said"),
    [
        (("--agents", "8"), 3, "3 learners without redundancy: rounds wait for every one; "),
        (("--agents", "2"), 2, "2 learners without redundancy: rounds wait for every one; "),
        (("--set", "algorithm.name=summed_toy"), 3, "3 learners without redundancy: "),
        (("--stragglers", "1"), 4, "4 learners, any 1 of which may be late or lost"),
        (("--set", "code.tolerance=2"), 5, "5 learners, any 2 of which may be late or lost"),
        (("--code", "cyclic"), 4, "4 learners, any 1 of which may be late or lost"),
        (("--learners", "2"), 2, "2 learners, any 1 of which may be late or lost"),
        (("--code", "uncoded"), 3, "3 learners, code uncoded"),
    ],
)
def test_redundancy_is_for_those_who_ask_for_it_or_inject_stragglers(
    words: tuple[str, ...],
    learners: int,
    said: str,
    tmp_path: Path,
    fullrank: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun: list[RunConfig] = []
    monkeypatch.setattr(train, "usable_cores", lambda: 3)
    monkeypatch.setattr(
        processes, "run_to_end", lambda path, config, local, coding: begun.append(config)
    )
    assert fullrank("train", "--run-dir", str(tmp_path / "run"), *words).code == 0
    assert [config.learners for config in begun] == [learners]
    assert processes.redundancy(begun[0]).startswith(said)


def test_ranks_are_of_a_run_in_one_process(
    tmp_path: Path, fullrank: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[tuple[int, bool]] = []
    monkeypatch.setattr(
        processes,
        "run_to_end",
        lambda path, config, local, coding: begun.append((config.ranks.count, local)),
    )
    words = ("train", "--run-dir", str(tmp_path / "run"), "--set", "ranks.count=2")
    refused = fullrank(*words)
    assert refused.code == 2
    assert "ranks.count = 2 divides the updates of one process, and services have" in refused.error
    assert fullrank(*words, "--local").code == 0
    assert begun == [(2, True)]


@pytest.mark.parametrize(
    ("words", "device"),
    [
        ((), "cpu"),
        (("--local",), "auto"),
        (("--local", "--set", "controller.device=cpu"), "cpu"),
    ],
)
def test_a_run_in_one_process_keeps_its_parameters_where_it_computes(
    words: tuple[str, ...],
    device: str,
    tmp_path: Path,
    fullrank: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun: list[str] = []
    monkeypatch.setattr(
        processes,
        "run_to_end",
        lambda path, config, local, coding: begun.append(config.controller.device),
    )
    assert fullrank("train", "--run-dir", str(tmp_path / "run"), *words).code == 0
    assert begun == [device]


def test_one_core_has_two_learners_so_that_the_run_outlives_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(train, "usable_cores", lambda: 1)
    assert train.without_redundancy(load().size()).config.learners == 2


class Heard:
    """A view that records its calls."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, message: str) -> None:
        self.lines.append(message)

    def show(self, records: Iterable[str]) -> None:
        self.lines.extend(records)

    def close(self) -> None: ...


def test_a_run_is_said_to_train_before_its_iterations_are_shown(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def statuses() -> Iterator[SimpleNamespace]:
        yield SimpleNamespace(state=RunState.STARTING, message="waiting for 4 learners")
        yield SimpleNamespace(state=RunState.STARTING, message="")  # it is unreachable
        yield SimpleNamespace(state=RunState.RUNNING, message="")
        yield SimpleNamespace(state=RunState.FAILED, message="the error of its controller")
        yield SimpleNamespace(state=RunState.FINISHED, message="3 iterations committed")

    def records(path: Path) -> Iterator[Sequence[str]]:
        yield from ([], [], ["iteration 0", "iteration 1"], [], [], ["iteration 2"])

    monkeypatch.setattr(processes, "follow", records)
    monkeypatch.setattr(processes, "POLL_S", 0.0)
    heard, every = Heard(), statuses()
    watch: Any = SimpleNamespace(status=lambda: next(every))
    beside: Any = SimpleNamespace(seen=lambda records: None)
    processes._follow(tmp_path, heard, beside, watch, [])  # type: ignore[arg-type]
    assert heard.lines == [
        "waiting for 4 learners",
        f"training in {tmp_path}",
        "iteration 0",
        "iteration 1",
        "iteration 2",
    ]


def test_help_names_every_algorithm_of_the_registry(
    fullrank: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    code, output, _ = fullrank("train", "--help")
    assert code == 0
    assert ", ".join((*PER_AGENT, *EPISODIC)) in output
    assert sorted((*PER_AGENT, *EPISODIC)) == shipped(algorithms)


SCREENS = {
    "environment.name": "tests.unit.environments.games:Screens",
    "environment.side": 40,
    "algorithm.hidden": 8,
}


SIZES = r"0\.\d+ GB with targets and moments; \S+ kB a step of all agents, of which replay holds "


@pytest.mark.parametrize(
    ("name", "sizes", "cost"),
    [
        (
            "ippo",
            rf"1 policy network of 0\.\d+ M weights: {SIZES}\d+ of 1000000 "
            r"\(replay\.capacity_bytes\)",
            r"an update takes about \S+ CPU s for every 100 steps of a copy",
        ),
        (
            "maddpg",
            rf"2 critic networks of .* and 2 policy networks of .*: {SIZES}\d+ of 1000000 .*",
            r"an iteration takes about \S+ CPU s, 1000 iterations \S+ CPU h",
        ),
    ],
)
def test_a_run_of_large_rows_says_its_sizes_and_costs_before_it_begins(
    name: str, sizes: str, cost: str
) -> None:
    options = SCREENS | {"algorithm.name": name, "environment.side": 120, "iterations": 1000}
    sized = load(options=options).size()
    *_, said, timed = train.costs_of(sized)
    assert re.fullmatch(sizes, said)
    assert re.fullmatch(cost, timed)
    assert not [*train.costs_of(load(options=SCREENS | {"algorithm.name": "ippo"}).size())]


def test_a_large_team_says_its_sizes_before_an_update_is_timed() -> None:
    """Only sizes are asked for, which allocate nothing."""
    options = {"environment.name": "cooperative_navigation", "environment.agents": 60}
    said = next(train.costs_of(load(options=options).size()))
    assert said == (
        "60 critic networks of 2.82 M weights and 60 policy networks of 0.0634 M weights: 2.77 GB "
        "with targets and moments; 118 kB a step of all agents, of which replay holds 145493 of "
        "1000000 (replay.capacity_bytes)"
    )
    fitting = load(options=options | {"replay.capacity": 30_000}).size()
    assert next(train.costs_of(fitting)).endswith("of which replay holds 30000")
    few = load(options=options | {"environment.agents": 3, "algorithm.hidden": 8000}).size()
    assert next(train.costs_of(few)).startswith("3 critic networks of 6")


@pytest.mark.parametrize("name", [*PER_AGENT, *EPISODIC])
def test_a_default_run_says_and_times_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins, "algorithm_of", None)
    if name in PER_AGENT:  # which are judged without torch
        monkeypatch.setattr(plugins, "problem_that_fits", None)
    assert not [*train.costs_of(load(options={"algorithm.name": name}).size())]


@pytest.mark.parametrize("name", PER_AGENT)
@pytest.mark.parametrize("options", [{}, {"environment.agents": 9}, {"algorithm.hidden": 3}])
def test_sizes_that_are_judged_without_torch_are_never_too_small(
    name: str, options: dict[str, Any]
) -> None:
    team = {"environment.name": "ising"} if name == "darl1n" else {}
    config = load(options={"algorithm.name": name} | team | options).size().config
    spec = spec_of(config)
    problem = plugins.problem_that_fits(plugins.algorithm_config_of(config), spec)
    assert plugins.networks_of(problem)[1] <= train._most_bytes(config, spec)


@pytest.mark.parametrize("name", PER_AGENT)
def test_algorithms_without_an_encoder_say_that_they_flatten_images(name: str) -> None:
    options = {"environment.name": SCREENS["environment.name"], "algorithm.name": name}
    sized = replace(load(options=options), environment=spec_of(load(options=options).config))
    assert [*train.costs_of(sized)] == [
        f"{name} flattens images into numbers; ippo, mappo, coma, pqn, vdn, iql see them by "
        "convolutions"
    ]


def test_networks_that_exceed_the_machine_are_refused_with_their_sizes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(plugins, "MEMORY_BYTES", 10**7)
    sized = load(options=SCREENS | {"algorithm.name": "maddpg", "algorithm.hidden": 256}).size()
    with pytest.raises(
        ConfigError,
        match=r"2 critic networks of 1\.\d+ M weights and 2 policy networks of 0\.\d+ M weights: "
        r"0\.\d+ GB with targets and moments, and this machine has 0\.01 GB; .*use ippo, "
        r"mappo, coma, pqn, vdn, iql, which see them by convolutions",
    ):
        plugins.algorithm_of(sized.config, spec_of(sized.config))


def test_iterations_that_end_within_a_collection_are_refused_before_a_process_starts(
    fullrank: Command, tmp_path: Path
) -> None:
    words = ("--env", "smac_lite", "--algorithm", "mappo", "--iterations", "32")
    code, output, error = fullrank("train", *words, "--run-dir", str(tmp_path / "run"))
    assert (code, output) == (2, "")
    assert "iterations = 32 ends within the 10 updates over a collection; use 40" in error
    assert not (tmp_path / "run").exists()
