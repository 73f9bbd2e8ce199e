"""A unit that the controller recomputes counts for its own iteration or not at all."""

import asyncio
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from tests.waiting import WAIT_S, eventually

from fullrank.common.types import FloatArray
from fullrank.replay.samplers import Sample
from fullrank.rounds.reports import Claim
from fullrank_controller.rounds.auditor import Recomputation

SAMPLE = Sample(table="transitions", seed=0, iteration=2, tail=0, head=8, size=1)


class Slow:
    """An algorithm that computes a unit until it is released, and ignores cancellation."""

    def __init__(self) -> None:
        self.begun, self.release = threading.Event(), threading.Event()

    def compute(self, *_: Any, **__: Any) -> Iterator[tuple[int, FloatArray]]:
        self.begun.set()
        assert self.release.wait(WAIT_S)
        yield 0, np.zeros(3, np.float32)


class Replay:
    async def get_sample(self, *_: Any, **__: Any) -> SimpleNamespace:
        """Return a minibatch at once."""
        return SimpleNamespace(rows=np.zeros((1, 4), np.float32))


@pytest.mark.parametrize("decided_first", [False, True])
async def test_a_unit_finished_after_the_decision_counts_for_no_iteration(
    decided_first: bool,
) -> None:
    algorithm = Slow()
    training = SimpleNamespace(
        algorithm=SimpleNamespace(gradients=algorithm),
        problem=SimpleNamespace(
            recovers_units=True, row_size=4, statistics=0, items_of=lambda units: None
        ),
    )
    recomputation = Recomputation(cast(Any, training), cast(Any, Replay()), seed=0)
    recomputation.open(SAMPLE, None)
    recomputation.begin([Claim((0,))])
    assert await asyncio.to_thread(algorithm.begun.wait, WAIT_S)
    if decided_first:
        ending = asyncio.create_task(recomputation.end())
        await asyncio.sleep(0)
        algorithm.release.set()
        await ending
    else:
        algorithm.release.set()
        await eventually(lambda: bool(recomputation.digests), what="the recomputed digest")
        await recomputation.end()
    assert bool(recomputation.digests) is not decided_first
