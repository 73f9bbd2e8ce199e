"""The host of a run on an event loop: executes the orders of its state machine.

Orders that wait are tasks; plain functions execute the others at once.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias

from fullrank.run.machine import RunMachine
from fullrank.run.orders import (
    Apply,
    Begin,
    Done,
    MakeDurable,
    RunEvent,
    RunOrder,
    Stop,
    TakeCheckpoint,
)

Execute: TypeAlias = Callable[[Any], Awaitable[None] | None]
"""Executes an order, by its return where it is a plain function; what it raises ends the run."""

FIRM = (Apply, MakeDurable, TakeCheckpoint)
"""Orders that are executed to their end, also when the run is told to stop."""


class Host:
    """Executes orders side by side, and tells the state machine of each that is done.

    Args:
        run: The state machine.
        execute: How orders of each kind are executed.
    """

    def __init__(self, run: RunMachine, execute: Mapping[type[RunOrder], Execute]) -> None:
        self._run, self._execute = run, execute
        self._tasks: dict[asyncio.Future[None], RunOrder] = {}
        self._end = asyncio.Event()
        self._failure: BaseException | None = None

    def tell(self, event: RunEvent) -> None:
        """Let the state machine take an event, and begin what it orders."""
        events = deque([event])
        while events:
            for order in self._run.step(events.popleft()):
                try:
                    doing = self._execute[type(order)](order)
                except Exception as error:
                    self._fail(error)
                    continue
                if doing is None:
                    events.append(Done(order))
                    continue
                task = asyncio.ensure_future(doing)
                self._tasks[task] = order
                task.add_done_callback(self._ended)
        if self._run.finished:
            self._end.set()

    def _ended(self, task: "asyncio.Future[None]") -> None:
        order = self._tasks.pop(task)
        if task.cancelled():
            return
        if (error := task.exception()) is not None:
            self._fail(error)
            return
        self.tell(Done(order))

    def _fail(self, error: BaseException) -> None:
        """Keep the first error, which ends the run."""
        self._failure = self._failure or error
        self._end.set()

    async def drive(self) -> None:
        """Execute orders until the run is finished; raises what the first of them raises."""
        self.tell(Begin())
        try:
            await self._end.wait()
        finally:
            await self._halt()
        self._raise()

    async def close(self, *, void: bool) -> None:
        """After ``drive``, end what it has begun; raises what that raises.

        Args:
            void: True if the state must not be checkpointed.
        """
        self.tell(Stop(void=void))
        while tasks := self._under_way(*FIRM):
            await asyncio.wait(tasks)
        self._raise()

    def _raise(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    async def _halt(self) -> None:
        """Begin nothing more, and cancel what may be cancelled."""
        self.tell(Stop(void=True))
        firm = self._under_way(*FIRM)
        loose = [task for task in self._tasks if task not in firm]
        for task in loose:
            task.cancel()
        await asyncio.gather(*loose, return_exceptions=True)

    def _under_way(self, *kinds: type[RunOrder]) -> "Sequence[asyncio.Future[None]]":
        return [task for task, order in self._tasks.items() if isinstance(order, kinds)]
