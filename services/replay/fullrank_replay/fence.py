"""Who may write to a table: the controller that opened it last, and no earlier one of its run."""

import json
from pathlib import Path

from fullrank.common.durable import replace_text
from fullrank.common.errors import ConfigError, StaleTerm
from fullrank.common.types import JSON, RunTerm

FILE = "fence.json"


class Fence:
    """The run_term under which each table was opened last.

    Args:
        directory: Where it is kept, so that a restarted service refuses whom it refused before;
            None keeps it in memory, as the tables.

    Raises:
        ConfigError: The file is damaged.
    """

    def __init__(self, directory: Path | None) -> None:
        self._path = directory / FILE if directory is not None else None
        self._held = _read(self._path) if self._path is not None and self._path.exists() else {}

    def raise_to(self, table: str, run_term: RunTerm) -> None:
        """Admit a controller that opens the table; on disk when this returns.

        Raises:
            StaleTerm: A controller of its term, or of a later one, opened the table before.
        """
        held = self._held.get(table)
        if held is not None and held.run == run_term.run and run_term.term <= held.term:
            raise _deposed(table, run_term, held)
        self._held[table] = run_term
        if self._path is not None:
            replace_text(self._path, json.dumps(self._held, indent=2) + "\n")

    def check(self, table: str, run_term: RunTerm) -> None:
        """Refuse, with ``StaleTerm``, all but the controller that opened the table last."""
        held = self._held.get(table)
        if held is not None and held != run_term:
            raise _deposed(table, run_term, held)


def _deposed(table: str, run_term: RunTerm, held: RunTerm) -> StaleTerm:
    return StaleTerm(
        f"table {table!r} was opened in term {held.term} of run {held.run}; term {run_term.term} "
        f"of run {run_term.run} may not write to it: end this controller, another one is in office"
    )


def _read(path: Path) -> dict[str, RunTerm]:
    try:
        tables: JSON = json.loads(path.read_text())
        return {table: RunTerm(*held) for table, held in tables.items()}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise ConfigError(f"{path} is damaged ({error}); restore or remove it") from None
