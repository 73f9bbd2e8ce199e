"""A successor finds every iteration that was published, whatever its predecessor still does."""

from pathlib import Path

import numpy as np
import pytest
from tests.unit.runs.mirrored import ITERATIONS, Controller, Tapped, assert_alike, committed

from fullrank.common.errors import NotFound, StaleTerm
from fullrank.runs import mirror
from fullrank.runs.mirror import take_over
from fullrank.runs.objects import DirectoryObjects, open_objects


class TakenOver(Exception):
    """The successor has all that it needs."""


def play(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    at: int,
    *,
    dies: bool,
    until: int = ITERATIONS,
) -> tuple[list[int], int] | None:
    """Run a controller to whose run a successor comes before its operation number ``at``.

    The successor commits ``until`` iterations, at least one of its own, and the first controller
    then dies or thaws; a third one must find what the second left.

    Returns:
        The iterations that the first controller ever published, and how many the successor found;
        None if there are fewer operations, or nothing was committed yet.
    """
    place, steps, found = str(tmp_path / "mirror"), iter(range(10**6)), list[int]()

    def tap() -> None:
        if next(steps) == at:
            with monkeypatch.context() as plain:
                plain.setattr(mirror, "open_objects", open_objects)
                try:
                    take_over(place, tmp_path / "other")
                except NotFound:
                    return
                successor = Controller(tmp_path / "other", place)
                found.append(successor.begins)
                successor.run(max(until, successor.begins + 1))
                assert committed(tmp_path / "other") == max(until, successor.begins + 1)
            if dies:
                raise TakenOver

    monkeypatch.setattr(mirror, "open_objects", lambda place: Tapped(open_objects(place), tap))
    first = None
    try:
        first = Controller(tmp_path / "run", place)
        first.run()
    except (StaleTerm, TakenOver):
        pass
    monkeypatch.undo()
    if not found:
        return None
    take_over(place, tmp_path / "third")
    assert_alike(tmp_path / "third", tmp_path / "other")
    return (first.published if first else []), found[0]


@pytest.mark.parametrize("step", [9, pytest.param(1, marks=pytest.mark.thorough)])
def test_a_controller_that_thaws_at_any_moment_overwrites_nothing_of_its_successor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """Both save a checkpoint of one iteration, and metrics from one offset on."""
    found = 0
    for at in range(20, 70, step):
        (tmp_path / str(at)).mkdir()
        found += play(tmp_path / str(at), monkeypatch, at, dies=False, until=0) is not None
    assert found >= 45 // step


@pytest.mark.parametrize("dies", [True, False])
@pytest.mark.parametrize("step", [23, pytest.param(2, marks=pytest.mark.thorough)])
def test_what_was_published_is_found_by_a_successor_that_comes_at_any_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dies: bool, step: int
) -> None:
    found = 0
    for at in range(20, 90, step):
        (tmp_path / str(at)).mkdir()
        outcome = play(tmp_path / str(at), monkeypatch, at, dies=dies)
        if outcome is not None:
            published, begins = outcome
            assert published in (list(range(begins)), list(range(begins - 1)))
            found += 1
    assert found >= 30 // step


def test_a_run_that_went_on_elsewhere_is_refused_where_it_was(tmp_path: Path) -> None:
    place = str(tmp_path / "mirror")
    Controller(tmp_path / "run", place).run(2)
    take_over(place, tmp_path / "other")
    Controller(tmp_path / "other", place).run(4)
    with pytest.raises(StaleTerm, match=r"a state of term 3, and .* ends with term 1: the run"):
        Controller(tmp_path / "run", place)
    again = Controller(tmp_path / "other", place)
    assert (again.begins, again.term) == (4, 4)  # the one refused had claimed none


def test_a_run_that_was_taken_over_is_refused_where_it_was_though_nothing_was_stored_since(
    tmp_path: Path,
) -> None:
    """The standby may publish again what the first controller stored and never published."""
    place = str(tmp_path / "mirror")
    first = Controller(tmp_path / "run", place)
    first.run(2)
    first.mirror.store(first.journal.append(2, facts={}, updates=np.ones((1, 1), np.float32)))
    take_over(place, tmp_path / "other")
    with pytest.raises(StaleTerm, match=r"a state of term 2, and .* ends with term 1: the run"):
        Controller(tmp_path / "run", place)
    assert Controller(tmp_path / "other", place).begins == 3


def test_of_two_that_claim_one_term_one_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = str(tmp_path / "mirror")
    Controller(tmp_path / "run", place).run(2)
    create = DirectoryObjects.create

    def beaten(self: DirectoryObjects, name: str, content: bytes) -> bool:
        assert create(self, name, content)
        return create(self, name, content)

    monkeypatch.setattr(DirectoryObjects, "create", beaten)
    with pytest.raises(StaleTerm, match="has claimed term 2"):
        take_over(place, tmp_path / "other")
    assert not (tmp_path / "other" / "run.json").exists()
