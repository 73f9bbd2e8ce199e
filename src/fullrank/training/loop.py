"""The loop of a run: the order in which it collects, samples, computes and commits.

The order decides which parameters act and which transitions a minibatch may hold, and so the bits.
Services and one-process runs share it and differ in their ports. Ports of a service wait, so the
loop is a coroutine; ports that never wait run it without an event loop (``complete``).
"""

from collections.abc import Awaitable, Callable, Coroutine
from typing import Generic, Protocol, TypeAlias, TypeVar

from fullrank.replay.samplers import Sample
from fullrank.training.rollouts import Collected

ComputeResult = TypeVar("ComputeResult")
CommitResult = TypeVar("CommitResult")

CollectAhead: TypeAlias = Callable[[], None]
"""Begins later collections with the current parameters, if the run collects ahead."""


class TransitionPort(Protocol):
    """Collection of transitions into the run's table."""

    def begin(self, iteration: int) -> object:
        """Begin to collect for an iteration with the current parameters, unless that was done."""

    def foresee(self, iteration: int) -> Sample | None:
        """Return the iteration's minibatch if the table holds all of it already, else None.

        Then the iteration's own transitions are being collected, beside its updates.
        """

    async def collect(self, iteration: int) -> Collected:
        """Return the iteration's transitions once the table holds them."""

    def sample(self, iteration: int) -> Sample:
        """Return the iteration's minibatch over the transitions that the table holds."""

    async def finish_playing(self) -> None:
        """Return when no environment is being stepped."""


class IterationLoop(Generic[ComputeResult, CommitResult]):
    """Runs single iterations of a run over its ports.

    Args:
        transitions: Collects and samples.
        compute: Computes the updates of a sample; calls its second argument once the sample is
            fixed.
        commit: Applies the updates and makes the iteration durable.
        lag: ``collect.lag``: number of iterations that are collected ahead.
        iterations: Number of iterations of the run.
    """

    def __init__(
        self,
        transitions: TransitionPort,
        *,
        compute: Callable[[Sample, CollectAhead], Awaitable[ComputeResult]],
        commit: Callable[[Collected, ComputeResult], Awaitable[CommitResult]],
        lag: int,
        iterations: int,
    ) -> None:
        self._transitions, self._compute, self._commit = transitions, compute, commit
        self._lag, self._iterations = lag, iterations

    async def iterate(self, iteration: int) -> CommitResult:
        """Run one iteration; returns the value of ``commit``."""
        transitions = self._transitions
        sample = transitions.foresee(iteration)
        if sample is None:
            collected = await transitions.collect(iteration)
            sample = transitions.sample(iteration)
            result = await self._compute(sample, lambda: self._collect_ahead(iteration))
        else:
            result = await self._compute(sample, lambda: self._collect_ahead(iteration))
            collected = await transitions.collect(iteration)
        await transitions.finish_playing()  # it still acts with the old parameters
        return await self._commit(collected, result)

    async def repeat(self, iteration: int, apply: Callable[[], Awaitable[object]]) -> None:
        """Collect the transitions of a committed iteration again and apply its known updates."""
        await self._transitions.collect(iteration)
        self._collect_ahead(iteration)
        await self._transitions.finish_playing()
        await apply()

    def _collect_ahead(self, iteration: int) -> None:
        last = min(iteration + self._lag, self._iterations - 1)
        for later in range(iteration + 1, last + 1):
            self._transitions.begin(later)


def complete(coroutine: Coroutine[object, None, CommitResult]) -> CommitResult:
    """Run a coroutine whose ports never wait, without an event loop.

    Raises:
        RuntimeError: It waits.
    """
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: CommitResult = end.value
        return result
    coroutine.close()
    raise RuntimeError("a port waited; run the loop on an event loop")
