"""A phase that takes far too long is named and aborted with its stacks; others are not."""

import threading
from pathlib import Path

import pytest
from tests.waiting import WAIT_S

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
