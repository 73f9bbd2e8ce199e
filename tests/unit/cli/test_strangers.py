"""A run of a stranger is looked at and evaluated without running a stranger's code."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import pytest

from fullrank.cli.sources import PublishedPolicies
from fullrank.common.errors import ConfigError
from fullrank.config import from_toml
from fullrank.runs.halving import FILE

from .conftest import finished

THEIRS = "their_game:parallel_env"
CONFIG = f'[environment]\nname = "{THEIRS}"\n'
MODULE = """
from pathlib import Path
from tests.unit.environments.test_pettingzoo import Counting

Path(__file__).with_name("imported").touch()

def parallel_env(**arguments):
    Path(__file__).with_name("called").touch()
    return Counting()
"""


@pytest.fixture
def theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A run directory that names an environment which this user has not trained."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "their_game.py").write_text(MODULE)
    run = tmp_path / "run"
    run.mkdir()
    (run / "config.toml").write_text(CONFIG)
    yield run
    sys.modules.pop("their_game", None)


def traces(run: Path) -> list[str]:
    return [name for name in ("imported", "called") if (run.parent / name).exists()]


@pytest.mark.parametrize(
    "words",
    ["eval", "eval --follow", "render", "export", "compare", "resume", "codes plan", "verify"],
)
def test_a_verb_that_would_make_the_environment_names_it_and_runs_nothing(
    words: str, theirs: Path, fullrank: Any
) -> None:
    if words == "codes plan":
        (theirs / "metrics.jsonl").write_text(RECORD)
    before = sorted(theirs.rglob("*"))
    outcome = fullrank(*words.split(), str(theirs))
    assert outcome.code == 2
    assert f"{theirs} asks to import and call {THEIRS}(" in outcome.error
    assert f"--trust {THEIRS}" in outcome.error
    assert traces(theirs) == []
    assert sorted(theirs.rglob("*")) == before


def test_a_tune_names_what_its_runs_would_make_and_runs_nothing(
    theirs: Path, fullrank: Any
) -> None:
    tune = theirs.parent / "tune"
    tune.mkdir()
    theirs.rename(tune / "seed=1")
    facts = {"setting": "seed", "values": ["1", "2"], "rungs": [1], "iterations": 2}
    (tune / FILE).write_text(json.dumps(facts))
    outcome = fullrank("resume", str(tune))
    assert outcome.code == 2
    assert f"{tune / 'seed=1'} asks to import and call {THEIRS}(" in outcome.error
    assert traces(theirs) == []


def test_it_is_made_at_the_user_s_word(theirs: Path, fullrank: Any) -> None:
    finished(theirs)  # a checkpoint, whose sizes do not matter
    (theirs / "config.toml").write_text(CONFIG)
    fullrank("eval", str(theirs), "--trust", "another:make", "--episodes", "1")
    assert traces(theirs) == []
    fullrank("eval", str(theirs), "--trust", THEIRS, "--episodes", "1")
    assert traces(theirs) == ["imported", "called"]


def test_a_monitor_of_a_stranger_runs_nothing(theirs: Path) -> None:
    class Published:
        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def setup(self) -> SimpleNamespace:
            return SimpleNamespace(config=from_toml((theirs / "config.toml").read_text()))

    dial: Any = Published
    with pytest.raises(ConfigError, match=f"10.0.0.9:5000 asks to import and call {THEIRS}"):
        PublishedPolicies("10.0.0.9:5000", dial)
    assert traces(theirs) == []


def test_looking_from_within_a_stranger_s_directory_imports_nothing_of_it(tmp_path: Path) -> None:
    """Neither modules nor entry points, which Python finds wherever it searches for modules."""
    (tmp_path / "json.py").write_text("raise SystemExit(77)")
    (tmp_path / "opt_einsum.py").write_text("raise SystemExit(77)")
    package = tmp_path / "theirs-1.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1\n")
    (package / "entry_points.txt").write_text("[fullrank.verbs]\ntheirs = opt_einsum:verb\n")
    script = Path(sys.executable).with_name("fullrank")
    listed = subprocess.run(
        [str(script), "--help"], cwd=tmp_path, capture_output=True, text=True, env={**os.environ}
    )
    assert listed.returncode == 0, listed.stderr
    assert "theirs" not in listed.stdout


RECORD = (
    '{"iteration": 0, "term": 1, "epoch": 0, "attempt": 0, "code": "cyclic", "return_mean": null, '
    '"round_s": 0.1, "collect_s": 0.0, "compute_s": {}, "arrival_s": {"0": 0.05}, "decode_s": 0.0, '
    '"received": [0], "late": [], "exact": true, "condition": 1.0, "error_bound": 0.0, '
    '"update_digest": "", "bytes_sent": {}, "bytes_received": {}}\n'
)
