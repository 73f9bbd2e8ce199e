"""MonitorService: the status, code, configuration, policies and iterations of a run."""

import asyncio
import json
from contextlib import aclosing
from pathlib import Path

from fullrank import __version__
from fullrank.algorithms.roles import ACTING
from fullrank.codes import support
from fullrank.common.errors import CheckpointUnusable, NotFound
from fullrank.net.codec import EncodedField, encode_chunks, joined
from fullrank.net.errors import Context, statuses
from fullrank.planning.candidates import Plan
from fullrank.run.assignment import RowAssignment
from fullrank.runs.checkpoint import newest
from fullrank.v1 import controller_pb2
from fullrank.v1 import monitor_pb2 as pb
from fullrank_controller.driver import Driver
from fullrank_controller.membership.member import Member
from fullrank_controller.monitor.subscription import Subscriptions
from fullrank_controller.run import Run

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
        async with statuses(context), aclosing(self._subscriptions.watch(request)) as messages:
            async for message in messages:
                await context.write(message)

    async def GetPolicies(self, request: pb.GetPoliciesRequest, context: Context) -> None:
        """Write the newest checkpoint's policies; callers read the disk one at a time."""
        async with statuses(context):
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
        async with statuses(context):
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
