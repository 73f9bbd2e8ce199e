"""Iteration records as messages of the monitor, and back, without loss."""

from collections.abc import Mapping
from math import isfinite
from typing import Any

from google.protobuf.message import Message

from fullrank.common.types import LearnerId
from fullrank.runs.record import IterationRecord, from_facts
from fullrank.v1 import monitor_pb2 as pb

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
_CONVERTED = {
    *(
        "rows",
        "rows_per_learner",
        "side_returns",
        "statistics",
        "received",
        "timelines",
        "update_digest",
        "quarantined",
        "caveats",
    ),
    *("bytes_sent", "bytes_received"),
}
_SAME = tuple(name for name in pb.Iteration.DESCRIPTOR.fields_by_name if name not in _CONVERTED)
"""Fields with the same value in a record and in its message."""


def encode_iteration(record: IterationRecord) -> pb.Iteration:
    """A record as a message."""
    return pb.Iteration(
        **{name: getattr(record, name) for name in _SAME},
        rows=record.code_rows,
        rows_per_learner=record.rows_per_learner,
        side_returns=_known(record.side_returns),
        statistics=_known(record.statistics),
        received=record.received,
        timelines=_timelines(record),
        update_digest=bytes.fromhex(record.update_digest),
        quarantined=record.quarantined,
        caveats=record.caveats,
        bytes_sent=record.bytes_sent,
        bytes_received=record.bytes_received,
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
    fields |= {
        "code_rows": message.rows,
        "rows_per_learner": message.rows_per_learner or 1,
        "side_returns": _known(message.side_returns),
        "statistics": _known(message.statistics),
        "received": tuple(message.received),
        "late": tuple(timeline.learner for timeline in message.timelines if timeline.late),
        "update_digest": message.update_digest.hex(),
        "quarantined": tuple(message.quarantined),
        "caveats": tuple(message.caveats),
        "bytes_sent": dict(message.bytes_sent),
        "bytes_received": dict(message.bytes_received),
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
