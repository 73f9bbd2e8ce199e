"""The numerics of a run are fixed when it begins, kept when it resumes, changed by its user."""

import json
from pathlib import Path

import pytest
from tests.faultlab.history import read_history

from fullrank.common.errors import CheckpointUnusable
from fullrank.runs.events import EventLog, NumericsBegan
from fullrank_controller.membership.member import Numerics
from fullrank_controller.membership.roster import Roster
from fullrank_controller.persistence.run_numerics import FILE, RunNumerics
from fullrank_controller.progress import RunProgress

OWN, OTHER = Numerics.of("own", [b"p"]), Numerics.of("other", [b"p"])


def never() -> Numerics:
    raise AssertionError("the numerics are written down")


class Term:
    """A term of a run that begins at an iteration."""

    def __init__(self, run_dir: Path, *, since: int = 0) -> None:
        self.roster, self.progress = Roster(), RunProgress()
        self.run = RunNumerics(
            run_dir,
            term=1,
            since=since,
            roster=self.roster,
            event_log=EventLog(run_dir, "controller"),
            progress=self.progress,
        )

    @property
    def identity(self) -> str:
        assert self.roster.numerics is not None
        return self.roster.numerics.identity


def written(run_dir: Path) -> list[tuple[int, str]]:
    return [(each["since"], each["identity"]) for each in json.loads((run_dir / FILE).read_text())]


def test_the_controller_s_own_are_kept_when_another_resumes(tmp_path: Path) -> None:
    first = Term(tmp_path)
    first.run.settle("controller", lambda: OWN)
    again = Term(tmp_path, since=7)
    again.run.settle("controller", never)
    assert first.identity == again.identity == OWN.identity
    assert written(tmp_path) == [(0, OWN.identity)]
    assert not again.progress.caveats


def test_those_of_the_first_learners_are_kept(tmp_path: Path) -> None:
    first = Term(tmp_path)
    first.run.settle("learners", never)
    assert first.roster.numerics is None
    first.run.fix(OTHER)
    again = Term(tmp_path, since=7)
    again.run.settle("learners", never)
    assert again.identity == OTHER.identity


def test_a_change_is_the_user_s_and_says_from_which_iteration_on(tmp_path: Path) -> None:
    Term(tmp_path).run.settle("controller", lambda: OWN)
    changed = Term(tmp_path, since=7)
    changed.run.settle(OTHER.identity, lambda: OTHER)
    assert changed.identity == OTHER.identity
    assert written(tmp_path) == [(0, OWN.identity), (7, OTHER.identity)]
    again = Term(tmp_path, since=9)
    again.run.settle(OTHER.identity, never)
    for term in (changed, again):
        [caveat] = term.progress.caveats
        assert f"began with {OWN.identity} and has {OTHER.identity} from iteration 7 on" in caveat
    events = read_history(tmp_path).controller
    said = [event.iteration for event in events if isinstance(event, NumericsBegan)]
    assert said == [0, 7]


def test_a_named_one_that_is_not_the_controller_s_is_known_by_its_name(tmp_path: Path) -> None:
    term = Term(tmp_path)
    term.run.settle(OTHER.identity, lambda: OWN)
    assert term.roster.numerics == Numerics(identity=OTHER.identity, fingerprint="")


def test_a_change_moves_with_iterations_that_are_taken_back(tmp_path: Path) -> None:
    Term(tmp_path).run.settle("controller", lambda: OWN)
    Term(tmp_path, since=7).run.settle(OTHER.identity, lambda: OTHER)
    back = Term(tmp_path, since=4)
    back.run.settle("controller", never)
    assert back.identity == OTHER.identity
    [caveat] = back.progress.caveats
    assert "from iteration 4 on" in caveat


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("{")
    with pytest.raises(CheckpointUnusable, match=FILE):
        Term(tmp_path).run.settle("controller", lambda: OWN)
