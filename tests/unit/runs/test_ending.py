"""A run directory tells how its run has ended, and forgets it when the run goes on."""

import json
from pathlib import Path

import pytest

from fullrank.common.errors import (
    EnvironmentFailed,
    FullrankError,
    Malformed,
    ServiceLost,
    of_exit_code,
)
from fullrank.net.status import RunState, ended_status
from fullrank.runs.ending import failed, read_ending, write_ending


def test_an_ending_is_read_as_it_was_written_beside_the_identity(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(json.dumps({"format": 1, "run": "a", "term": 3}))
    ending = failed(EnvironmentFailed("it raised"), committed=7, settings="abc")
    write_ending(tmp_path, ending)
    assert read_ending(tmp_path) == ending
    assert json.loads((tmp_path / "run.json").read_text())["term"] == 3
    status = ended_status(tmp_path)
    assert status is not None
    assert (status.state, status.message, status.exit_code) == (RunState.FAILED, "it raised", 3)
    assert (status.run, status.term, status.committed) == ("a", 3, 7)


@pytest.mark.parametrize(
    "content",
    ["", "{}", "[]", "null", '{"ending": 3}', '{"ending": {"state": "asleep"}}', '{"ending": {}}'],
)
def test_any_other_file_tells_of_no_ending(tmp_path: Path, content: str) -> None:
    (tmp_path / "run.json").write_text(content)
    assert read_ending(tmp_path) is None
    assert ended_status(tmp_path) is None


def test_a_damaged_identity_is_named_and_tells_of_no_end(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text(json.dumps({"format": 1, "run": "a", "term": "abc"}))
    write_ending(tmp_path, failed(EnvironmentFailed("it raised"), committed=7, settings="abc"))
    with pytest.raises(Malformed, match=f"{path}: term"):
        ended_status(tmp_path)


def test_an_exit_code_names_the_error_of_another_process() -> None:
    for error in (each for each in FullrankError.__subclasses__() if each.exit_code > 1):
        assert type(of_exit_code(error.exit_code, "why")) is error
    assert {type(of_exit_code(code, "why")) for code in (0, 1, 99, 130, -9)} == {ServiceLost}
