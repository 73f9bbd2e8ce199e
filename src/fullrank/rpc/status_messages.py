"""The monitor's messages decoded into the status, code and configuration of a run.

A monitor may be a stranger's, or of a later version: what it says is read by schema, and whatever
does not fit raises ``Malformed``.
"""

import math
from dataclasses import fields
from typing import Any

import numpy as np
from google.protobuf.message import Message
from pydantic import TypeAdapter

from fullrank.common.errors import Malformed
from fullrank.common.foreign import parse_json, shown
from fullrank.common.schema import validated
from fullrank.common.types import JSON, Matrix
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

CODE_ENTRIES = 2**22
"""Most entries of C, zeros included; 32 MiB."""

_STATES = {
    controller_pb2.RUN_STATE_STARTING: RunState.STARTING,
    controller_pb2.RUN_STATE_RUNNING: RunState.RUNNING,
    controller_pb2.RUN_STATE_STALLED: RunState.STALLED,
    controller_pb2.RUN_STATE_FINISHED: RunState.FINISHED,
    controller_pb2.RUN_STATE_FAILED: RunState.FAILED,
}
_STATUS = TypeAdapter(RunStatus)
_PLAN = TypeAdapter(PlanStatus)


def decode_status(message: controller_pb2.GetStatusResponse) -> RunStatus:
    """A status from its message.

    Raises:
        Malformed: A number is out of range or not finite, or a text too long.
    """
    facts = {
        "run": message.run,
        "term": message.term,
        "epoch": message.epoch,
        "state": _STATES.get(message.state, f"unknown ({message.state})"),
        "message": message.message,
        "exit_code": message.exit_code,
        "committed": message.iterations_committed,
        "iterations": message.iterations,
        "rank": message.rank,
        "units": message.units,
        "unit_list": [
            (unit.agent if unit.HasField("agent") else None, unit.part)
            for unit in message.unit_list
        ],
        "round_s": message.round_s,
        "caveats": tuple(message.caveats),
        "verdicts": tuple(message.verdicts),
        "learners": [
            _alike(LearnerStatus, status, rows=tuple(status.rows)) for status in message.learners
        ],
        "collectors": [
            _collector(status, free=not message.HasField("blocks")) for status in message.collectors
        ],
        "playing": message.playing,
        "blocks": _alike(BlocksStatus, message.blocks) if message.HasField("blocks") else None,
    }
    return validated(_STATUS, facts, origin="the status")


def _collector(status: controller_pb2.CollectorStatus, *, free: bool) -> JSON:
    container = status.container if status.HasField("container") else None
    return _alike(
        CollectorStatus,
        status,
        block=(status.iteration, status.block) if status.playing and not free else None,
        free=free and status.playing,
        container=None if container is None else _alike(ContainerStatus, container),
    )


def _alike(status: type[Any], message: Message, **others: Any) -> JSON:
    """The fields of a status, which but for ``others`` are the message's of the same names."""
    names = (field.name for field in fields(status) if field.name not in others)
    return {name: getattr(message, name) for name in names} | others


def decode_code(message: pb.GetCodeResponse) -> CodeInUse:
    """A code from its message.

    Raises:
        Malformed: The matrix is too large, or a row does not fit it; or the rest is out of range.
    """
    parameters = parse_json(message.parameters, origin="the code's parameters")
    if not isinstance(parameters, dict):
        raise Malformed(f"the code's parameters are no table: {shown(message.parameters)}")
    return CodeInUse(
        epoch=message.epoch,
        name=message.name,
        parameters=parameters,
        matrix=_matrix(message),
        tolerance=message.tolerance,
        certificate=message.certificate,
        holders={holder.row: holder.learner for holder in message.holders},
        plan=_decode_plan(message.plan) if message.HasField("plan") else None,
    )


def _matrix(message: pb.GetCodeResponse) -> Matrix:
    rows, units = len(message.rows), message.units
    if rows * units > CODE_ENTRIES:
        raise Malformed(
            f"the code has {rows} rows of {units} units, and {CODE_ENTRIES} entries are the limit"
        )
    matrix = np.zeros((rows, units))
    for row in message.rows:
        held, coefficients = list(row.units), list(row.coefficients)
        fits = row.row < rows and all(unit < units for unit in held)
        if not fits or len(held) != len(coefficients) or not all(map(math.isfinite, coefficients)):
            raise Malformed(f"row {row.row} of the code does not fit {rows} rows of {units} units")
        matrix[row.row, held] = coefficients
    return matrix


def _decode_plan(message: pb.Plan) -> PlanStatus:
    forecasts = [_alike(ForecastStatus, forecast) for forecast in message.forecasts]
    facts = {"code": message.code, "reason": message.reason, "forecasts": forecasts}
    return validated(_PLAN, facts, origin="the plan")


def decode_setup(message: pb.GetConfigurationResponse) -> Setup:
    """A configuration from its message.

    Raises:
        ConfigError: A setting is unknown or impossible.
        Malformed: An agent is impossible.
        VersionMismatch: The configuration is of a later format.
    """
    return Setup(
        run=message.run,
        version=message.version,
        config=from_elsewhere(message.configuration, origin="the run's configuration").config,
        agents=tuple(map(decode_agent, message.agents)),
    )
