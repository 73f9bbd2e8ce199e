"""A learner that is told to stop ends, whatever it is doing at that moment."""

import asyncio
import logging
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.integration.cluster import Cluster, resolved
from tests.waiting import eventually, wait_until

from fullrank.common.errors import Cancelled
from fullrank.training.worker import Worker

pytestmark = pytest.mark.integration


def dialling() -> "asyncio.Task[Any]":
    """The task that dials the controller."""
    (task,) = [task for task in asyncio.all_tasks() if "_dial_for_ever" in repr(task.get_coro())]
    return task


async def test_a_learner_that_is_told_to_stop_while_it_drops_its_work_dials_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The controller has ended the stream, and the computing thread has not heeded that yet."""
    caplog.set_level(logging.INFO, "fullrank_learner")
    computing, dropping = threading.Event(), threading.Event()
    dials: list[asyncio.Task[Any]] = []

    def compute(self: Worker, *words: Any, check_cancelled: Any, **named: Any) -> None:
        computing.set()
        try:
            wait_until(lambda: check_cancelled() is not None, what="the assignment is abandoned")
        except Cancelled:
            dropping.set()
            wait_until(lambda: bool(dials[0].cancelling()), what="the learner is told to stop")
            raise

    monkeypatch.setattr(Worker, "compute", compute)
    settings = resolved("code.name=uncoded", "learners=1", "environment.agents=1")
    async with Cluster(tmp_path, settings) as cluster:
        cluster.replay()
        controller = cluster.controller()
        learner = cluster.learner()
        await eventually(computing.is_set, what="the learner computes")
        dials.append(dialling())
        await controller.end()
        await eventually(dropping.is_set, what="the learner drops its work")
        caplog.clear()
        learner.stop.set()
        ended = "the learner ended or dialled again"
        again = "dialling_again"
        await eventually(lambda: learner.task.done() or again in caplog.text, what=ended)
        if again in caplog.text:
            dials[0].cancel()  # or the cluster would never end
        assert learner.task.done()
        assert again not in caplog.text
