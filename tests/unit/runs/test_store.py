"""The store has what a controller needs to go on anywhere, and its directory is a copy of it."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.unit.runs.stored import (
    DRAWN,
    EVERY,
    ITERATIONS,
    ROWS,
    Controller,
    assert_alike,
    committed,
    restored,
    rows,
)
from tests.unit.runs.test_recovery import flip
from tests.waiting import WAIT_S

from fullrank.common.errors import (
    CheckpointUnusable,
    ConfigError,
    Corrupted,
    StorageFailed,
    VersionMismatch,
)
from fullrank.common.seeding import stream
from fullrank.runs import store as stores
from fullrank.runs.checkpoint import saved
from fullrank.runs.ending import CAVEATS, keep_caveat, lasting_caveats
from fullrank.runs.journal import NO_UPDATES, read
from fullrank.runs.journal_format import encode
from fullrank.runs.objects import DirectoryObjects, open_objects
from fullrank.runs.store import SharedStore
from fullrank.runs.verdicts import FILE as VERDICTS
from fullrank.runs.verdicts import Party, Verdicts, read_verdicts


def names(place: str, folder: str) -> list[str]:
    return sorted(path.name for path in (Path(place) / folder).iterdir())


def test_a_run_goes_on_on_empty_machines_whenever_its_controller_is_lost(tmp_path: Path) -> None:
    """Each machine ends at a drawn iteration, and its disk with it."""
    place, draws, begins = str(tmp_path / "store"), stream(7, "lost machines"), 0
    for machine in range(10):
        controller = Controller(tmp_path / str(machine), place)
        assert controller.begins == begins
        begins += int(draws.integers(1, 8))
        controller.run(begins)
        shutil.rmtree(controller.run_dir)
    last = restored(tmp_path / "last", place)
    assert committed(last) == begins
    assert (last / "metrics.jsonl").read_text().count("\n") <= begins


@pytest.mark.parametrize("lost", ["journal", "checkpoints", "metrics.jsonl", "numerics.json"])
def test_what_a_directory_lacks_is_taken_from_the_store(tmp_path: Path, lost: str) -> None:
    place, run_dir = str(tmp_path / "store"), tmp_path / "run"
    Controller(run_dir, place).run(8)
    (run_dir / lost).rename(tmp_path / lost)
    again = Controller(run_dir, place)
    assert (again.term, again.begins) == (2, 8)
    assert_alike(restored(tmp_path / "other", place), run_dir)


@pytest.mark.parametrize("damaged", ["state.safetensors", "manifest.json"])
def test_a_damaged_checkpoint_is_replaced_by_that_of_the_store(
    tmp_path: Path, damaged: str
) -> None:
    """Going back to an older one would cut replay behind the rows that another one needs."""
    place = str(tmp_path / "store")
    Controller(tmp_path / "run", place).run(8)
    flip(saved(tmp_path / "run" / "checkpoints")[0] / damaged)
    assert Controller(tmp_path / "run", place).begins == 8
    assert committed(tmp_path / "run") == 8


def test_a_run_that_began_without_a_store_is_taken_into_it(tmp_path: Path) -> None:
    place, run_dir = str(tmp_path / "store"), tmp_path / "run"
    Controller(run_dir, str(tmp_path / "first")).run(8)
    again = Controller(run_dir, place)
    assert (again.term, again.begins) == (2, 8)
    assert_alike(restored(tmp_path / "other", place), run_dir)


def test_what_a_checkpoint_supersedes_is_removed_but_for_the_entries_that_begin_terms(
    tmp_path: Path,
) -> None:
    place, run_dir = str(tmp_path / "store"), tmp_path / "run"
    Controller(run_dir, place).run(4)
    Controller(run_dir, place).run(7)
    begun = [f"{sequence:012d}" for sequence in (0, 7)]
    assert names(place, "log") == [*begun, *(f"{entry:012d}" for entry in (12, 13, 14))]
    assert names(place, "checkpoints") == ["000005-000002"]
    assert names(place, "heads") == ["000001", "000002"]


def test_metrics_are_stored_in_objects_of_one_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stores, "CHUNK_BYTES", 40)
    place = str(tmp_path / "store")
    Controller(tmp_path / "run", place).run(6)
    Controller(tmp_path / "other", place).run(9)
    last = restored(tmp_path / "last", place)
    metrics = (tmp_path / "other" / "metrics.jsonl").read_bytes()
    assert (last / "metrics.jsonl").read_bytes() == metrics
    assert names(place, "metrics/000001") == ["0" * 18, "40".zfill(18)]


def test_condemned_iterations_do_not_come_back(tmp_path: Path) -> None:
    place = str(tmp_path / "store")
    first = Controller(tmp_path / "run", place)
    first.run(8)
    record = first.journal.condemn(6, "a unit was wrong")
    first.store.add(record.segment, record.pieces)
    first.store.ship()
    other = restored(tmp_path / "other", place)
    assert len(read(other / "journal", first=6)) == 0
    assert committed(other) == 6


PARTY = Party(learner=2, process="bb")


def test_verdicts_and_caveats_that_were_not_stored_yet_are_kept(tmp_path: Path) -> None:
    place, run_dir, other = str(tmp_path / "store"), tmp_path / "run", tmp_path / "other"
    first = Controller(run_dir, place)
    first.run(2)
    Verdicts(run_dir, term=1).add("suspected", "an early word", iteration=1, party=PARTY)
    keep_caveat(run_dir, "an early loss")
    first.store.keep()
    Verdicts(run_dir, term=1).add("convicted", "its update was wrong", iteration=2, party=PARTY)
    keep_caveat(run_dir, "a late loss")
    second = Controller(other, place)
    Verdicts(other, term=2).add("left out", "its dispute is unsettled", iteration=2, party=PARTY)
    second.store.keep()
    Controller(run_dir, place).store.keep()
    for found in (run_dir, restored(tmp_path / "last", place)):
        kinds = [verdict.kind for verdict in read_verdicts(found)]
        assert kinds == ["suspected", "convicted", "left out"]
        assert lasting_caveats(found) == ["an early loss", "a late loss"]


@pytest.mark.parametrize("again", ["keep", "ship"])
def test_small_files_whose_write_failed_are_written_with_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, again: str
) -> None:
    place, run_dir = str(tmp_path / "store"), tmp_path / "run"
    controller = Controller(run_dir, place)
    Verdicts(run_dir, term=1).add("convicted", "its update was wrong", iteration=0, party=PARTY)
    keep_caveat(run_dir, "a loss")

    def refuse(objects: DirectoryObjects, name: str, content: bytes) -> bool:
        raise StorageFailed("timed out")

    with monkeypatch.context() as failing:
        failing.setattr(DirectoryObjects, "create", refuse)
        with pytest.raises(StorageFailed, match="timed out"):
            controller.store.keep()
    assert not {VERDICTS, CAVEATS} & controller.store.log.files.keys()
    getattr(controller.store, again)()
    other = restored(tmp_path / "other", place)
    assert [verdict.party for verdict in read_verdicts(other)] == [PARTY]
    assert lasting_caveats(other) == ["a loss"]
    assert (other / "numerics.json").read_text() == "since term 1\n"


def test_damaged_verdicts_are_replaced_by_those_of_the_store(tmp_path: Path) -> None:
    place, run_dir = str(tmp_path / "store"), tmp_path / "run"
    first = Controller(run_dir, place)
    Verdicts(run_dir).add("convicted", "its update was wrong", iteration=0, party=PARTY)
    first.store.keep()
    (run_dir / VERDICTS).write_text("[{")
    Controller(run_dir, place)
    assert [verdict.party for verdict in read_verdicts(run_dir)] == [PARTY]


def test_a_run_of_another_release_is_not_gone_on_with(tmp_path: Path) -> None:
    place = str(tmp_path / "store")
    Controller(tmp_path / "run", place).run(1)
    facts = {"run": "a", "release": "0.3", "term": 2, "instance": 5}
    record = encode(3, facts, NO_UPDATES, stored=False)
    DirectoryObjects(tmp_path / "store").put("log/000000000002", b"".join(record))
    with pytest.raises(VersionMismatch, match=r"store is a run of fullrank 0\.3, .*; install"):
        SharedStore(place, tmp_path / "other", keep=1).log.read()


def test_a_log_without_its_beginning_and_a_damaged_entry_are_named(tmp_path: Path) -> None:
    place = str(tmp_path / "store")
    Controller(tmp_path / "run", place).run(5)
    flip(tmp_path / "store" / "log" / "000000000006")
    with pytest.raises(CheckpointUnusable, match="log/000000000006: damaged; restore"):
        SharedStore(place, tmp_path / "other", keep=1).log.read()
    (tmp_path / "store" / "log" / "000000000004").unlink()
    with pytest.raises(CheckpointUnusable, match="holds no log/000000000004, with which"):
        SharedStore(place, tmp_path / "other", keep=1).log.read()


def test_a_store_that_refuses_ends_the_controller_with_a_line_that_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = str(tmp_path / "store")
    first = Controller(tmp_path / "run", place)
    first.run(2)

    def refuse(objects: DirectoryObjects, name: str, content: bytes) -> bool:
        raise StorageFailed(f"{place}: {name}: No space left on device")

    with monkeypatch.context() as failing:
        failing.setattr(DirectoryObjects, "create", refuse)
        with pytest.raises(StorageFailed, match="No space left on device; once it takes writes"):
            first.commit(2)
    assert first.published == [0, 1]
    assert Controller(tmp_path / "other", place).begins == 2


def test_a_store_that_replaces_what_exists_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def replaces(objects: DirectoryObjects, name: str, content: bytes) -> bool:
        objects.put(name, content)
        return True

    monkeypatch.setattr(DirectoryObjects, "create", replaces)
    with pytest.raises(ConfigError, match="two controllers could go on; choose a store with"):
        Controller(tmp_path / "run", str(tmp_path / "store"))


@pytest.mark.parametrize("url", ["s3://key:secret@runs/one", "az://runs/one?sig=secret"])
def test_credentials_in_a_url_are_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(ConfigError, match="credentials stand in the environment") as raised:
        open_objects(url)
    assert "secret" not in str(raised.value)


@pytest.mark.integration
def test_a_directory_is_taken_whole_or_again_if_its_controller_was_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the store lacks is in the directory alone, which nothing may replace until then."""
    Controller(tmp_path / "run", str(tmp_path / "before")).run(8)
    interrupted = 0
    for writes in range(100):
        place, run_dir = str(tmp_path / f"store {writes}"), tmp_path / f"run {writes}"
        shutil.copytree(tmp_path / "run", run_dir)
        left = iter(range(writes))

        class Interrupted(DirectoryObjects):
            def put(self, name: str, content: bytes, left: Iterator[int] = left) -> None:
                next(left)
                super().put(name, content)

            def create(self, name: str, content: bytes, left: Iterator[int] = left) -> bool:
                next(left)
                return super().create(name, content)

        with monkeypatch.context() as patched:
            patched.setattr(stores, "open_objects", lambda url, kind=Interrupted: kind(Path(url)))
            try:
                Controller(run_dir, place)
            except StopIteration:
                interrupted += 1
            else:
                break
        again = Controller(run_dir, place)
        assert again.begins == 8
        again.store.ship()
        assert_alike(restored(tmp_path / f"other {writes}", place), run_dir)
    assert interrupted > 8


def test_small_files_that_change_after_the_last_iteration_are_stored(tmp_path: Path) -> None:
    place, run_dir = str(tmp_path / "store"), tmp_path / "run"
    controller = Controller(run_dir, place)
    controller.run(4)
    (run_dir / "verdicts.json").write_text("[]\n")
    controller.store.ship()
    assert (restored(tmp_path / "other", place) / "verdicts.json").read_text() == "[]\n"


class Ending(DirectoryObjects):
    """Objects of a machine that ends after so many writes and removals."""

    left = 10**9

    def _end(self) -> None:
        Ending.left -= 1
        if Ending.left < 0:
            raise StopIteration

    def put(self, name: str, content: bytes) -> None:
        self._end()
        super().put(name, content)

    def create(self, name: str, content: bytes) -> bool:
        self._end()
        return super().create(name, content)

    def remove(self, names: Iterable[str]) -> None:
        for name in list(names):
            self._end()
            super().remove([name])


@pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.thorough)])
def test_what_a_machine_leaves_that_ends_at_any_write_is_removed_by_the_next_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """Nothing is in the store then but what the newest head names, the log after it, and entries
    that begin terms, as the first one does."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # no disk is lost here
    monkeypatch.setattr(stores, "open_objects", lambda url: Ending(Path(url)))
    for writes in range(0, 10**6, step):
        store, run_dir = tmp_path / f"store {writes}", tmp_path / f"run {writes}"
        Ending.left = writes
        try:
            Controller(run_dir, str(store)).run()
        except StopIteration:
            pass
        else:
            assert writes > 60
            return
        Ending.left = 10**9
        last = Controller(tmp_path / f"other {writes}", str(store))
        last.run(max(ITERATIONS, last.begins + EVERY))
        head, following = last.store.log.head, last.store.log.next
        entries = {0, *range(head.sequence, following), *last.store.log.openings}
        found = {str(path.relative_to(store)) for path in store.rglob("*") if path.is_file()}
        found = {name for name in found if not name.startswith(("heads/", "probe"))}
        assert found == head.objects | {f"log/{entry:012d}" for entry in entries}


def test_rows_are_those_from_which_the_checkpoints_draw_and_no_more(tmp_path: Path) -> None:
    """Segments that are full stay as they are; the last one is replaced by a longer one."""
    place, run_dir = str(tmp_path / "store"), tmp_path / "run"
    controller = Controller(run_dir, place)
    for iterations in (3, 6, 9, 12):
        controller.run(iterations)
        head = ROWS * iterations
        stored = controller.store.log.rows
        assert (stored[0].first, stored[-1].last) == (max(0, head - DRAWN), head)
        assert [one.last for one in stored[:-1]] == [other.first for other in stored[1:]]
        for each in stored:
            np.testing.assert_array_equal(
                controller.store.read_rows(each), rows(each.first, each.last)
            )
        assert len(names(place, "rows")) == len(stored)


def test_a_segment_that_is_torn_or_missing_is_named(tmp_path: Path) -> None:
    place = str(tmp_path / "store")
    controller = Controller(tmp_path / "run", place)
    controller.run(6)
    torn, missing = controller.store.log.rows[:2]
    flip(tmp_path / "store" / torn.name)
    (tmp_path / "store" / missing.name).unlink()
    with pytest.raises(Corrupted, match=f"{torn.name} does not hold what was stored"):
        controller.store.read_rows(torn)
    with pytest.raises(Corrupted, match=f"{missing.name} is missing"):
        controller.store.read_rows(missing)


def test_rows_of_an_iteration_replace_those_that_were_stored_from_there_on(tmp_path: Path) -> None:
    """A run that resumes before them writes others; the journal has its records alone."""
    place = str(tmp_path / "store")
    controller = Controller(tmp_path / "run", place)
    for first, last in ((0, 4), (4, 9), (4, 6), (6, 8)):
        iteration = controller.begins
        controller.begins += 1
        record = controller.journal.append(
            iteration, facts={}, updates=np.zeros((1, 1), np.float32)
        )
        controller.store.add(record.segment, record.pieces)
        controller.store.ship(first, rows(first, last))
    other = restored(tmp_path / "other", place)
    assert committed(other) == 4
    again = SharedStore(place, tmp_path / "other", keep=1)
    again.log.read()
    assert [(each.first, each.last) for each in again.log.rows] == [(0, 4), (4, 6), (6, 8)]
    for each in again.log.rows:
        np.testing.assert_array_equal(again.read_rows(each), rows(each.first, each.last))


KILLED = """
import os, sys
from fullrank.runs import objects

objects.os.link = lambda *_: os._exit(7)
objects.open_objects(sys.argv[1]).create("log/000000000099", b"an entry")
"""


def test_what_a_killed_controller_was_writing_is_removed_by_the_next_one(tmp_path: Path) -> None:
    place = tmp_path / "store"
    Controller(tmp_path / "run", str(place)).run(4)
    before = {path for path in place.rglob("*") if path.is_file()}
    killed = subprocess.run([sys.executable, "-c", KILLED, str(place)], check=False, timeout=WAIT_S)
    assert killed.returncode == 7
    (left,) = {path for path in place.rglob("*") if path.is_file()} - before
    assert left.read_bytes() == b"an entry"
    assert Controller(tmp_path / "other", str(place)).begins == 4
    assert not left.exists()


@pytest.mark.parametrize("name", ["log/../../run/run.json", "", "log", "metrics"])
def test_an_entry_names_no_object_outside_its_store_and_no_folder(
    name: str, tmp_path: Path
) -> None:
    """What it names is removed one day."""
    place = tmp_path / "store"
    controller = Controller(tmp_path / "run", str(place))
    controller.store.log.own = replace(controller.store.log.own, strays=(name,))
    controller.commit(0)
    with pytest.raises(CheckpointUnusable, match="strays"):
        SharedStore(str(place), tmp_path / "other", keep=1).log.read()
