"""A run that has ended is shown from its directory: no service runs any more."""

from pathlib import Path

import pytest
from tests.unit.runs.test_record import record, write

from fullrank.cli.locate import dial
from fullrank.cli.run import polled, status
from fullrank.common.errors import EnvironmentFailed, ServiceLost
from fullrank.config import RunConfig, to_toml
from fullrank.net.status import RunState
from fullrank.runs.ending import failed, keep_caveat, write_ending
from fullrank.runs.record import METRICS
from fullrank.runs.verdicts import Party, RunVerdict, write_verdicts


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


def test_a_finished_run_has_no_controller(run: str) -> None:
    Path(run, "config.toml").write_text(to_toml(RunConfig(iterations=3)))
    with pytest.raises(ServiceLost, match="is finished after 3 iterations and has no controller"):
        dial(run, None)
