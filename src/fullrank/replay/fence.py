"""Fencing of tables: of a run's controllers, only the one that opened a table last may write to it.

The fence of a run lies beside its tables, so that a service holds the tables of many runs and each
of them is moved, copied or removed with its fence.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeGuard

from fullrank.common.durable import replace_text
from fullrank.common.errors import ConfigError, FullrankError, Malformed, StaleTerm
from fullrank.common.foreign import FORMAT, TEXT, check_format, parse_json, read_regular
from fullrank.common.types import JSON, RunTerm
from fullrank.replay.storage import refused

FILE = "fence.json"


@dataclass(slots=True)
class FenceState:
    """Term under which each table of a run was opened last, by the table's name."""

    terms: dict[str, RunTerm] = field(default_factory=dict)
    ended: bool = False
    """True once the run has ended, until it opens a table again."""


class Fence:
    """The run term under which each table was opened last.

    Args:
        directory: Directory of the tables, with a folder for each run, so that a restarted service
            still refuses stale controllers; None keeps the fence in memory, like the tables.
    """

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory
        self._runs: dict[str, FenceState] = {}

    def raise_to(self, key: str, run_term: RunTerm) -> None:
        """Admit the controller that opens the table; on disk when this returns.

        Args:
            key: Key of the table.
            run_term: The controller's.

        Raises:
            StaleTerm: Another controller of its term, or of a later one, opened the table before.
            ConfigError: The file of the fence is damaged.
            VersionMismatch: The file has another format.
            StorageFailed: There is no room for the file; nobody is admitted.
        """
        run, table = key.split("/")
        held = self._of(run)
        last = held.terms.get(table)
        if _bars(last, run_term):
            raise _stale(table, run_term, last)
        held.terms[table] = run_term
        held.ended = False
        self._write(run, held)

    def close(self, key: str, run_term: RunTerm) -> None:
        """Note, on disk, that a run has ended; raises like ``raise_to``, save for its own term."""
        run, table = key.split("/")
        held = self._of(run)
        last = held.terms.get(table)
        if last is not None and run_term.term < last.term:
            raise _stale(table, run_term, last)
        held.ended = True
        if last is not None:
            self._write(run, held)

    @property
    def open_runs(self) -> set[str]:
        """The runs that have opened a table and have not ended, also before a restart."""
        folders = self._directory.glob(f"*/{FILE}") if self._directory is not None else ()
        return {
            run
            for run in (*self._runs, *(path.parent.name for path in folders))
            if self._is_open(run)
        }

    def _is_open(self, run: str) -> bool:
        try:
            held = self._of(run)
        except FullrankError:  # a damaged fence ends no service of other runs
            return True
        return bool(held.terms) and not held.ended

    def opened(self, key: str) -> RunTerm | None:
        """Return the term that opened the table last; None if none has."""
        run, table = key.split("/")
        return self._of(run).terms.get(table)

    def check(self, key: str, run_term: RunTerm) -> None:
        """Refuse, with ``StaleTerm``, all but the controller that opened the table last."""
        run, table = key.split("/")
        last = self._of(run).terms.get(table)
        if last is not None and last != run_term:
            raise _stale(table, run_term, last)

    def _write(self, run: str, held: FenceState) -> None:
        if self._directory is None:
            return
        path = self._directory / run / FILE
        try:
            write_fence(path, held)
        except OSError as error:
            del self._runs[run]  # the file tells who was admitted
            raise refused("write", path, error) from error

    def _of(self, run: str) -> FenceState:
        if run not in self._runs:
            path = self._directory / run / FILE if self._directory is not None else None
            self._runs[run] = (
                read_fence(path) if path is not None and path.exists() else FenceState()
            )
        return self._runs[run]


def _bars(last: RunTerm | None, run_term: RunTerm) -> TypeGuard[RunTerm]:
    """Tell if the controller that opened a table last bars another one from opening it.

    A fence of another run came with the table of the copied directory.
    """
    if last is None or last.run != run_term.run:
        return False
    repeats = run_term.instance != 0 and last == run_term
    return run_term.term <= last.term and not repeats


def _stale(table: str, run_term: RunTerm, last: RunTerm) -> StaleTerm:
    said = f"table {table!r} was opened in term {last.term} of run {last.run}"
    if run_term.term != last.term:
        return StaleTerm(
            f"{said}; term {run_term.term} may not write to it: stop this controller, a later one "
            "serves"
        )
    return StaleTerm(
        f"{said} by another controller, whose run directory is a copy of this one, or this one of "
        "it: stop this controller, or start it again to go on here and to end the other one"
    )


def read_fence(path: Path) -> FenceState:
    """Read the fence of a run.

    Raises:
        ConfigError: The file is damaged.
        VersionMismatch: It has another format.
    """
    try:
        content: JSON = parse_json(read_regular(path, TEXT.size), origin=FILE)
        check_format(content.get("format", 1), where=str(path))
        tables = content["tables"] if "format" in content else content
        held = {table: RunTerm(*held) for table, held in tables.items()}
        return FenceState(held, content.get("ended") is True)
    except (Malformed, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{path} is damaged ({error}); restore or remove it") from None


def write_fence(path: Path, held: FenceState) -> None:
    """Write the fence of a run, whose folder is made if it is missing."""
    content = {"format": FORMAT, "tables": held.terms, "ended": held.ended}
    replace_text(path, json.dumps(content, indent=2) + "\n")
