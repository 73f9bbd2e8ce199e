"""The user's word for an environment is for its code, where it lies."""

import importlib
import json
import py_compile
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.games import RAN, Visit, game

from fullrank.common.errors import CodeRefused
from fullrank.config.tree import EnvironmentSettings
from fullrank.config.trust import check_trusted, is_bound, place_of, remember
from fullrank.environments import Environment, make_environment
from fullrank.environments.processes import EnvironmentProcess


@pytest.fixture(autouse=True)
def consent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "fullrank" / "consent"


def settings(name: str = "game:make", **params: Any) -> EnvironmentSettings:
    return EnvironmentSettings(name=name, agents=0, params=params)


def made(environment: EnvironmentSettings) -> Environment:
    return make_environment(environment.name, copies=1, **environment.params)


def played(environment: Environment) -> None:
    environment.reset([0], [0])
    environment.step(np.array([[1, 0, 1, 0]], dtype=np.float32))


def train(environment: EnvironmentSettings) -> None:
    """As ``fullrank train`` does: it makes the environment before and after it is remembered."""
    made(environment).close()
    remember(environment)
    played(made(environment))


def refusal(environment: EnvironmentSettings, *trusted: str) -> str:
    """Message of the refusal to evaluate; empty if nothing is refused, and all is imported."""
    try:
        check_trusted(environment, origin="runs/theirs", trusted=trusted)
        played(made(environment))
    except CodeRefused as error:
        return str(error)
    return ""


@pytest.fixture
def mine(tmp_path: Path, visit: Visit) -> Path:
    """A folder in which the user has trained a game with a helper."""
    folder = visit(tmp_path / "mine")
    (folder / "helper.py").write_text("LEVEL = 1\n")
    (folder / "game.py").write_text(game("import helper"))
    train(settings())
    return visit(folder)


def test_what_was_trained_runs_again_there(mine: Path) -> None:
    assert refusal(settings()) == ""
    assert is_bound()


def test_the_same_name_elsewhere_is_other_code(mine: Path, tmp_path: Path, visit: Visit) -> None:
    theirs = visit(tmp_path / "theirs")
    (theirs / "game.py").write_text(RAN + game())
    message = refusal(settings())
    assert f"asks to import and call game:make() in {theirs}" in message
    assert f"this user has trained that in {mine} alone; add --trust game:make" in message
    assert not (theirs / "ran").exists()


def test_a_copy_of_the_user_s_file_elsewhere_is_no_consent(
    mine: Path, tmp_path: Path, visit: Visit
) -> None:
    theirs = visit(tmp_path / "theirs")
    (theirs / "game.py").write_bytes((mine / "game.py").read_bytes())
    (theirs / "helper.py").write_text(RAN)
    assert "this user has trained that in" in refusal(settings())
    assert not (theirs / "ran").exists()


def test_a_link_to_the_user_s_file_imports_nothing_beside_the_link(
    mine: Path, tmp_path: Path, visit: Visit
) -> None:
    theirs = visit(tmp_path / "theirs")
    (theirs / "game.py").symlink_to(mine / "game.py")
    (theirs / "helper.py").write_text(RAN)
    assert f"game:make imports {theirs / 'helper.py'}, which is new" in refusal(settings())
    assert not (theirs / "ran").exists()


def test_an_own_edit_costs_one_word_that_lists_what_changed(mine: Path, visit: Visit) -> None:
    (mine / "helper.py").write_text(RAN)
    (mine / "game.py").write_text(game("import helper  # twice"))
    message = refusal(settings())
    assert f"where {mine / 'game.py'}, {mine / 'helper.py'} changed since" in message
    assert not (mine / "ran").exists()
    visit(mine)
    assert refusal(settings(), "game:make") == ""
    visit(mine)
    assert refusal(settings()) == ""


def test_the_word_after_an_edit_is_for_every_call_of_the_folder(
    tmp_path: Path, visit: Visit
) -> None:
    folder = visit(tmp_path / "mine")
    (folder / "game.py").write_text(game())
    for level in (1, 2):
        train(settings(level=level))
    (folder / "game.py").write_text(game("# edited"))
    visit(folder)
    assert refusal(settings(level=1), "game:make") == ""
    visit(folder)
    assert refusal(settings(level=2)) == ""
    visit(folder)
    assert "which this user has not trained here" in refusal(settings(level=3))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("game/__init__.py", RAN + game()),
        ("game.cpython-{}{}-x86_64-linux-gnu.so".format(*sys.version_info), "no library"),
        ("helper/__init__.py", RAN),
    ],
)
def test_a_file_that_takes_the_place_of_another_does_not_run(
    name: str, text: str, mine: Path
) -> None:
    (mine / name).parent.mkdir(exist_ok=True)
    (mine / name).write_text(text)
    assert str(mine / name) in refusal(settings())
    assert not [*mine.rglob("ran")]


def test_cached_bytecode_does_not_run_in_place_of_its_source(mine: Path) -> None:
    source, evil = mine / "helper.py", mine / "evil.txt"
    evil.write_text("open('ran', 'w').close()\n")
    cached = importlib.util.cache_from_source(str(source))
    py_compile.compile(
        str(evil), cached, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH
    )
    assert refusal(settings()) == ""
    assert not (mine / "ran").exists()


def test_bytecode_without_source_is_code(tmp_path: Path, visit: Visit) -> None:
    folder = visit(tmp_path / "mine")
    source = tmp_path / "helper.txt"
    source.write_text("LEVEL = 1\n")
    py_compile.compile(str(source), str(folder / "helper.pyc"))
    (folder / "game.py").write_text(game("import helper"))
    train(settings())
    visit(folder)
    assert refusal(settings()) == ""
    source.write_text("open('ran', 'w').close()\n")
    py_compile.compile(str(source), str(folder / "helper.pyc"))
    visit(folder)
    assert f"where {folder / 'helper.pyc'} changed" in refusal(settings())
    assert not (folder / "ran").exists()


@pytest.mark.parametrize("layout", ["package", "namespace"])
def test_a_package_is_all_of_its_modules(layout: str, tmp_path: Path, visit: Visit) -> None:
    folder = visit(tmp_path / "mine")
    inner = folder / "games" / "grid"
    inner.mkdir(parents=True)
    if layout == "package":
        (folder / "games" / "__init__.py").write_text("")
        (inner / "__init__.py").write_text("")
    (inner / "rules.py").write_text("RULES = 1\n")
    (inner / "world.py").write_text(game("from . import rules\nfrom .. import shared"))
    (folder / "games" / "shared.py").write_text("SHARED = 1\n")
    world = settings("games.grid.world:make")
    train(world)
    assert place_of("games.grid.world") == {"directory": str(folder)}
    visit(folder)
    assert refusal(world) == ""
    for changed in (folder / "games" / "shared.py", inner / "rules.py"):
        before = changed.read_text()
        changed.write_text(RAN)
        visit(folder)
        assert f"where {changed} changed" in refusal(world)
        changed.write_text(before)
    assert not [*folder.rglob("ran")]


def test_a_module_that_is_imported_in_a_step_is_remembered_and_a_new_one_refused(
    tmp_path: Path, visit: Visit
) -> None:
    folder = visit(tmp_path / "mine")
    lazy = "import importlib; importlib.import_module(open('next.txt').read())"
    (folder / "game.py").write_text(game(step=lazy))
    (folder / "next.txt").write_text("rules")
    (folder / "rules.py").write_text("RULES = 1\n")
    train(settings())
    visit(folder)
    assert refusal(settings()) == ""
    (folder / "evil.py").write_text(RAN)
    (folder / "next.txt").write_text("evil")
    visit(folder)
    assert f"imports {folder / 'evil.py'}, which is new" in refusal(settings())
    assert not (folder / "ran").exists()


def test_a_module_beside_the_game_may_run_first_when_the_run_is_drawn(
    tmp_path: Path, visit: Visit
) -> None:
    folder = visit(tmp_path / "mine")
    (folder / "drawing.py").write_text("COLOUR = 1\n")
    (folder / "game.py").write_text(game())
    train(settings())
    visit(folder)
    check_trusted(settings(), origin="runs/mine")
    assert importlib.import_module("drawing").COLOUR == 1
    (folder / "drawing.py").write_text(RAN)
    visit(folder)
    check_trusted(settings(), origin="runs/mine")  # it takes no part in playing
    with pytest.raises(CodeRefused, match=r"drawing\.py, which changed"):
        importlib.import_module("drawing")
    assert not (folder / "ran").exists()


def test_a_working_directory_shadows_no_installed_module(
    tmp_path: Path, visit: Visit, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = visit(tmp_path / "mine")
    (folder / "game.py").write_text(game("import colorsys"))
    for name in ("colorsys.py", "mpe2.py"):
        (folder / name).write_text(RAN)
    monkeypatch.setattr(sys, "path", ["", *sys.path])  # as with python -m, or PYTHONPATH
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    train(settings())
    assert not (folder / "ran").exists()
    place = place_of("mpe2.simple_tag_v3")
    assert place is not None
    assert place["distribution"] == "mpe2"


def test_an_installed_module_s_optional_import_runs_no_stranger_s_file(
    tmp_path: Path, visit: Visit
) -> None:
    installed = settings("mpe2.simple_tag_v3:parallel_env", max_cycles=2)
    visit(tmp_path / "mine")
    remember(installed)
    theirs = visit(tmp_path / "theirs")
    (theirs / "absent_accelerator.py").write_text(RAN)
    check_trusted(installed, origin="runs/theirs")
    made(installed).close()
    with pytest.raises(CodeRefused, match=r"absent_accelerator\.py, which is new"):
        importlib.import_module("absent_accelerator")
    assert not (theirs / "ran").exists()


def test_installed_code_is_named_by_its_distribution_and_version(
    visit: Visit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = settings("mpe2.simple_tag_v3:parallel_env", max_cycles=2)
    visit(tmp_path / "mine")
    remember(installed)
    place = place_of("mpe2.simple_tag_v3")
    assert place is not None
    visit(tmp_path / "theirs")
    check_trusted(installed, origin="runs/theirs")
    old = {**place, "version": "0.9"}
    monkeypatch.setattr("fullrank.config.trust.place_of", lambda module: old)
    with pytest.raises(CodeRefused) as caught:
        check_trusted(installed, origin="runs/theirs")
    assert "of mpe2 0.9, and this user has trained that of mpe2 " in str(caught.value)


@pytest.mark.integration
def test_a_process_for_a_copy_is_bound_as_its_parent_is(mine: Path) -> None:
    check_trusted(settings(), origin="runs/mine")
    (mine / "helper.py").write_text(RAN)  # after the check, as a race would have it
    process = EnvironmentProcess("game:make", agents=0, params={})
    with pytest.raises(Exception, match=r"helper\.py, which changed"):
        process.begin()
    process.close()
    assert not (mine / "ran").exists()


def test_a_bound_process_has_no_word_of_its_own(mine: Path, consent: Path) -> None:
    check_trusted(settings(), origin="runs/mine")
    before = sorted(path.read_bytes() for path in consent.iterdir())
    remember(settings())
    assert is_bound()
    assert sorted(path.read_bytes() for path in consent.iterdir()) == before


def test_a_record_names_each_file_once_for_each_content(
    mine: Path, consent: Path, visit: Visit
) -> None:
    (record,) = consent.glob("*.jsonl")
    before = record.read_text()
    train(settings())
    assert record.read_text() == before
    loaded = [fact["file"] for fact in map(json.loads, before.splitlines()) if fact["loaded"]]
    assert loaded == [str(mine / "game.py"), str(mine / "helper.py")]
