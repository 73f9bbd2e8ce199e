"""A learner that is told to leave finishes its row, or hands it back, and says so."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.faultlab.history import read_history
from tests.integration.cluster import Cluster, reference_digests, resolved
from tests.waiting import WAIT_S, eventually, wait_until

from fullrank.runs.events import Left
from fullrank.training.worker import Worker

pytestmark = pytest.mark.integration

ONE_UNIT = ("code.name=uncoded", "environment.agents=1", f"controller.lost_after_s={WAIT_S}")


@pytest.fixture(autouse=True)
def _a_farewell_is_heard_however_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fullrank_learner.session.FAREWELL_S", WAIT_S)


class Held:
    """Holds the first computation back until it is released, or abandoned."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.began, self.release = threading.Event(), threading.Event()
        self._compute = Worker.compute
        monkeypatch.setattr(Worker, "compute", self._held())

    def _held(self) -> Any:
        def compute(worker: Worker, *words: Any, **named: Any) -> Any:
            if not self.began.is_set():
                self.began.set()
                cancelled = named["check_cancelled"]
                wait_until(lambda: cancelled() is not None or self.release.is_set(), what="release")
            return self._compute(worker, *words, **named)

        return compute


def partings(run_dir: Path) -> list[str]:
    return [event.reason for event in read_history(run_dir).controller if isinstance(event, Left)]


@pytest.mark.smoke
async def test_a_learner_that_is_told_to_leave_finishes_its_row_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(monkeypatch)
    settings = resolved(*ONE_UNIT, "learners=1", f"learner.drain_s={WAIT_S}")
    async with Cluster(tmp_path, settings) as cluster:
        cluster.serve()
        leaver = cluster.learner()
        await eventually(held.began.is_set, what="it computes")
        leaver.stop.set()
        held.release.set()
        await asyncio.wait_for(leaver.task, WAIT_S)
        await cluster.status_when(lambda status: status.iterations_committed > 0, what="its row")
        assert partings(tmp_path) == ["it was told to stop"]
        cluster.learner()
        await cluster.finished()
    first = cluster.records()[0]
    assert (first.attempt, first.received) == (0, (0,))
    assert cluster.digests() == reference_digests(cluster.config)


async def test_a_row_that_takes_longer_is_handed_back_and_computed_by_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(monkeypatch)
    settings = resolved(*ONE_UNIT, "learners=1", "learner.drain_s=0.0")
    async with Cluster(tmp_path, settings) as cluster:
        cluster.serve()
        leaver = cluster.learner()
        await eventually(held.began.is_set, what="it computes")
        cluster.learner()
        await cluster.ready(2)
        leaver.stop.set()
        await asyncio.wait_for(leaver.task, WAIT_S)
        await cluster.finished()
    assert partings(tmp_path)[0] == "it was told to stop, and hands back rows 0"
    assert cluster.records()[0].attempt == 1
    assert cluster.digests() == reference_digests(cluster.config)
