"""Event logs: one line for each action of a service, from which invariants are checked.

An event is written to ``<run>/history/<service>.jsonl`` by a single system call, so that
``kill -9`` loses none; a truncated line is skipped. Lines carry no times: their order matters, and
ids link the files of several services (docs/adr/0020-fault-harness.md).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from io import FileIO
from itertools import count
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from pydantic import Field, TypeAdapter, ValidationError

from fullrank.common.errors import FullrankError
from fullrank.common.tailing import appended
from fullrank.common.types import LearnerId, UnitIndex

Held: TypeAlias = tuple[tuple[int, LearnerId], ...]
"""Rows of C with their holders."""

DIRECTORY = "history"
_SUFFIX = ".jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class Began:
    """A controller began a term."""

    event: Literal["began"] = "began"
    run: str
    term: int
    known: int
    """Number of iterations that it knows to be committed."""
    resumes_at: int
    """The first iteration that it asks learners for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """A learner joined and leased an index."""

    event: Literal["joined"] = "joined"
    term: int
    learner: LearnerId


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """A learner's stream ended."""

    event: Literal["left"] = "left"
    term: int
    learner: LearnerId
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochBegan:
    """An epoch began with a new C."""

    event: Literal["epoch_began"] = "epoch_began"
    term: int
    epoch: int
    matrix: tuple[tuple[float, ...], ...]
    """The matrix C."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Added:
    """An iteration got rows beyond those of C, each of one unit alone."""

    event: Literal["added"] = "added"
    term: int
    epoch: int
    iteration: int
    units: tuple[tuple[int, UnitIndex], ...]
    """Rows and their units."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assigned:
    """Rows were assigned, with the parameters after all earlier iterations."""

    event: Literal["assigned"] = "assigned"
    term: int
    epoch: int
    iteration: int
    attempt: int
    rows: Held


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A contribution came too late or twice."""

    event: Literal["refused"] = "refused"
    term: int
    learner: LearnerId
    iteration: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """An iteration is in the journal."""

    event: Literal["committed"] = "committed"
    term: int
    epoch: int
    iteration: int
    rows: Held
    """Rows from which the updates were decoded, with their holders."""
    digest: str
    exact: bool
    culprit: LearnerId | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """An iteration was applied and announced."""

    event: Literal["published"] = "published"
    term: int
    iteration: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenBack:
    """Iterations from ``first`` on were proved wrong; a later term commits them again."""

    event: Literal["taken_back"] = "taken_back"
    term: int
    first: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledged:
    """Replay acknowledged every position below ``head`` to the controller."""

    event: Literal["acknowledged"] = "acknowledged"
    term: int
    head: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reopened:
    """A replay service found a table on disk when it started."""

    event: Literal["reopened"] = "reopened"
    table: str
    head: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Truncated:
    """A controller opened a table and truncated it to the positions below ``head``."""

    event: Literal["truncated"] = "truncated"
    table: str
    head: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """Rows from ``first`` on were stored and are about to be acknowledged."""

    event: Literal["stored"] = "stored"
    table: str
    first: int
    head: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Welcomed:
    """A controller gave the learner an index."""

    event: Literal["welcomed"] = "welcomed"
    run: str
    term: int
    learner: LearnerId


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A learner is about to send a coded vector."""

    event: Literal["sent"] = "sent"
    run: str
    term: int
    epoch: int
    iteration: int
    attempt: int
    learner: LearnerId
    row: int
    batch_digest: str


Event: TypeAlias = Annotated[
    Began
    | Joined
    | Left
    | EpochBegan
    | Added
    | Assigned
    | Refused
    | Committed
    | Published
    | TakenBack
    | Acknowledged
    | Reopened
    | Truncated
    | Stored
    | Welcomed
    | Sent,
    Field(discriminator="event"),
]

_EVENT: TypeAdapter[Event] = TypeAdapter(Event)


class EventLog:
    """Event log of one service.

    A failed write ends the log, not the service.

    Args:
        run_dir: Directory of the run; None: events are discarded.
        service: Name of the file.
    """

    def __init__(self, run_dir: Path | None = None, service: str = "") -> None:
        self._file: FileIO | None = None
        if run_dir is not None:
            directory = run_dir / DIRECTORY
            directory.mkdir(parents=True, exist_ok=True)
            path = directory / f"{service}{_SUFFIX}"
            self._file = FileIO(path, "a")
            self._file.truncate(_whole_bytes(path))

    def append(self, event: Event) -> None:
        """Append an event; with fifteen rows this takes about 7 us."""
        if self._file is None:
            return
        line = _EVENT.dump_json(event) + b"\n"
        try:
            whole = self._file.write(line) == len(line)
        except OSError:
            whole = False
        if not whole:
            self.close()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
        self._file = None


def _whole_bytes(path: Path) -> int:
    """Number of bytes up to the last whole line; a full disk may have truncated the next."""
    if not path.stat().st_size:
        return 0
    with path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as content:
        return content.rfind(b"\n") + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """Events of the services of a run, each in its own order."""

    controller: Sequence[Event] = ()
    replay: Sequence[Event] = ()
    learners: Mapping[str, Sequence[Event]] = field(default_factory=dict)
    """Events of each learner process."""


def read_history(run_dir: Path) -> History:
    """The events in a run directory; empty for a service without a log.

    Raises:
        FullrankError: A line is damaged.
    """
    return next(follow(run_dir))


def follow(run_dir: Path) -> Iterator[History]:
    """Yield, for ever, the events appended since the last call.

    The controller's log is read first: the events that its own depend on were appended earlier, and
    so are read with them.

    Raises:
        FullrankError: A line is damaged.
    """
    directory = run_dir / DIRECTORY
    controller = _events(directory / f"controller{_SUFFIX}")
    others: dict[Path, Iterator[list[Event]]] = {}
    while True:
        controllers = next(controller)
        for path in sorted(directory.glob(f"*{_SUFFIX}")):
            if path.stem != "controller":
                others.setdefault(path, _events(path))
        logs = {path.stem: next(events) for path, events in others.items()}
        yield History(
            controller=controllers or (),
            replay=logs.get("replay", ()),
            learners={name: events for name, events in logs.items() if name.startswith("learner")},
        )


def _events(path: Path) -> Iterator[list[Event]]:
    """Yield, for ever, the events appended to a file since the last call, in order."""
    numbers = count(1)
    for lines in appended(path):
        yield [_event(path, next(numbers), line) for line in lines]


def _event(path: Path, number: int, line: bytes) -> Event:
    try:
        return _EVENT.validate_json(line)
    except ValidationError as error:
        raise FullrankError(f"{path}, line {number}, is not an event") from error
