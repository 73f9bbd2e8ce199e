"""A phase that takes far too long is named and aborted with its stacks; others are not."""

import threading
from pathlib import Path

import pytest
from tests.waiting import WAIT_S

from fullrank.common.deadlines import MEASURED
from fullrank.common.errors import Stuck
from fullrank_controller.watchdog import Watchdog


def test_what_is_stuck_is_named_shown_and_ended(tmp_path: Path) -> None:
    ended = threading.Event()
    reasons: list[Stuck] = []

    def end(reason: Stuck) -> None:
        reasons.append(reason)
        ended.set()

    stacks = tmp_path / "stacks-1.txt"
    watchdog = Watchdog(
        stacks, where=lambda: "iteration 7 of 9", least_s=0.01, most_s=0.01, end=end
    )
    with watchdog, watchdog.phase("playing"):
        assert ended.wait(WAIT_S)
    (reason,) = reasons
    assert str(reason).startswith("playing has taken")
    assert "iteration 7 of 9" in str(reason)
    assert "test_what_is_stuck_is_named_shown_and_ended" in stacks.read_text()


class Passing:
    """Time that passes while a watchdog waits for its next check, until ``until_s``."""

    def __init__(self, until_s: float) -> None:
        self._until_s, self.now_s = until_s, 0.0

    def monotonic(self) -> float:
        """Return the time."""
        return self.now_s

    def wait(self, seconds: float) -> bool:
        """Let time pass; returns whether the watchdog is to stop."""
        self.now_s += seconds
        return self.now_s > self._until_s


@pytest.mark.parametrize(
    ("measured_s", "limit_s"), [([], 600.0), ([20.0], 400.0), ([0.01], 30.0), ([60.0], 600.0)]
)
def test_a_slow_phase_ends_at_its_limit_and_not_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, measured_s: list[float], limit_s: float
) -> None:
    """The limit is twenty times what the phase took before, between two that are set."""

    def reasons(lasting_s: float) -> list[Stuck]:
        reasons: list[Stuck] = []
        time = Passing(lasting_s)
        watchdog = Watchdog(
            tmp_path / "s", where=str, least_s=30.0, most_s=600.0, end=reasons.append
        )
        watchdog._measured["playing"].extend(measured_s * MEASURED)
        monkeypatch.setattr("fullrank_controller.watchdog.time", time)
        monkeypatch.setattr(watchdog, "_stopped", time)
        with watchdog.phase("playing"):
            watchdog._watch()
        return reasons

    assert reasons(limit_s - 1.0) == []
    (reason,) = reasons(limit_s + 1.0)
    assert "with a higher controller.deadline_s if it is only slow" in str(reason)


def test_what_is_over_is_not_stuck(tmp_path: Path) -> None:
    def end(reason: Stuck) -> None:
        raise AssertionError(reason)

    with Watchdog(tmp_path / "s", where=str, least_s=60.0, most_s=60.0, end=end) as watchdog:
        with watchdog.phase("playing"):
            pass
        with pytest.raises(ValueError, match="broken"), watchdog.phase("updating"):
            raise ValueError("broken")
        assert watchdog._since == {}
    assert not (tmp_path / "s").exists()


def test_phases_of_one_name_may_overlap(tmp_path: Path) -> None:
    watchdog = Watchdog(tmp_path / "s", where=str, least_s=60.0, most_s=60.0, end=print)
    first, second = watchdog.phase("playing"), watchdog.phase("playing")
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert len(watchdog._since) == 1
    second.__exit__(None, None, None)
    assert watchdog._since == {}
