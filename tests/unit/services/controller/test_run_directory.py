"""A run directory has one controller at a time, one run, and a term that only rises."""

import json
import os
import shutil
from pathlib import Path

import pytest
from tests.unit.services.controller.builders import make_config

from fullrank.audit.ledger import KEY_BYTES
from fullrank.common.errors import CheckpointUnusable, RunDirectoryInUse, StaleTerm, VersionMismatch
from fullrank.config import from_toml
from fullrank.config.toml import config_digest
from fullrank.replay.store import NAME, table_file
from fullrank.runs.snapshot import REPLAY
from fullrank.runs.store import SharedStore
from fullrank_controller.persistence import run_directory
from fullrank_controller.persistence.run_directory import SECRET, hold


def test_the_term_rises_and_the_run_stays(tmp_path: Path) -> None:
    held = []
    for _ in range(3):
        directory = hold(tmp_path, make_config())
        directory.lock.close()
        held.append(directory)
    assert [directory.term for directory in held] == [1, 2, 3]
    assert len({directory.run for directory in held}) == 1


def test_the_id_begins_with_the_run_s_name_is_no_other_run_s_and_fits_a_table(
    tmp_path: Path,
) -> None:
    longest = make_config(f"name={'n' * 50}")
    runs = []
    for config, place in ((longest, "a"), (longest, "b"), (make_config(), "a")):
        directory = hold(tmp_path / place, config)
        directory.lock.close()
        runs.append(directory.run)
    assert all(run.startswith("n" * 50 + "-") and NAME.fullmatch(run) for run in runs)
    assert runs[0] != runs[1]
    assert runs[0] == runs[2], "a run keeps its id"


def test_a_directory_of_a_later_format_is_refused_and_left_alone(tmp_path: Path) -> None:
    hold(tmp_path, make_config()).lock.close()
    identity = json.loads((tmp_path / "run.json").read_text())
    later = json.dumps({**identity, "format": identity["format"] + 1})
    (tmp_path / "run.json").write_text(later)
    for _ in range(2):  # a refusal releases the lock
        with pytest.raises(VersionMismatch, match=r"run.json has format 2, .* up to 1"):
            hold(tmp_path, make_config())
    assert (tmp_path / "run.json").read_text() == later


def test_a_held_directory_is_refused_and_its_term_does_not_rise(tmp_path: Path) -> None:
    directory = hold(tmp_path, make_config())
    with pytest.raises(RunDirectoryInUse, match="held by another controller"):
        hold(tmp_path, make_config())
    assert json.loads((tmp_path / "run.json").read_text())["term"] == 1
    directory.lock.close()
    assert hold(tmp_path, make_config()).term == 2


@pytest.mark.parametrize("other", ["seed=1", "environment.agents=4", "algorithm.hidden=32"])
def test_another_run_is_refused_by_its_setting_and_changes_nothing(
    tmp_path: Path, other: str
) -> None:
    hold(tmp_path, make_config()).lock.close()
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    key, _, value = other.partition("=")
    with pytest.raises(RunDirectoryInUse, match=rf"holds a run with {key} = \d+, not {value};"):
        hold(tmp_path, make_config(other))
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_run_of_a_version_without_a_setting_is_refused_by_that_setting(tmp_path: Path) -> None:
    hold(tmp_path, make_config()).lock.close()
    config = tmp_path / "config.toml"
    lines = config.read_text().splitlines(keepends=True)
    older = "".join(line for line in lines if not line.startswith("hidden = "))
    config.write_text(older)
    facts = json.loads((tmp_path / "run.json").read_text())
    facts["config_digest"] = config_digest(from_toml(older))
    (tmp_path / "run.json").write_text(json.dumps(facts))
    message = r"a version of Fullrank without algorithm.hidden = \d+; resume it with that version"
    with pytest.raises(RunDirectoryInUse, match=message):
        hold(tmp_path, make_config())


@pytest.mark.parametrize("same", ["learners=6", "code.name=mds", "controller.deadline_s=5.0"])
def test_what_changes_no_bit_may_change_between_terms(tmp_path: Path, same: str) -> None:
    hold(tmp_path, make_config()).lock.close()
    assert hold(tmp_path, make_config(same)).term == 2
    assert from_toml((tmp_path / "config.toml").read_text()) == make_config(same)


def test_only_the_controller_of_the_latest_term_may_write(tmp_path: Path) -> None:
    first = hold(tmp_path, make_config())
    first.confirm()
    first.lock.close()  # as a shared disk may lose a lock
    second = hold(tmp_path, make_config())
    second.confirm()
    with pytest.raises(StaleTerm, match=r"is in term 2, this controller in term 1"):
        first.confirm()


def test_the_term_is_on_disk_before_the_directory_is_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(_name_of(descriptor)))
    hold(tmp_path, make_config())
    assert synced[-2:] == [".run.json", tmp_path.name]


def _name_of(descriptor: int) -> str:
    return Path(f"/proc/self/fd/{descriptor}").readlink().name


def test_a_copy_beside_its_original_is_another_run(tmp_path: Path) -> None:
    original, copy = tmp_path / "original", tmp_path / "copy"
    run = _held(original)
    shutil.copytree(original, copy)
    other = _held(copy)
    assert other != run
    assert _held(copy) == other
    assert _held(original) == run


def test_a_directory_that_was_moved_or_restored_is_the_same_run(tmp_path: Path) -> None:
    original, moved, restored = (tmp_path / name for name in ("original", "moved", "restored"))
    run = _held(original)
    original.rename(moved)
    assert _held(moved) == run
    shutil.copytree(moved, restored)
    shutil.rmtree(moved)
    assert _held(restored) == run


def _copied(tmp_path: Path) -> Path:
    """A copy, beside its original, of a directory with a table."""
    original, copy = tmp_path / "original", tmp_path / "copy"
    table = table_file(original / REPLAY, _held(original))
    table.parent.mkdir(parents=True)
    table.write_bytes(b"rows")
    shutil.copytree(original, copy)
    return copy


def test_a_refused_start_keeps_the_tables_of_a_copy(tmp_path: Path) -> None:
    copy, store = _copied(tmp_path), tmp_path / "store"
    hold(tmp_path / "other", make_config(f"store.url={store}")).lock.close()
    with pytest.raises(RunDirectoryInUse, match="holds another run"):
        hold(copy, make_config(f"store.url={store}"))
    assert table_file(copy / REPLAY, _held(copy)).read_bytes() == b"rows"


@pytest.mark.parametrize("step", ["replace_text", "replace_bytes", "rename_tables"])
def test_a_start_that_is_cut_off_keeps_the_tables_of_a_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Before the configuration, the identity, or the new name of the tables is written."""

    def cut_off(*arguments: object) -> None:
        if all(arguments):
            raise InterruptedError

    copy = _copied(tmp_path)
    with monkeypatch.context() as interrupted:
        interrupted.setattr(run_directory, step, cut_off)
        with pytest.raises(InterruptedError):
            hold(copy, make_config())
    assert table_file(copy / REPLAY, _held(copy)).read_bytes() == b"rows"


def test_the_key_of_audits_is_kept_and_its_owner_s_alone(tmp_path: Path) -> None:
    directory = hold(tmp_path, make_config())
    assert directory.secret == directory.secret
    assert len(directory.secret) == KEY_BYTES
    assert (tmp_path / SECRET).stat().st_mode & 0o777 == 0o600
    (tmp_path / SECRET).write_text("nonsense")
    with pytest.raises(CheckpointUnusable, match=r"audit\.key is damaged; remove it"):
        _ = directory.secret


def _held(path: Path) -> str:
    directory = hold(path, make_config())
    directory.lock.close()
    return directory.run


def test_a_directory_that_has_gone_on_without_its_store_is_not_taken_back(tmp_path: Path) -> None:
    run_dir, stored = tmp_path / "run", make_config(f"store.url={tmp_path / 'store'}")
    for config in (stored, make_config()):
        hold(run_dir, config).lock.close()
    with pytest.raises(RunDirectoryInUse, match=r"ends with term 1 .* has gone on to term 2"):
        hold(run_dir, stored)


def test_a_part_of_a_run_in_a_store_is_no_run_for_another_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_dir, stored = tmp_path / "run", make_config(f"store.url={tmp_path / 'store'}")
    hold(run_dir, make_config()).lock.close()
    with monkeypatch.context() as interrupted:
        interrupted.setattr(SharedStore, "_take_all", lambda self: next(iter(())))
        with pytest.raises(StopIteration):
            hold(run_dir, stored)
    with pytest.raises(RunDirectoryInUse, match="holds a part of run"):
        hold(tmp_path / "other", stored)
    assert hold(run_dir, stored).term == 3
