"""Fencing of tables: only the controller that opened a table last may write to it."""

import json
from pathlib import Path

from fullrank.common.durable import replace_text
from fullrank.common.errors import ConfigError, Malformed, StaleTerm
from fullrank.common.foreign import TEXT, parse_json, read_regular
from fullrank.common.formats import FORMAT, check_format
from fullrank.common.types import JSON, RunTerm

FILE = "fence.json"


class Fence:
    """The run term and the rules under which each table was opened last.

    Args:
        directory: Directory of its file, so that a restarted service still refuses stale
            controllers; None keeps it in memory, like the tables.

    Raises:
        ConfigError: The file is damaged.
        VersionMismatch: The file has another format.
    """

    def __init__(self, directory: Path | None) -> None:
        self._path = directory / FILE if directory is not None else None
        exists = self._path is not None and self._path.exists()
        self._held, self._arrivals = _read(self._path) if self._path and exists else ({}, {})

    def raise_to(self, table: str, run_term: RunTerm, *, arrival: JSON | None = None) -> None:
        """Admit the controller that opens the table; on disk when this returns.

        Args:
            table: Name of the table.
            run_term: The controller's.
            arrival: Rules of a table that grows by arrival, which a restarted service needs; None
                for one that the controller writes by position.

        Raises:
            StaleTerm: A controller of its term, or of a later one, opened the table before.
        """
        held = self._held.get(table)
        if held is not None and held.run == run_term.run and run_term.term <= held.term:
            raise _stale(table, run_term, held)
        self._held[table] = run_term
        self._arrivals.pop(table, None)
        if arrival is not None:
            self._arrivals[table] = arrival
        if self._path is not None:
            content = {"format": FORMAT, "tables": self._held, "arrivals": self._arrivals}
            replace_text(self._path, json.dumps(content, indent=2) + "\n")

    def arrival(self, table: str) -> JSON | None:
        """Return the rules under which the table was opened last."""
        return self._arrivals.get(table)

    def check(self, table: str, run_term: RunTerm) -> None:
        """Refuse, with ``StaleTerm``, all but the controller that opened the table last."""
        held = self._held.get(table)
        if held is not None and held != run_term:
            raise _stale(table, run_term, held)


def _stale(table: str, run_term: RunTerm, held: RunTerm) -> StaleTerm:
    return StaleTerm(
        f"table {table!r} was opened in term {held.term} of run {held.run}; term {run_term.term} "
        f"of run {run_term.run} may not write to it: stop this controller, a later one serves"
    )


def _read(path: Path) -> tuple[dict[str, RunTerm], dict[str, JSON]]:
    try:
        content: JSON = parse_json(read_regular(path, TEXT.size), origin=FILE)
        check_format(content.get("format", 1), where=str(path))
        tables = content["tables"] if "format" in content else content
        held = {table: RunTerm(*held) for table, held in tables.items()}
        return held, dict(content.get("arrivals", {})) if "format" in content else {}
    except (Malformed, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{path} is damaged ({error}); restore or remove it") from None
