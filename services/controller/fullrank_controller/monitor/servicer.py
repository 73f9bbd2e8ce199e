"""MonitorService: the status, code, configuration, policies and iterations of a run.

Committed iterations are fanned out to subscribers; slow ones skip, the run never waits.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from pathlib import Path

from fullrank import __version__
from fullrank.algorithms.roles import ACTING
from fullrank.codes import support
from fullrank.common.errors import CheckpointUnusable, NotFound, ServiceLost, StorageFailed
from fullrank.net.codec import EncodedField, encode_chunks, joined
from fullrank.net.errors import Context
from fullrank.planning.candidates import Plan
from fullrank.run.assignment import RowAssignment
from fullrank.runs.checkpoint import newest
from fullrank.v1 import controller_pb2
from fullrank.v1 import monitor_pb2 as pb
from fullrank_controller.driver import Driver
from fullrank_controller.membership.member import Member
from fullrank_controller.monitor.log import Cursor, IterationLog
from fullrank_controller.run import Run

PERIOD_S = 0.25
"""Iterations committed within this period share a message, however short they are."""
BEHIND = 4096
"""Iterations by which a subscriber that had caught up may lag before it skips to the newest."""


class Subscriptions:
    """Serves committed iterations to subscribers; idle while there are none.

    Args:
        iterations: Extended while there are subscribers.
        is_last: Returns True for the last iteration of a finished run.
    """

    def __init__(self, iterations: IterationLog, *, is_last: Callable[[int], bool]) -> None:
        self._iterations = iterations
        self._is_last = is_last
        self._reading = asyncio.Lock()
        self._renewal: asyncio.Task[None] | None = None
        self._closed = ""

    async def close(self, reason: str) -> None:
        """End every subscription; those of a finished run end well, with its last iteration."""
        if self._iterations.watched:
            with suppress(StorageFailed):  # as a run that ends for want of room meets
                await self._read()
        self._closed = reason
        if self._renewal is not None:
            await asyncio.wait({self._renewal})

    async def watch(self, request: pb.WatchRequest) -> AsyncGenerator[bytes, None]:
        """Encoded WatchResponses.

        Raises:
            ServiceLost: The controller stops, for the reason given.
            StorageFailed: There is no room for a copy of the iterations.
        """
        await self._read()
        wanted = request.from_iteration, request.seen_term
        cursor = self._iterations.open(*wanted)
        caught_up = begun = False
        try:
            while True:
                if not begun:  # the wanted iteration may not be committed yet
                    cursor.index = self._iterations.find(*wanted)
                lost = self._skip(cursor) if caught_up else 0
                if cursor.index < len(self._iterations):
                    piece = self._iterations.piece(cursor)
                    yield pb.WatchResponse(lost=lost).SerializeToString() + piece
                    begun = True
                    continue
                caught_up = True
                if request.until_now or self._is_last(self._iterations.last):
                    return
                if self._closed:
                    raise ServiceLost(self._closed)
                await self._renewed()
        finally:
            self._iterations.leave(cursor)

    def _skip(self, cursor: Cursor) -> int:
        """Skip to the newest iteration if too many wait; returns how many were skipped."""
        if len(self._iterations) - cursor.index <= BEHIND:
            return 0
        lost = len(self._iterations) - 1 - cursor.index
        cursor.index += lost
        return lost

    async def _renewed(self) -> None:
        """Return when there is a new iteration; all waiting subscribers share one task."""
        if self._renewal is None or self._renewal.done():
            self._renewal = asyncio.create_task(self._renew(self._iterations.added))
        await asyncio.shield(self._renewal)

    async def _renew(self, added: int) -> None:
        while not self._closed:
            await asyncio.sleep(PERIOD_S)
            await self._read()
            if self._iterations.added > added or self._is_last(self._iterations.last):
                return

    async def _read(self) -> None:
        async with self._reading:
            self._iterations.add(await asyncio.to_thread(self._iterations.read))


PREBUILT = frozenset({"Watch", "GetPolicies"})
"""Methods whose responses are already encoded."""
_CHUNK = pb.GetPoliciesResponse.DESCRIPTOR.fields_by_name["chunk"].number
_POLICIES = tuple(f"algorithm.{role}/" for role in ACTING)


class PublishedRun:
    """The methods of MonitorService that read the run's directory.

    Args:
        subscriptions: Committed iterations.
        checkpoints: Source of policies, so that the run itself is not asked for them.
    """

    def __init__(self, subscriptions: Subscriptions, checkpoints: Path) -> None:
        self._subscriptions, self._checkpoints = subscriptions, checkpoints
        self._loading = asyncio.Lock()

    async def Watch(self, request: pb.WatchRequest, context: Context) -> None:
        """Write iterations for as long as the caller reads them."""
        async with aclosing(self._subscriptions.watch(request)) as messages:
            async for message in messages:
                await context.write(message)

    async def GetPolicies(self, request: pb.GetPoliciesRequest, context: Context) -> None:
        """Write the newest checkpoint's policies; callers read the disk one at a time."""
        async with self._loading:
            messages = await asyncio.to_thread(_policies, self._checkpoints)
        for message in messages:
            await context.write(message)


class MonitorServicer(PublishedRun):
    """MonitorService over one run.

    Args:
        run: The parts of the run.
        driver: Its rounds hold the plan.
        subscriptions: Committed iterations.
        checkpoints: Source of policies.
    """

    def __init__(
        self, run: Run, driver: Driver, subscriptions: Subscriptions, checkpoints: Path
    ) -> None:
        super().__init__(subscriptions, checkpoints)
        self._run, self._driver = run, driver

    async def GetStatus(
        self, request: controller_pb2.GetStatusRequest, context: Context
    ) -> controller_pb2.GetStatusResponse:
        """Report the status of the run."""
        return self._run.status_response()

    async def GetCode(self, request: pb.GetCodeRequest, context: Context) -> pb.GetCodeResponse:
        """Report C, its holders and its plan."""
        assignment = self._run.membership.assignment
        if assignment is None:
            raise NotFound("there is no code before the first learners have joined")
        return _encode_code(assignment, plan=self._driver.rounds.plan)

    async def GetConfiguration(
        self, request: pb.GetConfigurationRequest, context: Context
    ) -> pb.GetConfigurationResponse:
        """Report the configuration and the agents."""
        welcome = self._run.welcome
        return pb.GetConfigurationResponse(
            run=welcome.run,
            version=__version__,
            configuration=welcome.configuration,
            agents=welcome.agents,
        )


def _encode_code(assignment: RowAssignment[Member], *, plan: Plan | None) -> pb.GetCodeResponse:
    code = assignment.code
    return pb.GetCodeResponse(
        epoch=assignment.epoch,
        name=code.name,
        parameters=json.dumps(dict(assignment.requested.params)),
        units=code.units,
        rows=[
            controller_pb2.Row(row=number, units=support(row), coefficients=row[support(row)])
            for number, row in enumerate(code.matrix)
        ],
        tolerance=code.tolerance,
        certificate=code.certificate,
        holders=[
            pb.Holder(row=row, learner=member.learner) for row, member in assignment.holders.items()
        ],
        plan=None if plan is None else _encode_plan(plan),
    )


def _encode_plan(plan: Plan) -> pb.Plan:
    return pb.Plan(
        code=plan.candidate.label,
        reason=plan.reason,
        forecasts=[
            pb.Forecast(code=forecast.label, mean_s=forecast.mean_s, cautious_s=forecast.cautious_s)
            for forecast in plan.forecasts
        ],
    )


def _policies(checkpoints: Path) -> list[bytes]:
    try:
        checkpoint = newest(checkpoints)
    except CheckpointUnusable as error:
        raise NotFound(str(error)) from None
    head = pb.GetPoliciesResponse(
        iteration=checkpoint.iteration, term=checkpoint.facts.get("term", 0)
    ).SerializeToString()
    return [
        joined([EncodedField(head), chunk])
        for name, array in checkpoint.arrays.items()
        if name.startswith(_POLICIES)
        for chunk in encode_chunks(array, array_id=int(name.rpartition("/")[2]), field=_CHUNK)
    ]
