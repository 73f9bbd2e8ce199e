"""The monitor's messages decoded: status, code, configuration and iterations of a run.

A monitor may be a stranger's, or of a later version: what it says is read by schema, and whatever
does not fit raises ``Malformed``. Iterations are encoded here, too, without loss.
"""

import math
from collections.abc import Mapping
from dataclasses import fields
from math import isfinite
from typing import Any

import numpy as np
from google.protobuf.message import Message
from pydantic import TypeAdapter

from fullrank.common.errors import Malformed
from fullrank.common.foreign import parse_json, shown
from fullrank.common.schema import validated
from fullrank.common.types import JSON, LearnerId, Matrix
from fullrank.config.elsewhere import from_elsewhere
from fullrank.net.codec import decode_agent
from fullrank.net.status import (
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
from fullrank.runs.record import IterationRecord, from_facts
from fullrank.v1 import controller_pb2
from fullrank.v1 import monitor_pb2 as pb

CODE_ENTRIES = 2**22
"""Most entries of C, zeros included; 32 MiB."""

_STATES = {controller_pb2.RunState.Value(f"RUN_STATE_{each.name}"): each for each in RunState}
_STATUS = TypeAdapter(RunStatus)
_PLAN = TypeAdapter(PlanStatus)


def decode_status(message: controller_pb2.GetStatusResponse) -> RunStatus:
    """A status from its message.

    Raises:
        Malformed: A number is out of range or not finite, or a text too long.
    """
    facts = _alike(
        RunStatus,
        message,
        state=_STATES.get(message.state, f"unknown ({message.state})"),
        committed=message.iterations_committed,
        unit_list=[(tuple(unit.agents), unit.part) for unit in message.unit_list],
        caveats=tuple(message.caveats),
        verdicts=tuple(message.verdicts),
        learners=[
            _alike(LearnerStatus, status, rows=tuple(status.rows)) for status in message.learners
        ],
        collectors=[_collector(status) for status in message.collectors],
        blocks=_alike(BlocksStatus, message.blocks) if message.HasField("blocks") else None,
    )
    return validated(_STATUS, facts, origin="the status")


def _collector(status: controller_pb2.CollectorStatus) -> JSON:
    container = status.container if status.HasField("container") else None
    return _alike(
        CollectorStatus,
        status,
        block=(status.iteration, status.block) if status.playing else None,
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


_TIMES = {
    "assigned_s": "assigned_s",
    "started_s": "started_s",
    "compute_s": "compute_s",
    "sent_s": "sent_s",
    "arrived_s": "arrival_s",
    "row": "rows",
    "audited": "audited",
}
"""Fields of a timeline, and the fields of a record that map learners to their values."""
_LISTS, _TABLES = ("received", "quarantined", "caveats"), ("bytes_sent", "bytes_received")
_CONVERTED = {
    *(*_LISTS, *_TABLES, "rows", "side_returns", "statistics", "timelines", "update_digest")
}
_SAME = tuple(name for name in pb.Iteration.DESCRIPTOR.fields_by_name if name not in _CONVERTED)
"""Fields with the same value in a record and in its message."""


def encode_iteration(record: IterationRecord) -> pb.Iteration:
    """A record as a message."""
    return pb.Iteration(
        **{name: getattr(record, name) for name in (*_SAME, *_LISTS, *_TABLES)},
        rows=record.code_rows,
        side_returns=_known(record.side_returns),
        statistics=_known(record.statistics),
        timelines=_timelines(record),
        update_digest=bytes.fromhex(record.update_digest),
    )


def _known(values: Mapping[str, float | None]) -> dict[str, float]:
    """Numbers that are known and finite; the others are absent, as they are null in a file."""
    return {name: value for name, value in values.items() if value is not None and isfinite(value)}


def _timelines(record: IterationRecord) -> list[pb.Timeline]:
    columns = {field: getattr(record, name) for field, name in _TIMES.items()}
    late = frozenset(record.late)
    return [
        pb.Timeline(
            learner=learner,
            late=learner in late,
            **{name: column[learner] for name, column in columns.items() if learner in column},
        )
        for learner in sorted({*late.union(*columns.values())})
    ]


def decode_iteration(message: pb.Iteration) -> IterationRecord:
    """A record from its message.

    Raises:
        Malformed: A field is out of range, or a number that is always known is not finite.
    """
    fields: dict[str, Any] = {name: _field(message, name) for name in _SAME}
    fields |= {name: _column(message, field) for field, name in _TIMES.items()}
    fields |= {name: tuple(getattr(message, name)) for name in _LISTS}
    fields |= {name: dict(getattr(message, name)) for name in _TABLES}
    fields |= {
        "code_rows": message.rows,
        "rows_per_learner": message.rows_per_learner or 1,
        "side_returns": _known(message.side_returns),
        "statistics": _known(message.statistics),
        "late": tuple(timeline.learner for timeline in message.timelines if timeline.late),
        "update_digest": message.update_digest.hex(),
    }
    return from_facts(fields)


def _field(message: Message, name: str) -> Any:
    """Value of a field; None if it is optional and absent, or not finite."""
    value = getattr(message, name)
    if not message.DESCRIPTOR.fields_by_name[name].has_presence:
        return value
    return value if message.HasField(name) and isfinite(value) else None


def _column(message: pb.Iteration, name: str) -> dict[LearnerId, Any]:
    values = {timeline.learner: _field(timeline, name) for timeline in message.timelines}
    return {learner: value for learner, value in values.items() if value is not None}
