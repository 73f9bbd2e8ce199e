"""A run that has ended is shown from its directory: no service runs any more."""

import io
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.unit.runs.test_record import record, write

from fullrank.cli.locate import dial
from fullrank.cli.run import Screen, order, polled, status
from fullrank.cli.terminal import Terminal
from fullrank.common.errors import EnvironmentFailed, ServiceLost
from fullrank.config import RunConfig, to_toml
from fullrank.host.run_directory import announce, lock_launch
from fullrank.net.status import RunState, RunStatus
from fullrank.runs.ending import failed, keep_caveat, write_ending
from fullrank.runs.record import METRICS, Condemnation, IterationRecord
from fullrank.runs.verdicts import Party, RunVerdict, write_verdicts
from fullrank.sinks import JsonLines


@pytest.fixture
def run(tmp_path: Path) -> str:
    """The directory of a run of three committed iterations."""
    (tmp_path / "config.toml").write_text(to_toml(RunConfig()))
    write(tmp_path / METRICS, *map(record, range(3)))
    return str(tmp_path)


def fail(run: str) -> None:
    error = EnvironmentFailed("the physics exploded")
    write_ending(Path(run), failed(error, committed=3, settings=""))


def test_status_tells_why_a_run_has_failed(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    fail(run)
    status(run)
    shown = capsys.readouterr().out
    assert ": failed, 3 of " in shown
    assert "the physics exploded (exit code 3)" in shown


def test_status_repeats_what_an_ended_run_has_lost(
    run: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fail(run)
    keep_caveat(Path(run), "replay lost rows before iteration 1")
    party = Party(learner=2, host="node", process="abcd")
    convicted = RunVerdict(kind="convicted", term=1, iteration=1, reason="it lied", party=party)
    write_verdicts(Path(run), [convicted])
    status(run)
    shown = capsys.readouterr().out
    assert "replay lost rows before iteration 1" in shown
    assert str(convicted) in shown


def test_follow_ends_with_a_failed_run(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    fail(run)
    status(run, follow=True)
    assert capsys.readouterr().out


def test_a_follower_receives_each_iteration_of_an_ended_run_once(run: str) -> None:
    fail(run)
    ((now, new),) = polled(run, None, pytest.fail)
    assert (now.state, [each.iteration for each in new]) == (RunState.FAILED, [0, 1, 2])


def test_a_run_that_may_go_on_has_no_controller(run: str) -> None:
    with pytest.raises(ServiceLost, match="`fullrank run resume"):
        dial(run, None)


def test_a_run_in_one_process_takes_no_orders(run: str) -> None:
    with lock_launch(Path(run)):
        announce(Path(run), "monitor", "127.0.0.1:1")
        with pytest.raises(ServiceLost, match=r"takes no orders: .*run stop .*run resume"):
            order(run, "checkpoint")
    with pytest.raises(ServiceLost, match="has no controller"):
        order(run, "checkpoint")


def test_a_finished_run_has_no_controller(run: str) -> None:
    Path(run, "config.toml").write_text(to_toml(RunConfig(iterations=3)))
    with pytest.raises(ServiceLost, match="is finished after 3 iterations and has no controller"):
        dial(run, None)


class Answering:
    """A monitor that answers polls with what each of them finds, and then is away."""

    def __init__(self, *polls: Callable[[], tuple[RunStatus, list[IterationRecord]]]) -> None:
        self._polls = iter(polls)
        self._records = list[IterationRecord]()

    def __enter__(self) -> "Answering":
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def status(self) -> RunStatus:
        for poll in self._polls:
            now, self._records = poll()
            return now
        raise ServiceLost("it is away")

    def watch(self, first: int, *, seen_term: int = 0, **_: object) -> Iterator[IterationRecord]:
        return (
            each for each in self._records if each.iteration >= first or each.term > seen_term > 0
        )


def dialled(monitor: Answering, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fullrank.cli.locate.dial", lambda *_: monitor)
    monkeypatch.setattr("fullrank.cli.run.PERIOD_S", 0.0)


def test_a_follower_receives_what_was_committed_again_while_the_controller_was_away(
    run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = [record(each) for each in range(3)]
    dialled(Answering(lambda: (RunStatus(committed=3), seen)), monkeypatch)
    polls = polled(run, None, pytest.fail)
    assert next(polls)[1] == seen
    sink = JsonLines(Path(run) / METRICS)
    sink.write(Condemnation(condemned=1, term=2))
    for each in range(1, 4):
        sink.write(record(each, term=2))
    sink.close()
    fail(run)
    ((_, new),) = polls
    assert [(each.iteration, each.term) for each in new] == [(1, 2), (2, 2), (3, 2)]


def test_a_follower_receives_another_run_from_its_start(
    run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = [record(each) for each in range(5)], [record(each) for each in range(3)]
    runs = (RunStatus(run="old", committed=5), old), (RunStatus(run="new", committed=3), new)
    dialled(Answering(lambda: runs[0], lambda: runs[1]), monkeypatch)
    fail(run)  # an end of a third run, without a name
    assert [found for _, found in polled(run, None, pytest.fail)] == [old, new, new]


def test_the_live_view_shows_another_run_alone() -> None:
    console = Terminal(file=io.StringIO(), force_terminal=True, width=100)
    screen = Screen(console)
    screen.show([record(each) for each in range(5)], RunStatus(run="old"))
    screen.show([record(each, return_mean=7.0) for each in range(3)], RunStatus(run="new"))
    screen.close()
    assert [each.return_mean for each in screen._records] == [7.0] * 3
