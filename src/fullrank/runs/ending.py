"""The end of a run, finished or failed for good, as its directory tells it."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import TypeAdapter, ValidationError

from fullrank.common.durable import replace_text
from fullrank.common.errors import FullrankError, Malformed
from fullrank.common.foreign import TEXT, parse_json, read_regular
from fullrank.runs.identity import IDENTITY, STAMP

ENDING = "ending"
"""Key of ``run.json``; each start of a controller drops it, since the run goes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """The state in which a run has ended."""

    state: Literal["finished", "failed"]
    reason: str
    """Line of the error by which it has failed, or what it has finished."""
    exit_code: int
    """Exit code of the process that ended it."""
    committed: int
    """Iterations committed."""
    settings: str
    """Digest of the settings under which it ended: under others it may go on."""

    def __str__(self) -> str:
        return f"run {self.state}: {self.reason}"


_ENDING = TypeAdapter(Ending)


def finished(*, committed: int, settings: str) -> Ending:
    """The end of a run that has committed all its iterations."""
    return Ending(
        state="finished",
        reason=f"{committed} iterations committed",
        exit_code=0,
        committed=committed,
        settings=settings,
    )


def failed(error: FullrankError, *, committed: int, settings: str) -> Ending:
    """The end of a run by a final error."""
    return Ending(
        state="failed",
        reason=str(error),
        exit_code=error.exit_code,
        committed=committed,
        settings=settings,
    )


def read_ending(run_dir: Path) -> Ending | None:
    """The end of the run in a directory; None if it has not ended or the directory holds no run."""
    try:
        facts = parse_json(read_regular(run_dir / IDENTITY, TEXT.size), origin=IDENTITY)
        return _ENDING.validate_python(facts[ENDING])
    except (Malformed, KeyError, TypeError, ValidationError):
        return None


def write_ending(run_dir: Path, ending: Ending) -> None:
    """Record the end of a run whose directory the caller holds; durable when this returns."""
    path = run_dir / IDENTITY
    facts = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {**STAMP}
    facts[ENDING] = _ENDING.dump_python(ending)
    replace_text(path, json.dumps(facts, indent=2) + "\n")
