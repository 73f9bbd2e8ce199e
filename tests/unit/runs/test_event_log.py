"""An event log returns the events of every process, and survives truncation."""

from pathlib import Path

import pytest
from tests.disks import no_room_beyond
from tests.faultlab.history import EventHistory, follow, read_history

from fullrank.common.errors import FullrankError
from fullrank.runs.events import Acknowledged, Began, Committed, EventLog, Stored, Welcomed

BEGAN = Began(run="r", term=1, known=0, resumes_at=0)
COMMITTED = Committed(
    term=1, epoch=0, iteration=0, rows=((0, 2), (3, 1)), digest="ab", exact=True, culprit=None
)


def note(run_dir: Path, service: str, *events: Began | Committed | Stored | Welcomed) -> None:
    event_log = EventLog(run_dir, service)
    for event in events:
        event_log.append(event)
    event_log.close()


def test_what_each_service_noted_is_read_again_over_restarts(tmp_path: Path) -> None:
    stored = Stored(table="t", first=0, head=4)
    welcomed = Welcomed(run="r", term=1, learner=2)
    note(tmp_path, "controller", BEGAN)
    note(tmp_path, "controller", COMMITTED)
    note(tmp_path, "replay", stored)
    note(tmp_path, "learner-17", welcomed)
    assert read_history(tmp_path) == EventHistory(
        controller=[BEGAN, COMMITTED], replay=[stored], learners={"learner-17": [welcomed]}
    )


def test_a_line_cut_short_is_forgotten_and_written_over(tmp_path: Path) -> None:
    note(tmp_path, "controller", BEGAN, COMMITTED)
    path = tmp_path / "history" / "controller.jsonl"
    path.write_bytes(path.read_bytes()[:-5])
    assert read_history(tmp_path).controller == [BEGAN]
    note(tmp_path, "controller", COMMITTED)
    assert read_history(tmp_path).controller == [BEGAN, COMMITTED]


def test_a_history_that_grows_is_read_on_from_where_it_was_left(tmp_path: Path) -> None:
    noted = follow(tmp_path)
    assert next(noted) == EventHistory()
    note(tmp_path, "controller", BEGAN)
    assert next(noted) == EventHistory(controller=[BEGAN])
    note(tmp_path, "controller", COMMITTED)
    note(tmp_path, "learner-17", Welcomed(run="r", term=1, learner=2))
    found = next(noted)
    assert found.controller == [COMMITTED]
    assert [*found.learners] == ["learner-17"]
    assert not next(noted).controller


def test_a_damaged_line_is_an_error_that_names_it(tmp_path: Path) -> None:
    note(tmp_path, "controller", BEGAN, COMMITTED)
    path = tmp_path / "history" / "controller.jsonl"
    path.write_bytes(path.read_bytes().replace(b"committed", b"comitted"))
    with pytest.raises(FullrankError, match=r"controller\.jsonl, line 2, is not an event"):
        read_history(tmp_path)


def test_a_full_disk_ends_the_history_and_not_the_service(tmp_path: Path) -> None:
    event_log = EventLog(tmp_path, "controller")
    event_log.append(BEGAN)
    with no_room_beyond(100):
        event_log.append(COMMITTED)
    event_log.append(Acknowledged(term=1, head=1))
    assert read_history(tmp_path).controller == [BEGAN]
