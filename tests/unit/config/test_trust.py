"""An environment of another package is used at the user's word alone."""

import os
from pathlib import Path
from typing import Any

import pytest

from fullrank.common.errors import ConfigError
from fullrank.config import from_toml, load, to_toml
from fullrank.config.tree import EnvironmentSettings
from fullrank.config.trust import check_trusted, remember

COUNTING = "tests.unit.environments.test_pettingzoo:Counting"


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "fullrank" / "consent"


def settings(name: str, **params: Any) -> EnvironmentSettings:
    return EnvironmentSettings(name=name, agents=0, params=params)


def is_trusted(environment: EnvironmentSettings, *trusted: str) -> bool:
    try:
        check_trusted(environment, origin="runs/theirs", trusted=trusted)
    except ConfigError:
        return False
    return True


def test_registered_environments_need_no_word() -> None:
    assert is_trusted(settings("predator_prey", horizon=30))


@pytest.mark.parametrize(
    ("environment", "imports"),
    [
        (settings("subprocess:Popen", args=["true"]), "subprocess:Popen"),
        (settings("pettingzoo", factory="subprocess:Popen"), "subprocess:Popen"),
        (settings("gymnasium", id="theirs:Task-v0"), "theirs:Task-v0"),
        (settings("gymnasium", id="Task-v0", arguments={"xml_file": "/x"}), "Task-v0"),
        (settings("gymnasium", arguments=1), ""),
    ],
)
def test_what_an_adapter_would_import_is_named_until_the_user_names_it(
    environment: EnvironmentSettings, imports: str
) -> None:
    with pytest.raises(ConfigError, match="asks to import and call") as caught:
        check_trusted(environment, origin="runs/theirs", trusted=["other:make"])
    assert f"runs/theirs asks to import and call {imports}(" in str(caught.value)
    assert f"--trust {imports}" in str(caught.value)
    assert is_trusted(environment, imports)


def test_what_was_trained_here_is_trusted_with_its_own_arguments_alone() -> None:
    mine = settings("mpe2.simple_tag_v3:parallel_env", max_cycles=50, num_good=1)
    assert not is_trusted(mine)
    remember(mine)
    assert is_trusted(settings(mine.name, num_good=1, max_cycles=50))
    assert not is_trusted(settings(mine.name, max_cycles=50))
    assert not is_trusted(settings(mine.name, **mine.params, render_mode="human"))
    assert not is_trusted(settings("gymnasium", id=mine.name, arguments=dict(mine.params)))


def test_a_configuration_that_is_stored_and_read_again_is_the_one_trained() -> None:
    overrides = [
        "environment.name=pettingzoo",
        f"environment.factory={COUNTING}",
        "environment.arguments={reward = 1e-3, last_step = [1, 2, 3]}",
    ]
    config = load(overrides=overrides).check().config
    remember(config.environment)
    assert is_trusted(from_toml(to_toml(config)).environment)


def test_the_word_of_another_user_does_not_count(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = settings("mpe2.simple_tag_v3:parallel_env")
    remember(mine)
    (word,) = state.glob("*.json")
    assert mine.name in word.read_text()
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    assert not is_trusted(mine)


def test_a_user_without_a_place_for_state_gives_the_word_each_time(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    mine = settings("mpe2.simple_tag_v3:parallel_env")
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    remember(mine)
    assert not is_trusted(mine)

    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setattr(Path, "home", homeless)
    remember(mine)
    assert not is_trusted(mine)
    assert is_trusted(mine, mine.name)
