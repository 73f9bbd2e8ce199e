"""Fixtures that run the command line within the test process."""

import logging
import math
import shutil
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import pytest
from tests.fakes.commands import Fakes
from tests.unit.cli.verified import TEAMS, train

from fullrank.cli import main
from fullrank.config import RunConfig, load, to_toml
from fullrank.config.trust import remember
from fullrank.local import LocalRun
from fullrank.runs.checkpoint import save


class Outcome(NamedTuple):
    """Exit code and output of a command."""

    code: int
    output: str
    error: str


Command: TypeAlias = Callable[..., Outcome]


@pytest.fixture
def fullrank(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Command]:
    """``fullrank(*words)`` runs the command line, without lines of progress on a slow machine.

    The log, which some commands send elsewhere, is as before afterwards.
    """
    monkeypatch.setattr("fullrank.cli.progress.LINE_PERIOD_S", math.inf)
    level, handlers = logging.root.level, [*logging.root.handlers]

    def run(*words: str) -> Outcome:
        with pytest.raises(SystemExit) as end:
            main(words)
        code = end.value.code or 0
        assert isinstance(code, int)
        return Outcome(code, *capsys.readouterr())

    yield run
    logging.root.setLevel(level)
    logging.root.handlers[:] = handlers


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """``trained(team)`` is the directory of a run of a team, which is trained once."""
    return cache(lambda team: train(tmp_path_factory.mktemp("trained") / "run", *TEAMS[team]))


@pytest.fixture
def run(trained: Callable[[str], Path], tmp_path: Path) -> Path:
    """A copy of the run of ``maddpg``."""
    return Path(shutil.copytree(trained("maddpg"), tmp_path / "run"))


SMALL: dict[str, Any] = {
    "iterations": 1,
    "collect.warmup": 100,
    "algorithm.batch_size": 32,
    "algorithm.hidden": 16,
    "environment.agents": 3,
}


def state_of(**options: Any) -> tuple[RunConfig, Mapping[str, Any]]:
    """The configuration of a run of one iteration, and its state after that."""
    keys = {key.replace("__", "."): value for key, value in options.items()}
    config = load(options=SMALL | keys).check().config
    run = LocalRun(config, coded=False)
    run.train()
    return config, run.training.state(resume_at=1)


once = cache(state_of)


def finished(directory: Path, **options: Any) -> Path:
    """A run of one iteration that this user has trained, or has trained before alike."""
    imports = ":" in options.get("environment__name", "")  # each folder has a module of its own
    config, state = (state_of if imports else once)(**options)
    directory.mkdir(exist_ok=True)
    (directory / "config.toml").write_text(to_toml(config))
    remember(config.environment)
    save(directory / "checkpoints", iteration=0, arrays=state, facts={}, keep=1)
    return directory


@pytest.fixture
def fakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fakes:
    """No other command is on PATH."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return Fakes(tmp_path / "bin")


@pytest.fixture
def begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory ``one`` below ``runs`` of a run whose process has not begun."""
    monkeypatch.chdir(tmp_path)
    path = Path("runs/one")
    path.mkdir(parents=True)
    (path / "config.toml").write_text(to_toml(RunConfig()))
    return path
