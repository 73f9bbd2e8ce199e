"""The iteration loop: its order, with and without collection ahead, and without an event loop."""

from collections.abc import Generator

import numpy as np
import pytest

from fullrank.replay.samplers import Sample
from fullrank.training.loop import CollectAhead, IterationLoop, complete
from fullrank.training.rollouts import Collected

NOTHING = Collected(np.empty((0, 1), np.float32), np.empty(0), {})


class Ports:
    """Ports that write down their calls."""

    def __init__(self, *, foreseen: bool = False) -> None:
        self.calls: list[str] = []
        self._foreseen = foreseen

    def foresee(self, iteration: int) -> Sample | None:
        return self.sample(iteration) if self._foreseen else None

    def begin(self, iteration: int) -> None:
        self.calls.append(f"begin {iteration}")

    async def collect(self, iteration: int) -> Collected:
        self.calls.append(f"collect {iteration}")
        return NOTHING

    def sample(self, iteration: int) -> Sample:
        self.calls.append(f"sample {iteration}")
        return Sample(table="t", seed=0, iteration=iteration, tail=0, head=1, size=1)

    async def finish_playing(self) -> None:
        self.calls.append("finish")

    async def compute(self, sample: Sample, collect_ahead: CollectAhead) -> str:
        collect_ahead()
        self.calls.append(f"compute {sample.iteration}")
        return f"updates {sample.iteration}"

    async def commit(self, collected: Collected, updates: str) -> str:
        self.calls.append(f"commit {updates}")
        return updates

    def loop(self, *, lag: int) -> IterationLoop[str, str]:
        return IterationLoop(self, compute=self.compute, commit=self.commit, lag=lag, iterations=2)


def test_the_next_collection_begins_once_the_sample_is_fixed_if_the_run_collects_ahead() -> None:
    ports = Ports()
    loop = ports.loop(lag=1)
    assert [complete(loop.iterate(iteration)) for iteration in range(2)] == [
        "updates 0",
        "updates 1",
    ]
    assert ports.calls == [
        *("collect 0", "sample 0", "begin 1", "compute 0", "finish", "commit updates 0"),
        *("collect 1", "sample 1", "compute 1", "finish", "commit updates 1"),
    ]


def test_a_foreseen_minibatch_is_computed_before_the_collection_is_awaited() -> None:
    ports = Ports(foreseen=True)
    assert complete(ports.loop(lag=0).iterate(0)) == "updates 0"
    assert ports.calls == ["sample 0", "compute 0", "collect 0", "finish", "commit updates 0"]


@pytest.mark.parametrize(("lag", "ahead"), [(0, []), (1, ["begin 1"])])
def test_a_repeated_iteration_plays_what_was_played_before_its_updates_are_applied(
    lag: int, ahead: list[str]
) -> None:
    ports = Ports()

    async def apply() -> None:
        ports.calls.append("apply")

    complete(ports.loop(lag=lag).repeat(0, apply))
    assert ports.calls == ["collect 0", *ahead, "finish", "apply"]


def test_a_port_that_waits_needs_an_event_loop() -> None:
    class Waiting:
        def __await__(self) -> Generator[None, None, None]:
            yield

    async def port() -> None:
        await Waiting()

    with pytest.raises(RuntimeError, match="a port waited"):
        complete(port())
