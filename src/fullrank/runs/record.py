"""Lines of ``metrics.jsonl``: a record of each committed iteration, and condemnations.

A line is never taken back. Of an iteration the record of the highest term stands, unless it was
condemned since: ``stand`` is the one rule by which all readers go.
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping, MutableSequence, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeAlias

from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter

from fullrank.common.foreign import appended, lines_of
from fullrank.common.schema import BOUNDED, Index, Name, Ordinal, validated
from fullrank.common.types import JSON, LearnerId

METRICS = "metrics.jsonl"
"""File of a run directory with a line for each committed iteration."""
MOST_ROWS = 2**20
"""Most rows of C that the learners of a record hold together."""

ByLearner: TypeAlias = Mapping[Index, float]
Numbers: TypeAlias = Annotated[Mapping[Name, float | None], Field(max_length=4096)]
Bytes: TypeAlias = Annotated[Mapping[Name, Ordinal], Field(max_length=64)]


@dataclass(frozen=True, slots=True, kw_only=True)
class IterationRecord:
    """A line of ``metrics.jsonl``. Numbers that are not finite are written as null."""

    iteration: Ordinal
    term: Ordinal
    """Rises at every start of the controller, and where iterations are condemned."""
    epoch: Ordinal
    """Rises when C changes."""
    attempt: Index
    """Rises when rows are added within an iteration that could not be decided without them."""
    hedged: Index = 0
    """Units that idle learners computed, or began to, for late ones."""
    code: str
    code_rows: Ordinal = 0
    """R; 0 in files of earlier versions, as in the fields below that may be empty."""
    rows_per_learner: Annotated[int, Field(ge=1, le=MOST_ROWS)] = 1
    """Consecutive rows that each learner holds."""
    tolerance: Ordinal = 0
    """Learners that may be lost in any case."""
    variant: str = ""
    """Origin of the environment's dynamics and rewards, for example ``openai`` or ``mpe2``."""
    return_mean: float | None
    """Mean return of the episodes that ended, summed over agents; None if none ended."""
    side_returns: Numbers = field(default_factory=dict)
    """Mean return of each side of the agents; empty if no episode ended."""
    win_rate: float | None = None
    """Share of the episodes that ended with a win; None if none ended or the environment has no
    wins."""
    statistics: Numbers = field(default_factory=dict)
    """Statistics of learning and of whole episodes, by PyMARL's names, of several groups of agents
    as NAME/GROUP; absent for algorithms that have none."""
    round_s: float
    """Time from the first assignment written to the updated parameters, seconds; journalling
    overlaps the collection of the next iteration's transitions."""
    collect_s: float
    """Time to wait for the transitions and append them to replay, seconds."""
    play_s: float | None = None
    """Time to play the transitions, seconds, beside earlier updates where ``collect.lag`` lets it;
    None where collectors play freely."""
    update_s: float | None = None
    """Time of the update, from the first assignment of work to the updated parameters, seconds:
    ``round_s`` without the time for which this process plays first."""
    iteration_s: float | None = None
    """Time from the update before, or from the start of the term, to this one, seconds."""
    agent_updates_per_s: float | None = None
    """Agents times transitions, or episodes, of the minibatch, per second of ``iteration_s``; None
    where learners draw samples of their own."""
    env_steps_per_s: float | None = None
    """Environment steps of the iteration's collection, divided among the updates over it, per
    second of ``iteration_s``; None where they are not counted."""
    compute_s: ByLearner
    """Computing time that each received learner reported, seconds."""
    assigned_s: ByLearner = field(default_factory=dict)
    """Time at which each assignment was handed to its stream, seconds since the first one."""
    started_s: ByLearner = field(default_factory=dict)
    """Time at which each received learner had all that it computes with, seconds since the first
    assignment: the learner's own duration, added to the time at which its assignment was
    written."""
    sent_s: ByLearner = field(default_factory=dict)
    """Time at which each received learner began to send, measured in the same way."""
    arrival_s: ByLearner = field(default_factory=dict)
    """Time at which all coded vectors of each learner had arrived, seconds since the first
    assignment."""
    decodable_s: float | None = None
    """Time at which the received rows reached rank M, seconds since the first assignment."""
    audited: Mapping[Index, Index] = field(default_factory=dict)
    """Units of each learner, late ones included, whose digest was compared with the committed
    one."""
    rows: Mapping[Index, Index] = field(default_factory=dict)
    """The row of C that each learner was assigned, the first of them where it holds several."""
    decode_s: float
    """Time to decode and check, seconds."""
    received: tuple[Index, ...]
    """Learners of the rows J that were used, in order of arrival."""
    late: tuple[Index, ...]
    """Learners with assigned rows of which the commit did not wait for any."""
    exact: bool
    """True if the committed bits are independent of J."""
    condition: float | None
    """Two-norm condition number of C_J; None if it is not finite."""
    error_bound: float | None
    """Largest possible error of an entry; 0 when exact, None if unknown."""
    variance: float | None = None
    """Predicted variance of the updates with ``algorithm.data = independent``: mean over the units,
    relative to that of a single learner's update."""
    update_digest: str
    """Hexadecimal digest of the committed updates."""
    quarantined: tuple[Index, ...] = ()
    """Learners whose contribution was found wrong and left out; they hold no row afterwards."""
    caveats: tuple[str, ...] = ()
    """Guarantees that the run had lost for good by then; absent where there are none."""
    bytes_sent: Bytes
    """Bytes that the controller wrote to learners' streams: ``parameters`` (assignments and
    sections), ``commit`` and ``refused``. Sections in shared memory and minibatches, which come
    from replay, are not included."""
    bytes_received: Bytes
    """Payload bytes that the controller read from learners' streams: ``coded`` and ``digests``."""

    __pydantic_config__: ClassVar[ConfigDict] = BOUNDED

    @property
    def spent_s(self) -> float:
        """Time of training that the iteration took, seconds."""
        return self.iteration_s or self.collect_s + self.round_s

    def rows_of(self, learner: LearnerId) -> Sequence[int]:
        """The rows that a learner was assigned first: its share of C, or one that was added."""
        first, each = self.rows.get(learner), self.rows_per_learner
        if first is None:
            return ()
        return (first,) if first >= self.code_rows else range(first, (first // each + 1) * each)


@dataclass(frozen=True, slots=True, kw_only=True)
class Condemnation:
    """A line of ``metrics.jsonl``: a committed iteration and all after it do not stand."""

    condemned: Ordinal
    """The first of them."""
    term: Ordinal
    """Term of the controller that condemned them."""

    __pydantic_config__: ClassVar[ConfigDict] = BOUNDED

    @property
    def iteration(self) -> int:
        """The first iteration that does not stand."""
        return self.condemned

    def __str__(self) -> str:
        return f"condemned: iterations {self.condemned} and later, in term {self.term}"


Line: TypeAlias = IterationRecord | Condemnation


def stand(records: MutableSequence[IterationRecord], line: Line) -> bool:
    """Let a line take its place among the records that stand before it.

    Args:
        records: Those records, or the last of them, in order.
        line: The next line.

    Returns:
        False if it changes nothing: it repeats a record, is of a controller that was superseded, or
        condemns no record.
    """
    covers = bool(records) and line.iteration <= records[-1].iteration
    if isinstance(line, Condemnation):
        if not covers:
            return False
    elif covers and line.term <= records[-1].term:
        return False
    while records and records[-1].iteration >= line.iteration:
        records.pop()
    if not isinstance(line, Condemnation):
        records.append(line)
    return True


def _bounded(record: IterationRecord) -> IterationRecord:
    """Return a record whose rows readers can list.

    Raises:
        ValueError: Its learners hold more rows than any code has.
    """
    if len(record.assigned_s) * record.rows_per_learner > MOST_ROWS:
        raise ValueError(f"its learners hold more than {MOST_ROWS} rows")
    return record


_RECORD: TypeAdapter[IterationRecord] = TypeAdapter(
    Annotated[IterationRecord, AfterValidator(_bounded)]
)
_CONDEMNATION: TypeAdapter[Condemnation] = TypeAdapter(Condemnation)
_CONDEMNED = b'{"condemned": '
_NAMES = tuple(attribute.name for attribute in fields(IterationRecord))
_WHERE_GIVEN = frozenset({"statistics", "caveats"})


def to_facts(record: IterationRecord) -> JSON:
    """The record as JSON."""
    values = {name: _finite(getattr(record, name)) for name in _NAMES}
    return {name: value for name, value in values.items() if value or name not in _WHERE_GIVEN}


def from_facts(facts: JSON) -> IterationRecord:
    """The inverse of ``to_facts``, also for facts from elsewhere.

    Raises:
        Malformed: They are not those of a record.
    """
    return validated(_RECORD, facts, origin="the iteration")


def to_line(line: Line) -> str:
    """The line as JSON, without the newline."""
    facts = asdict(line) if isinstance(line, Condemnation) else to_facts(line)
    return json.dumps(facts, allow_nan=False)


def read_records(path: Path) -> list[IterationRecord]:
    """The records of a ``metrics.jsonl`` that stand; a truncated last line is ignored.

    Raises:
        Malformed: The file cannot be read, or another line is damaged.
    """
    records: list[IterationRecord] = []
    for number, line in enumerate(lines_of(path), start=1):
        stand(records, read_line(line, origin=f"{path}, line {number}, is not a metrics record"))
    return records


def read_line(line: bytes, *, origin: str) -> Line:
    """The inverse of ``to_line``, also for lines from elsewhere.

    Raises:
        Malformed: It is no such line; the message begins with ``origin``.
    """
    if line.startswith(_CONDEMNED):
        return validated(_CONDEMNATION, line, origin=origin)
    return validated(_RECORD, line, origin=origin)


def condemnations(run_dir: Path) -> list[Condemnation]:
    """The condemnations of a run, the oldest first.

    Raises:
        Malformed: Its ``metrics.jsonl`` cannot be read.
    """
    path = run_dir / METRICS
    lines = lines_of(path) if path.exists() else ()
    found = (line for line in lines if line.startswith(_CONDEMNED))
    return [validated(_CONDEMNATION, line, origin=f"{path} has a damaged line") for line in found]


def published(run_dir: Path) -> int:
    """Number of iterations that a run has published; 0 if it has no ``metrics.jsonl``.

    Raises:
        FullrankError: As ``read_records``.
    """
    path = run_dir / METRICS
    records = read_records(path) if path.exists() else []
    return records[-1].iteration + 1 if records else 0


def follow_lines(path: Path) -> Iterator[list[Line]]:
    """Yield, for ever, the lines completed since the last call; none while there is no file.

    A file that was damaged is replaced by a resumed run, and then read from its start.

    Raises:
        Malformed: The file cannot be read, or a line is damaged.
    """
    for lines in appended(path):
        yield [read_line(line, origin=f"{path} has a damaged line") for line in lines]


def follow(path: Path) -> Iterator[list[IterationRecord]]:
    """Yield the records among these lines, for a reader to whom a later one is as good."""
    for lines in follow_lines(path):
        yield [line for line in lines if isinstance(line, IterationRecord)]


def begun(records: Iterable[IterationRecord]) -> dict[int, int]:
    """First iteration of each term; from there on, iterations of earlier terms are superseded."""
    first: dict[int, int] = {}
    for record in records:
        first.setdefault(record.term, record.iteration)
    return first


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    return value
