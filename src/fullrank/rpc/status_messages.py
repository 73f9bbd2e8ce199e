"""The monitor's messages decoded into the status, code and configuration of a run."""

import json
from dataclasses import fields
from typing import Any, TypeVar

import numpy as np
from google.protobuf.message import Message

from fullrank.algorithms import Unit
from fullrank.config.elsewhere import from_elsewhere
from fullrank.rpc.codec import decode_agent
from fullrank.rpc.run_status import (
    BlocksStatus,
    CodeInUse,
    CollectorStatus,
    ContainerStatus,
    ForecastStatus,
    LearnerStatus,
    PlanStatus,
    RunState,
    RunStatus,
    Setup,
)
from fullrank.v1 import controller_pb2
from fullrank.v1 import monitor_pb2 as pb

_STATES = {
    controller_pb2.RUN_STATE_STARTING: RunState.STARTING,
    controller_pb2.RUN_STATE_RUNNING: RunState.RUNNING,
    controller_pb2.RUN_STATE_STALLED: RunState.STALLED,
    controller_pb2.RUN_STATE_FINISHED: RunState.FINISHED,
}

Status = TypeVar(
    "Status", LearnerStatus, CollectorStatus, ContainerStatus, BlocksStatus, ForecastStatus
)


def decode_status(message: controller_pb2.GetStatusResponse) -> RunStatus:
    """A status from its message."""
    return RunStatus(
        run=message.run,
        term=message.term,
        epoch=message.epoch,
        state=_STATES[message.state],
        message=message.message,
        committed=message.iterations_committed,
        iterations=message.iterations,
        rank=message.rank,
        units=message.units,
        unit_list=tuple(
            Unit(agent=unit.agent if unit.HasField("agent") else None, part=unit.part)
            for unit in message.unit_list
        ),
        round_s=message.round_s,
        caveats=tuple(message.caveats),
        learners=tuple(
            _alike(LearnerStatus, status, rows=tuple(status.rows)) for status in message.learners
        ),
        collectors=tuple(
            _decode_collector(status, free=not message.HasField("blocks"))
            for status in message.collectors
        ),
        playing=message.playing,
        blocks=_alike(BlocksStatus, message.blocks) if message.HasField("blocks") else None,
    )


def _decode_collector(status: controller_pb2.CollectorStatus, *, free: bool) -> CollectorStatus:
    return _alike(
        CollectorStatus,
        status,
        block=(status.iteration, status.block) if status.playing and not free else None,
        free=free and status.playing,
        container=(
            _alike(ContainerStatus, status.container) if status.HasField("container") else None
        ),
    )


def _alike(status: type[Status], message: Message, **others: Any) -> Status:
    """A status whose fields, but for ``others``, are those of the message by the same names."""
    names = (field.name for field in fields(status) if field.name not in others)
    return status(**{name: getattr(message, name) for name in names}, **others)


def decode_code(message: pb.GetCodeResponse) -> CodeInUse:
    """A code from its message."""
    matrix = np.zeros((len(message.rows), message.units))
    for row in message.rows:
        matrix[row.row, list(row.units)] = row.coefficients
    return CodeInUse(
        epoch=message.epoch,
        name=message.name,
        parameters=json.loads(message.parameters),
        matrix=matrix,
        tolerance=message.tolerance,
        certificate=message.certificate,
        holders={holder.row: holder.learner for holder in message.holders},
        plan=_decode_plan(message.plan) if message.HasField("plan") else None,
    )


def _decode_plan(message: pb.Plan) -> PlanStatus:
    forecasts = tuple(_alike(ForecastStatus, forecast) for forecast in message.forecasts)
    return PlanStatus(code=message.code, reason=message.reason, forecasts=forecasts)


def decode_setup(message: pb.GetConfigurationResponse) -> Setup:
    """A configuration from its message."""
    return Setup(
        run=message.run,
        version=message.version,
        config=from_elsewhere(message.configuration).config,
        agents=tuple(map(decode_agent, message.agents)),
    )
