"""A final failure of a run is recorded; an outage of replay is its state while it lasts."""

import asyncio
from contextlib import closing
from pathlib import Path

import pytest
from tests.waiting import WAIT_S

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
from fullrank.common.types import RunTerm
from fullrank.config import RunConfig, load
from fullrank.host.process import first, is_set
from fullrank.host.run_directory import announce, lock_run
from fullrank.runs.ending import failed, read_ending
from fullrank.v1 import controller_pb2 as pb
from fullrank_controller.epilogue import Epilogue, record_failure
from fullrank_controller.persistence.run_directory import hold
from fullrank_controller.progress import RunProgress
from fullrank_controller.server import ensure_in_place

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


@pytest.fixture
def epilogue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Epilogue:
    """The end of a run of which neither learners nor collectors ask."""

    async def unasked(_: Epilogue) -> None: ...

    monkeypatch.setattr(Epilogue, "unasked", unasked)
    ending = failed(EnvironmentFailed("why"), committed=1, settings="")
    (tmp_path / "run.json").write_text('{"run": "a", "term": 3}')
    config = load(overrides=["controller.heartbeat_s=0.001", "replay.address=127.0.0.1:1"]).config
    return Epilogue(ending, config, tmp_path)


async def test_replay_hears_of_the_end_when_it_comes_back_after_all_others(
    epilogue: Epilogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    async def close_run(address: str, run_term: RunTerm, **_: object) -> None:
        calls.append(run_term)
        if len(calls) < 3:
            raise ServiceLost("it is away")

    monkeypatch.setattr("fullrank_controller.epilogue.close_run", close_run)
    await asyncio.wait_for(epilogue.heard(), WAIT_S)
    assert calls == [RunTerm("a", 3)] * 3


async def test_a_controller_that_is_told_to_stop_says_that_replay_has_not_heard_of_the_end(
    epilogue: Epilogue, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stop = asyncio.Event()

    async def close_run(*_: object, **__: object) -> None:
        stop.set()
        raise ServiceLost("it is away")

    monkeypatch.setattr("fullrank_controller.epilogue.close_run", close_run)
    await asyncio.wait_for(first(is_set(stop), epilogue.heard()), WAIT_S)
    assert "replay_not_told reason=it is away" in caplog.text


def test_an_outage_hides_the_state_that_goes_on_below_it() -> None:
    progress = RunProgress()
    progress.run()
    assert progress.interrupt("waiting for replay")
    assert not progress.interrupt("waiting for replay: no answer")  # said before
    progress.stall("waiting for learners")  # rounds have states of their own
    progress.run("one learner is late")
    assert (progress.state, progress.message) == (
        pb.RUN_STATE_STALLED,
        "waiting for replay: no answer",
    )
    assert not progress.interrupt("")
    assert (progress.state, progress.message) == (pb.RUN_STATE_RUNNING, "one learner is late")


def test_a_service_that_listens_elsewhere_is_not_waited_for(tmp_path: Path) -> None:
    anywhere, dialled = "127.0.0.1:0", "127.0.0.1:4711"
    ensure_in_place(anywhere, tmp_path, dialled)  # it has withdrawn, and may come back
    announce(tmp_path, "replay", dialled)
    ensure_in_place(anywhere, tmp_path, dialled)
    announce(tmp_path, "replay", "127.0.0.1:4712")
    with pytest.raises(ServiceLost, match=r"listens on 127\.0\.0\.1:4712 now, and not on"):
        ensure_in_place(anywhere, tmp_path, dialled)
    ensure_in_place(dialled, tmp_path, dialled)  # a port that stays
