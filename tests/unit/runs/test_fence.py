"""The log of a store is the fence: of all controllers one goes on, and it knows what was shown."""

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from tests.unit.runs.stored import (
    ITERATIONS,
    Controller,
    Tapped,
    assert_alike,
    committed,
    restored,
)

from fullrank.common.errors import StaleTerm, StorageFailed
from fullrank.runs import store
from fullrank.runs.ending import keep_caveat, lasting_caveats
from fullrank.runs.objects import DirectoryObjects, open_objects


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spare the disk thousands of writes: no machine is lost here."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    monkeypatch.setattr(os, "fdatasync", lambda descriptor: None)


class Dead(Exception):
    """The controller ends here."""


def tapped(
    monkeypatch: pytest.MonkeyPatch, at: int, body: Callable[[], None], subject: Callable[[], None]
) -> bool:
    """Run ``subject``, whose store does ``body`` before its operation number ``at``.

    Returns:
        False if there are fewer operations.
    """
    steps, reached = iter(range(10**6)), list[bool]()

    def tap() -> None:
        if next(steps) == at:
            reached.append(True)
            with monkeypatch.context() as plain:
                plain.setattr(store, "open_objects", open_objects)
                body()

    with monkeypatch.context() as patch:
        patch.setattr(store, "open_objects", lambda place: Tapped(open_objects(place), tap))
        subject()
    return bool(reached)


@pytest.mark.integration
@pytest.mark.parametrize("dies", [True, False])
@pytest.mark.parametrize("step", [7, pytest.param(1, marks=pytest.mark.thorough)])
def test_a_successor_that_comes_at_any_moment_finds_what_was_published_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dies: bool, step: int
) -> None:
    """The first controller then dies or thaws; a third one finds what the second left."""
    for at in range(4, 10**6, step):
        home = tmp_path / str(at)
        home.mkdir()
        place, first, found = str(home / "store"), list[Controller](), list[int]()

        def succeed(home: Path = home, place: str = place, found: list[int] = found) -> None:
            successor = Controller(home / "other", place)
            found.append(successor.begins)
            successor.run(max(ITERATIONS, successor.begins + 1))
            if dies:
                raise Dead

        def begin(home: Path = home, place: str = place, first: list[Controller] = first) -> None:
            try:
                first.append(Controller(home / "run", place))
                first[0].run()
            except (StaleTerm, Dead):
                pass

        if not tapped(monkeypatch, at, succeed, begin):
            assert at > 40
            return
        assert_alike(restored(home / "third", place), home / "other")
        if first:
            assert first[0].published in (list(range(found[0])), list(range(found[0] - 1)))


@pytest.mark.integration
@pytest.mark.parametrize("step", [3, pytest.param(1, marks=pytest.mark.thorough)])
def test_a_newcomer_that_is_frozen_at_any_moment_while_the_run_goes_on_harms_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """Entries that it has read, and the one that it creates next, are removed meanwhile."""
    for at in range(0, 10**6, step):
        home = tmp_path / str(at)
        home.mkdir()
        place = str(home / "store")
        first = Controller(home / "run", place)
        first.run(5)
        superseded, came = list[bool](), list[Controller]()

        def go_on(first: Controller = first, superseded: list[bool] = superseded) -> None:
            try:
                first.run(20)
            except StaleTerm:
                superseded.append(True)

        def come(home: Path = home, place: str = place, came: list[Controller] = came) -> None:
            with suppress(StaleTerm):
                came.append(Controller(home / "other", place))

        if not tapped(monkeypatch, at, go_on, come):
            assert at > 15
            return
        if not came:
            assert not superseded
            first.commit(20)
            assert_alike(restored(home / "third", place), home / "run")
            continue
        found = committed(home / "other")
        assert found == (len(first.published) if superseded else 20)
        with pytest.raises(StaleTerm, match="another controller has begun term 2"):
            first.commit(20)
        assert_alike(restored(home / "third", place), home / "other")


def test_of_two_controllers_that_begin_at_once_one_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = str(tmp_path / "store")
    Controller(tmp_path / "run", place).run(2)
    create, begun = DirectoryObjects.create, list[Controller]()

    def beaten(self: DirectoryObjects, name: str, content: bytes) -> bool:
        monkeypatch.setattr(DirectoryObjects, "create", create)
        begun.append(Controller(tmp_path / "other", place))
        return create(self, name, content)

    monkeypatch.setattr(DirectoryObjects, "create", beaten)
    with pytest.raises(StaleTerm, match="another controller has begun term 2 of the run"):
        Controller(tmp_path / "third", place)
    begun[0].run(4)
    assert not (tmp_path / "third" / "run.json").exists()
    assert StaleTerm.exit_code == 11


@pytest.mark.parametrize("answer", ["lost", "refused"])
def test_an_entry_whose_answer_was_lost_is_known_by_its_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    """A library that repeats such a write is told that the entry exists."""
    place, create = str(tmp_path / "store"), DirectoryObjects.create
    first = Controller(tmp_path / "run", place)

    def landed(self: DirectoryObjects, name: str, content: bytes) -> bool:
        assert create(self, name, content)
        if answer == "lost":
            raise StorageFailed("timed out")
        return create(self, name, content)

    monkeypatch.setattr(DirectoryObjects, "create", landed)
    first.run(8)
    assert first.published == list(range(8))
    monkeypatch.setattr(DirectoryObjects, "create", create)
    assert_alike(restored(tmp_path / "other", place), tmp_path / "run")


@pytest.mark.parametrize("succeeded", [False, True])
@pytest.mark.parametrize("iterations", [2, 3])
def test_an_entry_that_could_not_be_read_back_either_is_known_to_the_next_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, iterations: int, succeeded: bool
) -> None:
    """A successor begins with a checkpoint of the second iteration, and removes the entry."""
    place, create = str(tmp_path / "store"), DirectoryObjects.create
    first = Controller(tmp_path / "run", place)
    first.run(iterations)

    def landed(self: DirectoryObjects, name: str, content: bytes) -> bool:
        assert create(self, name, content)
        raise StorageFailed("timed out")

    def unread(self: DirectoryObjects, name: str) -> bytes:
        raise StorageFailed("timed out")

    keep_caveat(tmp_path / "run", "a loss")
    with monkeypatch.context() as away:
        away.setattr(DirectoryObjects, "create", landed)
        away.setattr(DirectoryObjects, "get", unread)
        with pytest.raises(StorageFailed, match="timed out"):
            first.store.keep()
    if succeeded:
        Controller(tmp_path / "other", place)
        with pytest.raises(StaleTerm, match="another controller has begun term 2"):
            first.commit(iterations)
    else:
        first.commit(iterations)
    assert first.published == list(range(iterations if succeeded else iterations + 1))
    third = restored(tmp_path / "third", place)
    assert committed(third) == len(first.published)
    assert lasting_caveats(third) == ["a loss"]


def test_a_controller_that_stores_nothing_hears_of_its_successor(tmp_path: Path) -> None:
    place = str(tmp_path / "store")
    first = Controller(tmp_path / "run", place)
    first.run(2)
    first.store.log.confirm()
    Controller(tmp_path / "other", place).run(8)
    with pytest.raises(StaleTerm, match="another controller has begun term 2"):
        first.store.log.confirm()
