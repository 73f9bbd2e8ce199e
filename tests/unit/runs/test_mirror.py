"""A successor finds every iteration that was published, whatever its predecessor still does."""

import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from tests.unit.runs.test_recovery import STATE, flip

from fullrank.common.errors import NotFound, RunDirectoryInUse, StaleTerm
from fullrank.runs import claims, mirror
from fullrank.runs.checkpoint import save, saved
from fullrank.runs.journal import Journal, read, supersede
from fullrank.runs.mirror import Mirror, take_over
from fullrank.runs.objects import DirectoryObjects, Objects, open_objects
from fullrank.runs.recovery import examine

ITERATIONS, EVERY = 9, 3


class Tapped:
    """Objects that call ``tap`` before each operation."""

    def __init__(self, objects: Objects, tap: Callable[[], None]) -> None:
        self._objects, self._tap = objects, tap

    def put(self, name: str, content: bytes) -> None:
        self._tap()
        self._objects.put(name, content)

    def create(self, name: str, content: bytes) -> bool:
        self._tap()
        return self._objects.create(name, content)

    def get(self, name: str) -> bytes:
        self._tap()
        return self._objects.get(name)

    def names(self, prefix: str = "") -> list[str]:
        self._tap()
        return self._objects.names(prefix)

    def remove(self, names: Iterable[str]) -> None:
        for name in list(names):
            self._tap()
            self._objects.remove([name])


def line(iteration: int) -> str:
    return f'{{"iteration": {iteration}}}\n'


class Controller:
    """The durable side of a controller, as ``RunStore`` orders it."""

    def __init__(self, run_dir: Path, place: str) -> None:
        self.run_dir, self.published = run_dir, list[int]()
        run_dir.mkdir(exist_ok=True)
        path = run_dir / "run.json"
        known: dict[str, Any] = (
            json.loads(path.read_text()) if path.exists() else {"run": "a", "term": 0}
        )
        self.mirror = Mirror(place, run_dir)
        term = self.mirror.claim(str(known["run"]), last=int(known["term"]))
        path.write_text(json.dumps({**known, "term": term}))
        (run_dir / "config.toml").write_text("format = 1\n")
        (run_dir / "numerics.json").write_text(f"since term {term}\n")
        self.mirror.mend(keep=1)
        self.mirror.equalise()
        self.begins = examine(run_dir, published=0).committed
        (run_dir / "metrics.jsonl").write_text("".join(map(line, range(self.begins))))
        self.term = term
        self.journal = Journal(
            run_dir / "journal", term=term, first=self.begins, confirm=lambda: None
        )
        if self.begins > max(
            (int(path.name) + 1 for path in saved(run_dir / "checkpoints")), default=0
        ):
            self.save(self.begins - 1)  # as a controller does that has repeated iterations

    def run(self, iterations: int = ITERATIONS) -> None:
        for iteration in range(self.begins, iterations):
            updates = np.full((2, 3), iteration, np.float32)
            self.mirror.store(self.journal.append(iteration, facts={}, updates=updates))
            self.published.append(iteration)
            with (self.run_dir / "metrics.jsonl").open("a") as file:
                file.write(line(iteration))
            if (iteration + 1) % EVERY == 0:
                self.save(iteration)

    def save(self, iteration: int) -> None:
        checkpoints, facts = self.run_dir / "checkpoints", {"term": self.term}
        path = save(checkpoints, iteration=iteration, arrays=STATE, facts=facts, keep=1)
        self.journal.begin_segment(iteration + 1, keep_from=iteration + 1)
        self.mirror.checkpoint(path)


def committed(run_dir: Path) -> int:
    found = examine(run_dir, published=0)
    assert found.faults == ()
    return found.committed


def assert_alike(taken_over: Path, original: Path) -> None:
    """Compare the state that a standby found with the directory of its predecessor."""
    assert committed(taken_over) == committed(original)
    checkpoint = saved(original / "checkpoints")[0]
    for file in checkpoint.iterdir():
        stored = taken_over / file.relative_to(original)
        assert stored.read_bytes() == file.read_bytes()
    found, expected = ((each / "metrics.jsonl").read_bytes() for each in (taken_over, original))
    assert expected.startswith(found)
    assert found.count(b"\n") > int(checkpoint.name)
    numerics = [(each / "numerics.json").read_text() for each in (taken_over, original)]
    assert numerics[0] == numerics[1]


class Unmirrored:
    """A mirror that a dying controller reaches no more."""

    def store(self, record: object) -> None:
        """Do nothing."""

    def checkpoint(self, path: object) -> None:
        """Do nothing."""


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
    for at in range(22, 77, step):
        (tmp_path / str(at)).mkdir()
        found += play(tmp_path / str(at), monkeypatch, at, dies=False, until=0) is not None
    assert found >= 50 // step


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


def test_a_controller_that_begins_again_goes_on_alone(tmp_path: Path) -> None:
    place = str(tmp_path / "mirror")
    first = Controller(tmp_path / "run", place)
    first.run(2)
    second = Controller(tmp_path / "run", place)
    with pytest.raises(StaleTerm, match="another controller has claimed term 2"):
        first.mirror.store(first.journal.append(2, facts={}, updates=np.ones((1, 1), np.float32)))
    second.run()
    assert committed(tmp_path / "run") == ITERATIONS


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


@pytest.mark.parametrize("damaged", ["state.safetensors", "manifest.json"])
def test_a_damaged_checkpoint_is_replaced_by_its_mirrored_copy(
    tmp_path: Path, damaged: str
) -> None:
    """Going back to an older one would cut replay behind the rows that a standby needs."""
    place = str(tmp_path / "mirror")
    Controller(tmp_path / "run", place).run(8)
    flip(saved(tmp_path / "run" / "checkpoints")[0] / damaged)
    assert Controller(tmp_path / "run", place).begins == 8
    assert committed(tmp_path / "run") == 8
    take_over(place, tmp_path / "other")
    assert committed(tmp_path / "other") == 8


@pytest.mark.parametrize(
    "lost",
    [
        ("journal",),
        ("checkpoints",),
        ("journal", "checkpoints", "metrics.jsonl", "numerics.json"),
    ],
)
def test_a_directory_takes_from_its_mirror_what_it_has_lost(
    tmp_path: Path, lost: tuple[str, ...]
) -> None:
    """Equal to such a directory, the mirror would be empty, too."""
    place, run_dir = str(tmp_path / "mirror"), tmp_path / "run"
    Controller(run_dir, place).run(8)
    for name in lost:
        (run_dir / name).rename(tmp_path / name)
    again = Controller(run_dir, place)
    assert (again.term, again.begins) == (2, 8)
    take_over(place, tmp_path / "other")
    assert_alike(tmp_path / "other", run_dir)


def test_a_segment_that_was_cut_is_replaced_by_its_mirrored_copy(tmp_path: Path) -> None:
    place, run_dir = str(tmp_path / "mirror"), tmp_path / "run"
    Controller(run_dir, place).run(8)
    (segment,) = (run_dir / "journal").iterdir()
    os.truncate(segment, segment.stat().st_size // 2)
    assert Controller(run_dir, place).begins == 8


def test_a_segment_that_a_checkpoint_outlived_stays_removed(tmp_path: Path) -> None:
    """A controller that dies between both removals leaves it in the mirror."""
    place, run_dir = str(tmp_path / "mirror"), tmp_path / "run"
    first = Controller(run_dir, place)
    first.run(2)
    first.mirror = cast(Mirror, Unmirrored())
    first.begins = 2
    first.run(3)
    again = Controller(run_dir, place)
    assert again.begins == 3
    assert [path.name for path in (run_dir / "journal").iterdir()] == ["000003-000001.journal"]


def test_withdrawn_iterations_do_not_come_back(tmp_path: Path) -> None:
    place = str(tmp_path / "mirror")
    first = Controller(tmp_path / "run", place)
    first.run(8)
    supersede(tmp_path / "run" / "journal", term=2, first=6)
    first.mirror.equalise()
    take_over(place, tmp_path / "other")
    assert len(read(tmp_path / "other" / "journal", first=6)) == 0
    assert committed(tmp_path / "other") == 6


def test_a_directory_that_has_withdrawn_iterations_goes_on(tmp_path: Path) -> None:
    place = str(tmp_path / "mirror")
    first = Controller(tmp_path / "run", place)
    first.run(8)
    supersede(tmp_path / "run" / "journal", term=2, first=6)
    first.mirror.equalise()
    second = Controller(tmp_path / "run", place)
    assert (second.term, second.begins) == (3, 6)
    second.run()
    assert committed(tmp_path / "run") == ITERATIONS


def test_a_directory_is_mirrored_from_where_it_is(tmp_path: Path) -> None:
    """A mirror that is new, or lost, is filled at the next start."""
    Controller(tmp_path / "run", str(tmp_path / "lost")).run(8)
    place = str(tmp_path / "mirror")
    Controller(tmp_path / "run", place)
    take_over(place, tmp_path / "other")
    assert committed(tmp_path / "other") == 8
    metrics = (tmp_path / "run" / "metrics.jsonl").read_bytes()
    assert (tmp_path / "other" / "metrics.jsonl").read_bytes() == metrics


def test_a_mirror_whose_objects_name_no_term_is_read_and_renewed(tmp_path: Path) -> None:
    """As version 0.2 wrote it."""
    place, objects = str(tmp_path / "mirror"), DirectoryObjects(tmp_path / "mirror")
    Controller(tmp_path / "run", place).run(8)
    for name in objects.names():
        folder, *_, last = name.split("/")
        match folder:
            case "files":
                objects.put(last, objects.get(name))
            case "metrics":
                objects.put(f"metrics/{last}", objects.get(name))
            case "checkpoints":
                objects.put(name.replace("-000001", ""), objects.get(name))
            case _:
                continue
        objects.remove([name])
    take_over(place, tmp_path / "other")
    assert_alike(tmp_path / "other", tmp_path / "run")
    Controller(tmp_path / "other", place)
    assert "numerics.json" not in objects.names()
    take_over(place, tmp_path / "third")
    assert_alike(tmp_path / "third", tmp_path / "other")


def test_a_mirror_holds_no_more_than_the_directory(tmp_path: Path) -> None:
    place = str(tmp_path / "mirror")
    Controller(tmp_path / "run", place).run()
    names = DirectoryObjects(tmp_path / "mirror").names()
    newest = saved(tmp_path / "run" / "checkpoints")[0].name
    assert names == [
        f"checkpoints/{newest}-000001/manifest.json",
        f"checkpoints/{newest}-000001/state.safetensors",
        "files/000001/config.toml",
        "files/000001/numerics.json",
        "journal/000009-000001/begun",
        *[name for name in names if name.startswith("metrics/000001/")],
        "terms/000001",
    ]


@pytest.mark.parametrize("iterations", [2, 6])
def test_the_mirror_of_another_run_is_refused(tmp_path: Path, iterations: int) -> None:
    """Also after a checkpoint that outlived the whole journal."""
    place = str(tmp_path / "mirror")
    Controller(tmp_path / "run", place).run(iterations)
    with pytest.raises(RunDirectoryInUse, match="mirrors another run, a; choose"):
        claims.Claims(DirectoryObjects(tmp_path / "mirror"), place).claim("b", last=0)


def test_an_empty_mirror_is_nothing_to_take_over(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no committed iteration yet"):
        take_over(str(tmp_path / "mirror"), tmp_path / "run")
    assert not (tmp_path / "run").exists()
