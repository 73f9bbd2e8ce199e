"""Metrics as data: one record per committed iteration, written to sinks that cannot stop a run."""

import json
import logging
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from pydantic import TypeAdapter, ValidationError

from fullrank.common.errors import FullrankError
from fullrank.common.tailing import appended
from fullrank.common.types import JSON, LearnerId
from fullrank.runs.evaluations import Evaluated

logger = logging.getLogger(__name__)

METRICS = "metrics.jsonl"
"""File of a run directory that has a line for each committed iteration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IterationRecord:
    """A line of ``metrics.jsonl``. Numbers that are not finite are written as null."""

    iteration: int
    term: int
    """Rises at every start or rollback of the controller."""
    epoch: int
    """Rises when C changes."""
    attempt: int
    """Rises when rows are added within an iteration."""
    code: str
    code_rows: int = 0
    """R; 0 in files of earlier versions, as in the fields below that may be empty."""
    tolerance: int = 0
    """Rows that may be lost in any case."""
    variant: str = ""
    """Whose dynamics and rewards the environment has, for example ``openai`` or ``mpe2``."""
    return_mean: float | None
    """Mean return of the episodes that ended, summed over agents; None when none ended."""
    side_returns: Mapping[str, float | None] = field(default_factory=dict)
    """The same for each side that agents play for; empty when no episode ended."""
    round_s: float
    """From the first assignment written until the parameters are new, seconds; the iteration is
    journalled while the next one's transitions are collected."""
    collect_s: float
    """Waiting for the transitions and appending them to replay, seconds."""
    compute_s: Mapping[LearnerId, float]
    """Computing time that each received learner reported, seconds."""
    assigned_s: Mapping[LearnerId, float] = field(default_factory=dict)
    """When each assignment was handed to its stream, seconds since the first one."""
    started_s: Mapping[LearnerId, float] = field(default_factory=dict)
    """When each received learner began to compute, seconds since the first assignment; its own
    duration, counted from when its assignment was written."""
    sent_s: Mapping[LearnerId, float] = field(default_factory=dict)
    """When each received learner began to send, in the same way."""
    arrival_s: Mapping[LearnerId, float] = field(default_factory=dict)
    """When each received coded vector had arrived, seconds since the first assignment."""
    decodable_s: float | None = None
    """When the received rows reached rank M, seconds since the first assignment."""
    audited: Mapping[LearnerId, int] = field(default_factory=dict)
    """Units of each learner, late ones too, whose digest was compared with the committed one."""
    rows: Mapping[LearnerId, int] = field(default_factory=dict)
    """The row of C that each learner was assigned."""
    decode_s: float
    """Decoding and checking, seconds."""
    received: tuple[LearnerId, ...]
    """J: learners whose rows were used, in order of arrival."""
    late: tuple[LearnerId, ...]
    """Learners that were assigned rows and were not waited for."""
    exact: bool
    """Whether the committed bits are independent of J."""
    condition: float | None
    """Two-norm condition number of C_J; None if it is not finite."""
    error_bound: float | None
    """Largest possible error of an entry; 0 when exact, None where nobody knows."""
    variance: float | None = None
    """Where learners draw samples of their own: predicted variance of the updates, mean over the
    units, in that of one learner's own."""
    update_digest: str
    """Hexadecimal digest of the committed updates."""
    quarantined: tuple[LearnerId, ...] = ()
    """Learners whose contribution was found wrong and left out; they hold no row from then on."""
    bytes_sent: Mapping[str, int]
    """Bytes that the controller wrote to learners: ``parameters`` (assignments and sections),
    ``commit`` and ``refused``. Minibatches come from replay and are not in it."""
    bytes_received: Mapping[str, int]
    """Payload bytes that the controller read: ``coded`` and ``digests``."""


_RECORD = TypeAdapter(IterationRecord)
_NAMES = tuple(each.name for each in fields(IterationRecord))


def to_facts(record: IterationRecord) -> JSON:
    """The record as JSON."""
    return {name: _finite(getattr(record, name)) for name in _NAMES}


def from_facts(facts: JSON) -> IterationRecord:
    """The record that ``to_facts`` was given, also after a way through text."""
    return _RECORD.validate_json(json.dumps(facts))


def to_line(record: IterationRecord) -> str:
    """The record as one line of JSON, without the newline."""
    return json.dumps(to_facts(record), allow_nan=False)


def read_records(path: Path) -> list[IterationRecord]:
    """All records of a ``metrics.jsonl``; a last line that is cut short is left out.

    Raises:
        FullrankError: The file cannot be read, or another line is damaged.
    """
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise FullrankError(f"cannot read {path}: {error.strerror}") from error
    records = []
    for number, line in enumerate(lines[:-1], start=1):  # a whole line ends with a newline
        try:
            records.append(_RECORD.validate_json(line))
        except ValidationError as error:
            raise FullrankError(f"{path}, line {number}, is not a metrics record") from error
    return records


def follow(path: Path) -> Iterator[list[IterationRecord]]:
    """For ever: the records whose lines were completed since the last call; none while missing.

    A resumed run replaces the file; it is then read from its start.
    """
    for lines in appended(path):
        yield [_RECORD.validate_json(line) for line in lines]


def begun(records: Iterable[IterationRecord]) -> dict[int, int]:
    """Each term's first iteration: an iteration of an earlier term is superseded from there on."""
    first: dict[int, int] = {}
    for record in records:
        first.setdefault(record.term, record.iteration)
    return first


T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)


class Sink(Protocol[T_contra]):
    """Takes records of a kind, in order."""

    def write(self, record: T_contra) -> None:
        """Take one record."""

    def close(self) -> None:
        """Flush and release what the sink holds."""


MetricsSink: TypeAlias = Sink[IterationRecord]


class JsonLines:
    """``metrics.jsonl``: one line per iteration, on disk as soon as it is written.

    Args:
        path: The file; its directory exists.
        first_iteration: Where the run starts or resumes. Lines of this iteration and later ones are
            dropped first, since they will be written again.
    """

    def __init__(self, path: Path, *, first_iteration: int) -> None:
        _truncate(path, first_iteration)
        self._file = path.open("a", encoding="utf-8")

    def write(self, record: IterationRecord) -> None:
        """Append a line and flush it."""
        self._file.write(to_line(record) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class Fanout(Generic[T]):
    """Several sinks as one; a sink that raises is dropped with one warning."""

    def __init__(self, sinks: Sequence[Sink[T]]) -> None:
        self._sinks = list(sinks)

    def write(self, record: T) -> None:
        """Give the record to every sink that still works."""
        for sink in list(self._sinks):
            try:
                sink.write(record)
            except Exception:
                self._sinks.remove(sink)
                _warn_dropped(sink)

    def close(self) -> None:
        """Close every sink."""
        for sink in self._sinks:
            try:
                sink.close()
            except Exception:
                _warn_dropped(sink)
        self._sinks.clear()


def _warn_dropped(sink: Sink[Any]) -> None:
    logger.warning("metrics_sink_dropped sink=%s", type(sink).__name__, exc_info=True)


def _truncate(path: Path, first_iteration: int) -> None:
    """Keep the whole lines of earlier iterations; the file is replaced, never half written."""
    if not path.exists():
        return
    partial = path.with_suffix(".partial")
    with (
        path.open(encoding="utf-8", errors="replace") as lines,
        partial.open("w", encoding="utf-8") as file,
    ):
        file.writelines(line for line in lines if _iteration_of(line) < first_iteration)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


def _iteration_of(line: str) -> float:
    """The line's iteration; infinite if the line is torn."""
    if not line.endswith("\n"):
        return math.inf
    try:
        return int(json.loads(line)["iteration"])
    except (ValueError, KeyError, TypeError):
        return math.inf


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    return value


def scalars(record: IterationRecord | Evaluated) -> dict[str, float]:
    """Tags and values, as TensorBoard and its like show them."""
    values = _played(record) if isinstance(record, Evaluated) else _committed(record)
    return {tag: float(value) for tag, value in values.items() if value is not None}


def _played(evaluated: Evaluated) -> dict[str, float]:
    intervals = {"mean": evaluated.returns, **evaluated.sides}
    return {
        f"{tag}/{side}": value
        for side, interval in intervals.items()
        for tag, value in zip(("return", "return_low", "return_high"), interval, strict=True)
    }


def _committed(record: IterationRecord) -> dict[str, float | None]:
    return {
        "return/mean": record.return_mean,
        **{f"return/{side}": value for side, value in record.side_returns.items()},
        "time/round_s": record.round_s,
        "time/collect_s": record.collect_s,
        "time/compute_s": max(record.compute_s.values(), default=None),
        "time/decode_s": record.decode_s,
        "code/received": len(record.received),
        "code/late": len(record.late),
        "code/exact": float(record.exact),
        "code/condition": record.condition,
        "code/error_bound": record.error_bound,
        "code/variance": record.variance,
        **{f"bytes_sent/{kind}": size for kind, size in record.bytes_sent.items()},
        **{f"bytes_received/{kind}": size for kind, size in record.bytes_received.items()},
    }
