"""``fullrank config show``: the effective tree, its origins, and both as JSON."""

import json
import tomllib
from pathlib import Path

import pytest

from fullrank.common.foreign import FORMAT
from fullrank.config import load, to_toml

from .conftest import Command


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FULLRANK__SEED", "5")


def test_what_is_printed_configures_the_same_run(fullrank: Command, tmp_path: Path) -> None:
    first = fullrank("config", "show", "--set", "learners=6").output
    (tmp_path / "run.toml").write_text(first)
    assert fullrank("config", "show", "--config", str(tmp_path / "run.toml")).output == first


def test_origins_are_comments_behind_every_value(fullrank: Command, tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text("[collect]\nsteps = 3\n")
    words = ("--config", str(path), "--set", "learners=6", "--origin")
    output = fullrank("config", "show", *words).output
    origins = {
        line.partition(" = ")[0]: line.partition("# ")[2]
        for line in output.splitlines()
        if " = " in line
    }
    assert origins["seed"] == "environment FULLRANK__SEED"
    assert (origins["steps"], origins["learners"]) == (str(path), "--set")
    assert (origins["tolerance"], origins["device"]) == ("default", "default")
    tomllib.loads(output)


def test_a_default_number_of_learners_names_its_origin(fullrank: Command) -> None:
    words = ["code.tolerance=2", "environment.name=speaker_listener"]
    options = [word for override in words for word in ("--set", override)]
    output = fullrank("config", "show", *options, "--origin").output
    [line] = [line for line in output.splitlines() if line.startswith("learners")]
    assert line.startswith("learners = 4 ")
    assert line.endswith("# default: cyclic with 2 agents")


def test_json_holds_values_and_origins(fullrank: Command) -> None:
    facts = json.loads(fullrank("config", "show", "--json").output)
    expected = load(environ={"FULLRANK__SEED": "5"}).check()
    assert facts["origin"] == expected.origin
    assert {"format": FORMAT, **facts["config"]} == tomllib.loads(to_toml(expected.config))


def test_an_unknown_key_is_one_line_and_code_2(fullrank: Command) -> None:
    assert fullrank("config", "show", "--set", "code.tolerence=1") == (
        2,
        "",
        "fullrank: code 'cyclic' has no parameter 'tolerence'; did you mean 'tolerance'?\n",
    )
