"""A run of a stranger is looked at and evaluated without running a stranger's code."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import pytest
from tests.games import RAN, Visit, game

from fullrank.cli.evaluate import PublishedPolicies
from fullrank.common.errors import ConfigError
from fullrank.config import from_toml
from fullrank.config.elsewhere import is_own_run
from fullrank.runs.identity import STAMP

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
    ["eval", "eval --follow", "render", "export", "compare", "run resume", "codes plan", "verify"],
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


@pytest.fixture
def cloned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, visit: Visit) -> Path:
    """A stranger's folder with another game of the name that the user has trained elsewhere."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    mine, theirs = visit(tmp_path / "mine"), tmp_path / "theirs"
    (mine / "game.py").write_text(game())
    finished(mine / "run", environment__name="game:make", environment__agents=0)
    shutil.copytree(mine, theirs)
    (theirs / "game.py").write_text(RAN + game())
    return theirs


@pytest.mark.parametrize("verb", ["eval", "export", "verify", "render"])
def test_a_name_that_the_user_has_trained_is_no_word_for_a_stranger_s_code(
    verb: str, cloned: Path, fullrank: Any, visit: Visit
) -> None:
    visit(cloned)
    outcome = fullrank(verb, "run")
    assert outcome.code == 2
    mine = cloned.with_name("mine")
    assert f"game:make() in {cloned}, and this user has trained that in {mine}" in outcome.error
    assert not (cloned / "ran").exists()


@pytest.mark.parametrize("words", ["eval --episodes 1", "export --output p"])
def test_what_the_user_has_trained_is_read_without_a_question(
    words: str, cloned: Path, fullrank: Any, visit: Visit
) -> None:
    visit(cloned.with_name("mine"))
    verb, *options = words.split()
    outcome = fullrank(verb, "run", *options)
    assert "--trust" not in outcome.error
    assert outcome.code == 0, outcome.error


def test_a_resumed_run_from_elsewhere_loses_its_settings_of_a_machine_in_one_line(
    tmp_path: Path, fullrank: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    run = finished(tmp_path / "run")
    shutil.rmtree(run / "checkpoints")  # it begins anew
    config = (run / "config.toml").read_text()
    config = config.replace('url = ""', f'url = "{tmp_path}/store"')
    (run / "config.toml").write_text(config)
    outcome = fullrank("run", "resume", "--attach", "--local", str(run))
    assert outcome.code == 0, outcome.error
    assert f"are dropped: store.url = {tmp_path}/store; to use them" in outcome.output
    assert not (tmp_path / "store").exists()
    assert (run / "config.toml.before").read_text() == config
    assert is_own_run(run)  # and is read whole from now on
    assert (
        "comes from elsewhere"
        not in fullrank("run", "resume", "--attach", "--local", str(run)).output
    )


@pytest.mark.parametrize("verb", ["run resume", "eval", "run status", "plot"])
@pytest.mark.parametrize("path", ["/dev/zero", "fifo"])
def test_no_verb_opens_what_a_stranger_s_settings_name(
    verb: str, path: str, tmp_path: Path, fullrank: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    run = finished(tmp_path / "run")
    os.mkfifo(tmp_path / "fifo")
    place = tmp_path / path
    old = '[stragglers]\nname = "none"\n'
    trace = f'[stragglers]\nname = "trace"\npath = "{place}"\n'
    config = (run / "config.toml").read_text()
    assert old in config
    (run / "config.toml").write_text(
        config.replace(old, trace).replace('certificates = ""', f'certificates = "{place}"')
    )
    (run / "run.json").write_text(json.dumps({**STAMP, "run": "theirs", "term": 1}))
    outcome = fullrank(*verb.split(), str(run), *(["--episodes", "1"] if verb == "eval" else []))
    if verb == "run resume":
        assert outcome.code == 2
        assert f"its stragglers.path = {place} names a resource of another" in outcome.error
    elif verb == "run status":
        assert f"its tls.certificates = {place} names a resource of another" in outcome.error
    else:
        assert str(place) not in outcome.error


def test_a_stranger_s_monitor_is_dialled_at_the_user_s_word_alone(
    tmp_path: Path, fullrank: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "config.toml").write_text('[monitor]\naddress = "10.0.0.9:5000"\n')
    outcome = fullrank("run", "status", str(tmp_path))
    assert outcome.code == 2
    assert "its monitor.address = 10.0.0.9:5000 names a resource of another" in outcome.error
