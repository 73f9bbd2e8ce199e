"""Settings of all services that run in the process of a test."""

import pytest
from tests.waiting import WAIT_S


@pytest.fixture(autouse=True)
def no_deadline_shrinks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the configured deadlines: those from measured times would judge the machine."""
    monkeypatch.setattr("fullrank.config.tree.LEAST_DEADLINE_S", WAIT_S)
