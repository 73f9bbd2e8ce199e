"""The dashboard's view of a run: curves, costs, a log, and increments of new data alone."""

import asyncio
import json
import os
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.runs.test_record import record, write
from tests.unit.runs.test_time_budget import timed
from tests.waiting import WAIT_S

from fullrank.common.errors import (
    AddressInUse,
    ConfigError,
    EnvironmentFailed,
    FullrankError,
    Malformed,
    NotFound,
    ServiceLost,
)
from fullrank.common.types import JSON, Interval
from fullrank.config import RunConfig, load, to_toml
from fullrank.config.tree import TlsSettings
from fullrank.host.process import Launch
from fullrank.net.monitor_messages import decode_setup
from fullrank.net.status import (
    CollectorStatus,
    ContainerStatus,
    LearnerStatus,
    RunState,
    RunStatus,
    Setup,
)
from fullrank.runs.ending import failed, write_ending
from fullrank.runs.evaluations import EvaluationRecord, append
from fullrank.runs.record import METRICS, Condemnation, IterationRecord, read_records
from fullrank.sinks import JsonLines
from fullrank.stragglers import FixedK
from fullrank.v1 import monitor_pb2 as pb
from fullrank_dashboard.following import Following
from fullrank_dashboard.server import PageState, _messages, serve
from fullrank_dashboard.view import Curve, RunView, of_records, of_statuses, saved_s


@given(values=st.lists(st.none() | st.integers(-9, 9), min_size=1, max_size=200))
def test_a_curve_keeps_few_points_and_every_point_is_the_mean_of_its_iterations(
    values: list[int | None],
) -> None:
    curve = Curve(limit=16)
    for iteration, value in enumerate(values):
        curve.extend(iteration, {"return": value, "one": 1.0})
    assert len(curve) <= 16
    points = [values[start : start + curve.width] for start in range(0, len(values), curve.width)]
    known = [[value for value in point if value is not None] for point in points]
    expected = [float(f"{np.mean(point):.6g}") if point else None for point in known]
    assert curve.columns(0).get("return", [None] * len(points)) == pytest.approx(expected)
    assert curve.total("one") == len(values)


def test_what_is_committed_again_supersedes_what_was_there() -> None:
    view = RunView("run")
    view.committed(record(iteration, return_mean=1.0) for iteration in range(4))
    view.committed([record(2, term=2, return_mean=5.0)])
    assert view.curve.columns(0)["return/mean"] == [1.0, 1.0, 5.0]
    assert (view.find(3), view.last) == (None, view.find(2))
    assert view.facts()["log"][0]["text"] == "iterations 2 to 3 do not stand"


def test_evaluations_are_told_when_they_come_and_when_they_are_superseded() -> None:
    view, state = RunView("run"), PageState()
    view.committed(map(record, range(3)))
    interval = Interval(1.0, 0.0, 2.0)
    view.evaluated(
        [EvaluationRecord(iteration=2, term=1, returns=interval, sides={"prey": interval})]
    )

    def evaluations() -> list[JSON]:
        news = state.news(view)
        assert news is not None
        found: list[JSON] = news.get("evaluations", [])
        return found

    assert view.facts()["references"] == {}
    (shown,) = evaluations()
    assert (shown["iteration"], shown["superseded"]) == (2, False)
    assert shown["return/mean"] == shown["return/prey"] == interval
    view.committed([record(3)])
    assert evaluations() == []
    view.committed([record(1, term=2)])
    assert [each["superseded"] for each in evaluations()] == [True]


def test_returns_are_compared_with_those_of_the_references_played_last() -> None:
    view, low, high = RunView("run"), Interval(1.0, 0.0, 2.0), Interval(3.0, 2.0, 4.0)
    plain = EvaluationRecord(iteration=1, returns=low, sides={})
    random = replace(plain, returns=high, sides={"prey": low}, win_rate=high)
    view.evaluated([replace(plain, references={"random": random}), replace(plain, iteration=2)])
    expected = {"return/mean": 3.0, "return/prey": 1.0, "win_rate": 3.0}
    assert view.facts()["references"] == {"random": expected}


def test_wins_are_shown_beside_returns_where_there_are_any() -> None:
    view, interval = RunView("run"), Interval(0.5, 0.4, 0.6)
    view.committed([record(0, win_rate=0.25), record(1), record(2, win_rate=0.75)])
    played = EvaluationRecord(iteration=2, term=1, returns=interval, sides={}, win_rate=interval)
    view.evaluated([played])
    assert view.curve.columns(0)["win_rate"] == [0.25, None, 0.75]
    assert view.facts()["status"]["win_rate"] == 0.5
    assert view.evaluations()[0]["win_rate"] == interval
    without = RunView("run")
    without.committed([record(0)])
    assert without.facts()["status"]["win_rate"] is None
    assert "win_rate" not in without.curve.columns(0)


async def test_evaluations_of_a_run_are_seen_and_a_damaged_file_is_said_once(
    tmp_path: Path,
) -> None:
    (tmp_path / "config.toml").write_text(to_toml(RunConfig()))
    interval = {"mean": 1.0, "low": 0.0, "high": 2.0}
    of_all = {**interval, "sides": {}, "win_rate": interval}
    append(tmp_path, {"iteration": 9, "term": 1, "trained": of_all, "good": of_all})
    following = Following(str(tmp_path), TlsSettings())
    with pytest.raises(ServiceLost):
        await following.look()
    assert [each["iteration"] for each in following.view.evaluations()] == [9]
    assert following.view.facts()["references"] == {"good": {"return/mean": 1.0, "win_rate": 1.0}}
    append(tmp_path, {})
    with pytest.raises(FullrankError, match="is damaged"):
        await following.look()
    with pytest.raises(ServiceLost):
        await following.look()


def test_a_late_learner_would_have_come_its_delay_after_the_middle_one() -> None:
    late = timed(decodable_s=7.5)  # arrivals: 0.4 and 7.5; learner 1 is late
    assert saved_s(late, np.zeros(4)) == pytest.approx(0.5)  # at least until the round's end
    assert saved_s(late, np.array([0.0, 30.0, 0.0, 0.0])) == pytest.approx(30.0 + 3.95 - 7.5)
    assert saved_s(timed(decodable_s=7.5, late=()), np.zeros(4)) == 0.0


def test_a_run_that_delays_its_learners_tells_what_waiting_would_have_cost() -> None:
    view = RunView("run")
    view.is_of(replace(RunConfig(), seed=0, learners=4), FixedK(k=4, delay_s=30.0))
    view.committed([timed(decodable_s=7.5, arrival_s={0: 37.5, 3: 30.4})])
    assert view.facts()["totals"]["saved_s"] == pytest.approx(33.95 - 7.5)


def test_the_story_tells_restarts_new_codes_wrong_contributions_and_inexact_rounds() -> None:
    before = record(4)
    now = record(5, term=2, epoch=3, attempt=1, quarantined=(2,), exact=False, error_bound=1e-9)
    texts = [entry.text for entry in of_records(before, now)]
    assert texts[0] == "the controller started again: term 2"
    assert texts[1].startswith("code assigned, epoch 3: cyclic")
    assert texts[2:] == [
        "rows were assigned again within the iteration",
        "learner 2 sent a wrong contribution and was left out",
        "inexact: no entry is off by more than 1.0e-09",
    ]
    assert list(of_records(before, record(5))) == []


def _status(*learners: int, **changes: object) -> RunStatus:
    attached = tuple(
        LearnerStatus(
            learner=each,
            host="here",
            rows=(each,),
            answered=False,
            silent_s=0.0,
            maps_table=False,
            batch_bytes=0,
            shares_memory=False,
            quarantined="",
            fingerprint="f",
        )
        for each in learners
    )
    return RunStatus(learners=attached, **changes)  # type: ignore[arg-type]


def test_the_story_tells_who_joined_and_left_and_that_a_run_stalled() -> None:
    stalled = _status(1, 2, state=RunState.STALLED, message="rank 2 of 3")
    texts = [entry.text for entry in of_statuses(_status(0, 1), stalled)]
    assert texts == ["learner 2 joined from here", "learner 0 left", "stalled: rank 2 of 3"]
    assert list(of_statuses(None, stalled)) == []


def test_collectors_are_shown_with_what_they_play() -> None:
    collector = CollectorStatus(
        collector=1,
        host="there",
        fingerprint="f",
        spare="",
        blocks=7,
        block=(5, 2),
        playing_s=0.25,
        lag=1,
        silent_s=0.0,
        failed="",
    )
    view = RunView("run")
    assert view.facts()["status"]["collectors"] == []
    view.stands(replace(_status(0), collectors=(collector,)), None)
    (shown,) = view.facts()["status"]["collectors"]
    assert (shown["state"], shown["blocks"], shown["lag"]) == ("block 2 of 5 for 0.2 s", 7, 1)
    assert replace(collector, spare="other numerics").activity == "spare: other numerics"
    assert replace(collector, block=None).activity == "idle"
    assert shown["container"] is None
    facts = ContainerStatus(played=50, handed_over=30, updates=9, published=8, divergence=0.25)
    view.stands(
        replace(_status(0), collectors=(replace(collector, stale=2, container=facts),)), None
    )
    (shown,) = view.facts()["status"]["collectors"]
    assert (shown["stale"], shown["container"]) == (2, asdict(facts))


def test_a_page_is_told_what_is_new_and_all_of_it_after_a_condemnation() -> None:
    view, state = RunView("run"), PageState()
    view.committed(record(iteration, return_mean=float(iteration)) for iteration in range(3))

    def points() -> tuple[int, list[float]]:
        news = state.news(view)
        assert news is not None
        return news["curve"]["start"], news["curve"]["columns"]["return/mean"]

    assert points() == (0, [0.0, 1.0, 2.0])
    assert state.news(view) is None
    view.committed([record(3, return_mean=3.0)])
    assert points() == (2, [2.0, 3.0])
    view.committed([record(1, term=2, return_mean=9.0)])
    assert points() == (0, [0.0, 9.0])


async def test_a_run_without_a_controller_is_shown_as_it_was_written(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(to_toml(RunConfig()))
    write(tmp_path / METRICS, *map(record, range(3)))
    following = Following(str(tmp_path), TlsSettings())
    with pytest.raises(ServiceLost, match="has no controller"):
        await following.look()
    assert following.view.last == record(2)
    assert await following.find(1) == record(1)
    with pytest.raises(NotFound):
        await following.find(7)


async def test_what_was_committed_again_while_no_controller_answered_supersedes_what_was_read(
    tmp_path: Path,
) -> None:
    (tmp_path / "config.toml").write_text(to_toml(RunConfig()))
    write(tmp_path / METRICS, *(record(each, return_mean=1.0) for each in range(4)))
    interval = {"mean": 1.0, "low": 0.0, "high": 2.0}
    append(tmp_path, {"iteration": 3, "term": 1, "trained": {**interval, "sides": {}}})
    following = Following(str(tmp_path), TlsSettings())
    with pytest.raises(ServiceLost):
        await following.look()
    sink = JsonLines(tmp_path / METRICS)
    sink.write(Condemnation(condemned=2, term=2))
    for each in range(2, 6):
        sink.write(record(each, term=2, return_mean=5.0))
    sink.close()
    with pytest.raises(ServiceLost):
        await following.look()
    view = following.view
    assert view.curve.columns(0)["return/mean"] == [1.0, 1.0, 5.0, 5.0, 5.0, 5.0]
    assert [view.find(each) for each in (1, 2)] == [
        record(1, return_mean=1.0),
        record(2, term=2, return_mean=5.0),
    ]
    assert [each["superseded"] for each in view.evaluations()] == [True]


async def test_the_numbers_of_a_run_that_stands_still_are_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.toml").write_text(to_toml(RunConfig()))
    write(tmp_path / METRICS, record(0))
    reads: list[Path] = []

    def counted(path: Path) -> list[IterationRecord]:
        reads.append(path)
        return read_records(path)

    monkeypatch.setattr("fullrank_dashboard.following.read_records", counted)
    following = Following(str(tmp_path), TlsSettings())
    for more in (False, False, True):
        if more:
            write(tmp_path / METRICS, record(0), record(1))
        with pytest.raises(ServiceLost):
            await following.look()
    assert (len(reads), following.view.last) == (2, record(1))


def test_a_page_gets_places_on_every_axis_and_the_settings_once() -> None:
    view, state = RunView("run"), PageState()
    view.is_of(RunConfig(), FixedK(k=0, delay_s=0.0))
    view.committed(
        record(each, statistics={"env_steps": 200.0 * each}, iteration_s=spent_s)
        for each, spent_s in enumerate((None, 0.5))
    )
    news = state.news(view)
    assert news is not None
    columns = news["curve"]["columns"]
    assert columns["env_steps"] == [0.0, 200.0]
    assert columns["time/iteration_s"] == [0.375, 0.5]  # collection and round, where not measured
    assert news["settings"]["seed"] == "0"
    assert news["settings"]["environment.name"] == news["environment"]
    view.committed([record(2)])
    assert "settings" not in (state.news(view) or {})


async def test_a_run_that_has_failed_is_shown_with_its_reason_when_nothing_runs(
    tmp_path: Path,
) -> None:
    (tmp_path / "config.toml").write_text(to_toml(RunConfig()))
    write(tmp_path / METRICS, *map(record, range(3)))
    write_ending(tmp_path, failed(EnvironmentFailed("it raised"), committed=3, settings=""))
    following = Following(str(tmp_path), TlsSettings())
    assert await following.look()
    assert await following.look()  # and stays so
    facts = following.view.facts()
    assert (facts["problem"], facts["status"]["state"]) == ("", RunState.FAILED)
    assert facts["status"]["message"] == "it raised"
    assert following.view.last == record(2)
    assert "failed: it raised" in [line["text"] for line in facts["log"]]


def _launch(address: str, **options: object) -> Launch:
    given = {"dashboard.address": address, "dashboard.runs": ["127.0.0.1:1"], **options}
    return Launch(resolved=load(options=given))


async def test_the_page_is_not_served_beyond_loopback_unless_that_is_allowed() -> None:
    stop = asyncio.Event()
    with pytest.raises(ConfigError, match=r"refusing to serve the page at 0\.0\.0\.0:0"):
        await serve(_launch("0.0.0.0:0"), stop)
    stop.set()
    await serve(_launch("0.0.0.0:0", **{"tls.allow_plaintext": True}), stop)


async def test_a_port_that_is_taken_is_said_in_one_line() -> None:
    async with await asyncio.start_server(lambda *_: None, "127.0.0.1", 0) as taken:
        port = taken.sockets[0].getsockname()[1]
        with pytest.raises(AddressInUse, match=str(port)):
            await serve(_launch(f"127.0.0.1:{port}"), asyncio.Event())


def test_an_iteration_far_ahead_takes_no_memory() -> None:
    curve = Curve(limit=16)
    curve.extend(0, {"return": 1.0})
    curve.extend(2**62, {"return": 3.0})
    assert len(curve) <= 16
    assert curve.total("return") == 4.0


def test_more_numbers_than_a_run_has_are_refused() -> None:
    view = RunView("run")
    with pytest.raises(Malformed, match="more than 128 different numbers"):
        view.committed(record(n, statistics={f"{n}": 1.0}) for n in range(200))


async def test_whatever_goes_wrong_with_a_run_stands_in_its_card_and_it_is_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    following, tries, again = Following(str(tmp_path), TlsSettings()), 0, asyncio.Event()

    async def look() -> bool:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise MemoryError("Unable to allocate 9 EiB\nfor nothing")
        again.set()
        return False

    following.look = look  # type: ignore[method-assign]
    task = asyncio.create_task(following.follow())
    try:
        await asyncio.wait_for(again.wait(), WAIT_S)
    finally:
        task.cancel()
    assert following.view.problem.startswith("it cannot be shown: MemoryError: Unable to ")
    assert "\n" not in following.view.problem
    assert len(caplog.records) == 1


def test_a_view_that_cannot_be_written_spoils_its_own_card_alone() -> None:
    good, bad = RunView("good"), RunView("bad")
    for view in (good, bad):
        view.stands(_status(), None)
    bad.away("")
    bad.facts = lambda: {"round": float("nan")}  # type: ignore[method-assign]
    states = [PageState(), PageState()]
    first, second = (json.loads(event[6:]) for event in _messages([bad, good], states))
    assert (first["name"], first["problem"]) == (
        "bad",
        "it cannot be shown: ValueError: Out of range float values are not JSON compliant",
    )
    assert (second["name"], second["problem"]) == ("good", "")
    assert list(_messages([bad, good], states)) == []


@pytest.mark.parametrize("path", ["/dev/zero", "fifo"])
def test_the_page_opens_no_file_that_a_monitor_names(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "fifo")
    theirs = load(options={"stragglers.name": "trace", "stragglers.path": str(tmp_path / path)})
    answer = pb.GetConfigurationResponse(configuration=to_toml(theirs.config))

    class Monitor:
        def __init__(self, address: str, **_: object) -> None:
            self.address = address

        async def setup(self) -> Setup:
            return decode_setup(answer)

    monkeypatch.setattr("fullrank_dashboard.following.AsyncMonitor", Monitor)
    following = Following("10.0.0.9:5000", TlsSettings())
    asyncio.run(following._dial())
    assert following.view.facts()["environment"] == "cooperative_navigation"
