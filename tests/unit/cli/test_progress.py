"""Progress of shorter work: lines at intervals in a pipe, a live line in a terminal."""

from collections.abc import Callable
from functools import partial

import pytest

from fullrank.cli import progress
from fullrank.cli.progress import counting
from fullrank.cli.terminal import Terminal
from fullrank.runs.progress import LINE_PERIOD_S


class Clock:
    """Seconds that pass at the test's word."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def play(told: Callable[[int], None], clock: Clock, *, step_s: float) -> None:
    for done in range(1, 6):
        clock.now_s += step_s
        told(done)


def test_a_pipe_gets_a_line_at_intervals_on_standard_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    clock = Clock()
    with counting("playing", 5, "episodes", clock=clock) as told:
        play(told, clock, step_s=LINE_PERIOD_S / 2)
    output, error = capsys.readouterr()
    assert output == ""
    assert error.splitlines() == ["playing 5 episodes: 2", "playing 5 episodes: 4"]


def test_quick_work_says_nothing_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    with counting("playing", 5, "episodes", clock=clock) as told:
        play(told, clock, step_s=LINE_PERIOD_S / 10)
    assert capsys.readouterr() == ("", "")


def test_a_terminal_shows_the_work_at_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "Terminal", partial(Terminal, force_terminal=True, width=80))
    clock = Clock()
    with counting("playing", 5, "episodes", clock=clock) as told:
        play(told, clock, step_s=0.0)
    output, error = capsys.readouterr()
    assert output == ""
    assert "playing 5 episodes" in error
