"""Events of a run: actions of its services, from which invariants are checked.

An event is one line of ``<run>/history/<service>.jsonl``, written by a single system call, so that
``kill -9`` loses none; a truncated line is skipped. Lines carry no times: their order matters, and
ids link the files of several services (docs/adr/0020-fault-harness.md).
"""

from dataclasses import dataclass
from io import FileIO
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from pydantic import Field, TypeAdapter

from fullrank.common.errors import Malformed
from fullrank.common.foreign import regular
from fullrank.common.text import plain
from fullrank.common.types import LearnerId, UnitIndex

HeldRows: TypeAlias = tuple[tuple[int, LearnerId], ...]
"""Rows of C with their holders."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _OfTerm:
    """An event in a term of a controller."""

    term: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _OfIteration:
    """An event of an iteration in a term."""

    term: int
    iteration: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Began(_OfTerm):
    """A controller began a term."""

    event: Literal["began"] = "began"
    run: str
    known: int
    """Number of iterations that it knows to be committed."""
    resumes_at: int
    """The first iteration that it asks learners for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined(_OfTerm):
    """A learner joined and leased an index."""

    event: Literal["joined"] = "joined"
    learner: LearnerId


@dataclass(frozen=True, slots=True, kw_only=True)
class Left(_OfTerm):
    """A learner's stream ended."""

    event: Literal["left"] = "left"
    learner: LearnerId
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochBegan(_OfTerm):
    """An epoch began with a new C."""

    event: Literal["epoch_began"] = "epoch_began"
    epoch: int
    matrix: tuple[tuple[float, ...], ...]
    """The matrix C."""
    target: tuple[tuple[float, ...], ...] = ()
    """The target T that C recovers; empty if it is every unit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NumericsBegan(_OfIteration):
    """From an iteration on, rows are held by learners of one numeric fingerprint alone."""

    event: Literal["numerics_began"] = "numerics_began"
    identity: str
    """Digest of fingerprint and probe."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Added(_OfIteration):
    """An iteration got rows beyond those of C, each of one unit alone."""

    event: Literal["added"] = "added"
    epoch: int
    units: tuple[tuple[int, UnitIndex], ...]
    """Rows and their units."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assigned(_OfIteration):
    """Rows were assigned, with the parameters after all earlier iterations."""

    event: Literal["assigned"] = "assigned"
    epoch: int
    attempt: int
    rows: HeldRows


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused(_OfIteration):
    """A contribution came too late or twice."""

    event: Literal["refused"] = "refused"
    learner: LearnerId
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed(_OfIteration):
    """An iteration is in the journal."""

    event: Literal["committed"] = "committed"
    epoch: int
    rows: HeldRows
    """Rows from which the updates were decoded, with their holders."""
    digest: str
    exact: bool
    culprit: LearnerId | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Published(_OfIteration):
    """An iteration was applied and announced."""

    event: Literal["published"] = "published"


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenBack(_OfTerm):
    """Iterations from ``first`` on were proved wrong; a later term commits them again."""

    event: Literal["taken_back"] = "taken_back"
    first: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockAssigned(_OfIteration):
    """A collector was assigned a block of an iteration; several may be assigned the same one."""

    event: Literal["block_assigned"] = "block_assigned"
    block: int
    collector: int
    version: int | None = None
    """Updates that its parameters have taken; None in histories of earlier versions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledged(_OfTerm):
    """Replay acknowledged every position below ``head`` to the controller."""

    event: Literal["acknowledged"] = "acknowledged"
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
    items: tuple[int, ...] = ()
    """Items of the minibatch that the learner fetched; empty: all."""


_OfLearners: TypeAlias = Joined | Left | EpochBegan | NumericsBegan | Added | Assigned | Refused
_OfIterations: TypeAlias = Began | Committed | Published | TakenBack | BlockAssigned | Acknowledged
_OfOthers: TypeAlias = Reopened | Truncated | Stored | Welcomed | Sent
Event: TypeAlias = Annotated[_OfLearners | _OfIterations | _OfOthers, Field(discriminator="event")]
"""What a controller says of its learners and of iterations; what replay and learners say."""

EVENT: TypeAdapter[Event] = TypeAdapter(Event)
"""Reads and writes an event as JSON."""


DIRECTORY = "history"
SUFFIX = ".jsonl"


class EventLog:
    """Event log of one service.

    A failed write ends the log, not the service.

    Args:
        run_dir: Directory of the run; None: events are discarded.
        service: Name of the file.

    Raises:
        Malformed: There is something else than a file.
    """

    def __init__(self, run_dir: Path | None = None, service: str = "") -> None:
        self._file: FileIO | None = None
        if run_dir is not None:
            directory = run_dir / DIRECTORY
            directory.mkdir(parents=True, exist_ok=True)
            path = directory / f"{service}{SUFFIX}"
            try:
                self._file = FileIO(path, "a", opener=regular)
            except OSError as error:
                reason = error.strerror or error
                raise Malformed(f"cannot write {plain(path)}: {reason}; remove it") from error
            self._file.truncate(whole_bytes(path))

    def append(self, event: Event) -> None:
        """Append an event; with fifteen rows this takes about 7 us."""
        if self._file is None:
            return
        line = EVENT.dump_json(event) + b"\n"
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


def whole_bytes(path: Path) -> int:
    """Number of bytes up to the last whole line; the next may be truncated, or being written."""
    if not path.stat().st_size:
        return 0
    with (
        open(path, "rb", opener=regular) as file,
        mmap(file.fileno(), 0, access=ACCESS_READ) as content,
    ):
        return content.rfind(b"\n") + 1
