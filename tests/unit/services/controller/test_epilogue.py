"""The failure of a run is recorded where it is final, and where no other controller is at work."""

from contextlib import closing
from pathlib import Path

import pytest

from fullrank.common.errors import (
    ConfigError,
    Corrupted,
    EnvironmentFailed,
    FullrankError,
    NotDecodable,
    RunDirectoryInUse,
    ServiceLost,
    StaleTerm,
    StorageFailed,
    Stuck,
    Unsound,
)
from fullrank.config import RunConfig
from fullrank.host.run_directory import lock_run
from fullrank.runs.ending import read_ending
from fullrank_controller.epilogue import record_failure
from fullrank_controller.persistence.run_directory import hold

CONFIG = RunConfig()


@pytest.mark.parametrize(
    "error",
    [
        ConfigError("why"),
        EnvironmentFailed("why"),
        NotDecodable("why"),
        Corrupted("why"),
        Unsound("why"),
    ],
)
def test_a_final_error_is_the_end_of_the_run_until_it_begins_again(
    tmp_path: Path, error: FullrankError
) -> None:
    with hold(tmp_path, CONFIG).lock:
        pass
    ending = record_failure(error, CONFIG, tmp_path)
    assert ending is not None
    assert ending == read_ending(tmp_path)
    assert (ending.reason, ending.exit_code) == ("why", error.exit_code)
    with hold(tmp_path, CONFIG).lock:
        assert read_ending(tmp_path) is None


@pytest.mark.parametrize(
    "error",
    [
        ServiceLost("why"),
        StorageFailed("why"),
        RunDirectoryInUse("why"),
        StaleTerm("why"),
        Stuck("why"),
    ],
)
def test_an_error_that_a_restart_may_cure_ends_no_run(tmp_path: Path, error: FullrankError) -> None:
    assert record_failure(error, CONFIG, tmp_path) is None
    assert read_ending(tmp_path) is None


def test_no_failure_is_recorded_beside_a_controller_at_work(tmp_path: Path) -> None:
    with closing(lock_run(tmp_path)):
        assert record_failure(ConfigError("why"), CONFIG, tmp_path) is None
    assert read_ending(tmp_path) is None


def test_a_directory_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    assert record_failure(ConfigError("why"), CONFIG, tmp_path / "missing") is None
    assert not (tmp_path / "missing").exists()
