"""MonitorService: what the run is, does and did, for whoever asks."""

import asyncio
import json
from contextlib import aclosing
from pathlib import Path
from typing import Any, TypeAlias

import grpc

from fullrank import __version__
from fullrank.codes import support
from fullrank.common.errors import CheckpointUnusable, NotFound
from fullrank.planning import Plan
from fullrank.rpc.codec import Field, encode_chunks, joined
from fullrank.rpc.errors import statuses
from fullrank.runs.checkpoint import newest
from fullrank.v1 import controller_pb2
from fullrank.v1 import monitor_pb2 as pb
from fullrank_controller.membership.assignment import Deal
from fullrank_controller.monitor.subscription import Watching
from fullrank_controller.run_state import Run

Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]

PREBUILT = frozenset({"Watch", "GetPolicies"})
"""Methods whose responses are encoded already."""
_CHUNK = pb.GetPoliciesResponse.DESCRIPTOR.fields_by_name["chunk"].number
_POLICY = "algorithm.policy/"


class MonitorServicer:
    """MonitorService over one run.

    Args:
        run: What goes on now.
        watching: What was committed.
        checkpoints: Where policies come from; the run itself is not asked for them.
    """

    def __init__(self, run: Run, watching: Watching, checkpoints: Path) -> None:
        self._run = run
        self._watching = watching
        self._checkpoints = checkpoints
        self._loading = asyncio.Lock()

    async def GetStatus(
        self, request: controller_pb2.GetStatusRequest, context: Context
    ) -> controller_pb2.GetStatusResponse:
        """Where the run stands."""
        return self._run.status()

    async def Watch(self, request: pb.WatchRequest, context: Context) -> None:
        """Write iterations for as long as the caller reads them."""
        async with statuses(context), aclosing(self._watching.watch(request)) as messages:
            async for message in messages:
                await context.write(message)

    async def GetCode(self, request: pb.GetCodeRequest, context: Context) -> pb.GetCodeResponse:
        """C, its holders and its plan."""
        async with statuses(context):
            if self._run.deal is None:
                raise NotFound("there is no code before the first learners have come")
            return _encode_code(self._run.deal, units=self._run.units, plan=self._run.plan)

    async def GetConfiguration(
        self, request: pb.GetConfigurationRequest, context: Context
    ) -> pb.GetConfigurationResponse:
        """What is trained."""
        welcome = self._run.welcome
        return pb.GetConfigurationResponse(
            run=welcome.run,
            version=__version__,
            configuration=welcome.configuration,
            agents=welcome.agents,
        )

    async def GetPolicies(self, request: pb.GetPoliciesRequest, context: Context) -> None:
        """Write the newest checkpoint's policies; one caller at a time reads the disk."""
        async with statuses(context):
            async with self._loading:
                messages = await asyncio.to_thread(_policies, self._checkpoints)
            for message in messages:
                await context.write(message)


def _encode_code(deal: Deal, *, units: int, plan: Plan | None) -> pb.GetCodeResponse:
    code = deal.code
    return pb.GetCodeResponse(
        epoch=deal.epoch,
        name=code.name,
        parameters=json.dumps(dict(deal.asked.params)),
        units=units,
        rows=[
            controller_pb2.Row(row=number, units=support(row), coefficients=row[support(row)])
            for number, row in enumerate(code.matrix)
        ],
        tolerance=code.tolerance,
        certificate=code.certificate,
        holders=[
            pb.Holder(row=row, learner=member.learner) for row, member in deal.holders.items()
        ],
        plan=None if plan is None else _encode_plan(plan),
    )


def _encode_plan(plan: Plan) -> pb.Plan:
    return pb.Plan(
        code=plan.candidate.label,
        reason=plan.reason,
        forecasts=[
            pb.Forecast(code=each.label, mean_s=each.mean_s, cautious_s=each.cautious_s)
            for each in plan.forecasts
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
        joined([Field(head), chunk])
        for name, array in checkpoint.arrays.items()
        if name.startswith(_POLICY)
        for chunk in encode_chunks(array, array_id=int(name.removeprefix(_POLICY)), field=_CHUNK)
    ]
