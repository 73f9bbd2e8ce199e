"""A process whose controller is away dials for ever, and says so at growing intervals."""

import pytest

from fullrank.net.attachment import LONGEST_LINE_S, Sparsely


class Log:
    """Lines, and a clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 0.0
        self.lines: list[str] = []

    def say(self, line: str, *words: object) -> None:
        self.lines.append(line % words)


@pytest.fixture
def log() -> Log:
    return Log()


def fail(sparsely: Sparsely, log: Log, *, attempts: int, every_s: float) -> None:
    for _ in range(attempts):
        sparsely.failed(ConnectionError("away"))
        log.now += every_s


def test_160_attempts_in_four_minutes_are_seven_lines(log: Log) -> None:
    fail(Sparsely(log.say, lambda: log.now), log, attempts=160, every_s=1.5)
    assert len(log.lines) == 7
    assert log.lines[0] == "dialling_again attempts=1 reason=away"
    assert log.lines[-1].startswith("dialling_again attempts=")


def test_a_controller_that_is_lost_anew_is_named_at_once(log: Log) -> None:
    sparsely = Sparsely(log.say, lambda: log.now)
    fail(sparsely, log, attempts=160, every_s=1.5)
    log.now += LONGEST_LINE_S
    sparsely.failed(ConnectionError("away again"))
    assert log.lines[-1] == "dialling_again attempts=1 reason=away again"


def test_days_without_a_controller_are_a_line_every_ten_minutes(log: Log) -> None:
    fail(Sparsely(log.say, lambda: log.now), log, attempts=43200, every_s=2.0)
    assert len(log.lines) < 1.1 * 86400 / LONGEST_LINE_S + 12
