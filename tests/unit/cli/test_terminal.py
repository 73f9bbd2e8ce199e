"""Text of others is printed as text; longer work shows its progress, in pipes and terminals."""

import io
import logging
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from rich.live import Live
from rich.table import Table
from tests.unit.runs.test_record import record

from fullrank.cli import progress
from fullrank.cli.progress import LineView, counting, view
from fullrank.cli.render import Moment, frames
from fullrank.cli.say import start_log
from fullrank.cli.status_view import headline, learners, picture
from fullrank.cli.terminal import Terminal
from fullrank.environments import make_environment
from fullrank.net.status import LearnerStatus, RunStatus, Status
from fullrank.runs.progress import LINE_PERIOD_S, ReferenceReturns

EVIL = "\x1b]0;owned\x07[bold red]x[/] :skull: \u202e"
SHOWN = r"\x1b]0;owned\x07[bold red]x[/] :skull: \u202e"


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch) -> tuple[Terminal, io.StringIO]:
    """A terminal of 300 columns, and all that it was sent."""
    file = io.StringIO()
    return Terminal(file=file, width=300, force_terminal=False), file


def hostile() -> RunStatus:
    learner = LearnerStatus(
        learner=0, host=EVIL, rows=(0,), fingerprint=EVIL, quarantined=EVIL,
        answered=False, silent_s=0.0, maps_table=False, batch_bytes=0, shares_memory=False,
    )  # fmt: skip
    return RunStatus(run=EVIL, message=EVIL, caveats=(EVIL,), learners=(learner,))


def test_lines_and_tables_of_a_status(printed: tuple[Terminal, io.StringIO]) -> None:
    terminal, file = printed
    for line in headline(Status(now=hostile())):
        terminal.print(line, highlight=False)
    terminal.print(learners(Status(now=hostile())))
    terminal.print(picture(Status(now=hostile())))
    assert "\x1b" not in file.getvalue()
    assert file.getvalue().count(SHOWN) >= 7


def test_titles_lines_and_live_views(printed: tuple[Terminal, io.StringIO]) -> None:
    terminal, file = printed
    table = Table(EVIL, title=EVIL, caption=EVIL)
    table.add_row(EVIL)
    LineView(terminal, iterations=1).say(f"{EVIL}\nfullrank: all is well")
    with Live(table, console=terminal):
        pass
    said = file.getvalue()
    assert "\x1b" not in said
    assert said.count(SHOWN) == 5
    assert r"\nfullrank: all is well" in said


def test_a_live_view_begins_without_iterations_and_shows_codes_if_asked_for() -> None:
    file = io.StringIO()
    terminal = Terminal(file=file, force_terminal=True, color_system=None, width=120)
    for coding in (False, True):
        shown = view(terminal, iterations=3, coding=coding)
        shown.say("waiting")
        shown.show([record(0, iteration_s=60.0)])
        shown.close()
        assert ("kappa" in file.getvalue()) == coding
    assert "2 min left" in file.getvalue()
    assert "1/3" in file.getvalue()


def test_a_live_view_shows_the_place_of_the_return_below_its_table() -> None:
    file = io.StringIO()
    terminal = Terminal(file=file, force_terminal=True, color_system=None, width=120)
    shown = view(terminal, iterations=3, coding=False)
    shown.compare(ReferenceReturns(random=-900.0, good=-400.0, greedy=-600.0, iterations=1))
    shown.show([record(0, iteration_s=60.0)])
    shown.close()
    assert "(random -900.0 ... good -400.0, " in file.getvalue()
    assert "greedy -600.0 after 1 (60%)" in file.getvalue()


def test_a_pipe_gets_progress_of_a_warm_up_at_intervals_and_other_news_at_once() -> None:
    file, clock = io.StringIO(), Clock()
    shown = LineView(Terminal(file=file, width=120), iterations=3, clock=clock)
    for rows in ("100", "1,300", "2,000"):
        shown.say(f"warm-up: {rows} of 2,000 transitions")
        clock.now_s += LINE_PERIOD_S / 2
    shown.say("training in here")
    assert file.getvalue().splitlines() == [
        "warm-up: 100 of 2,000 transitions",
        "warm-up: 2,000 of 2,000 transitions",
        "training in here",
    ]


def test_an_error_is_one_plain_line(fullrank: Any) -> None:
    outcome = fullrank("eval", f"runs/{EVIL}\nfullrank: all is well")
    assert outcome.code == 1
    assert "\x1b" not in outcome.error
    assert outcome.error.count("\n") == 1


def test_a_log_holds_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    file = io.StringIO()
    handler = logging.StreamHandler(file)
    monkeypatch.setattr(logging, "basicConfig", lambda **_: None)
    start_log(handler)
    try:
        raise ValueError(EVIL)
    except ValueError:
        record = logging.LogRecord("x", 20, "", 1, "reason=%s", (f"{EVIL}\n",), sys.exc_info())
    handler.handle(record)
    first, *rest = file.getvalue().splitlines()
    assert first.endswith(rf"reason={SHOWN}\n")
    assert rest[0].startswith("Traceback")
    assert "\x1b" not in file.getvalue()


def test_a_picture_s_title_is_no_formula() -> None:
    environment: Any = make_environment("cooperative_navigation", copies=1)
    environment.reset([0], [0])
    moment = Moment(environment.scene(0), {r"$\nothing{$": 1.0})
    assert len([*frames([moment], title=rf"{EVIL} $\frac{{$")]) == 1


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
    assert error.splitlines() == ["playing episodes: 2 of 5", "playing episodes: 4 of 5"]


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
    assert "playing episodes: 5 of 5" in error
