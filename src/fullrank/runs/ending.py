"""The end of a run, of a command that trained it, and its lasting caveats, in its directory.

Lasting caveats are guarantees that a run has lost for good. They are facts of the run and not of a
controller: its directory and its store keep them, every record says them from then on, and every
later term reports them.
"""

import json
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import TypeAdapter, ValidationError

from fullrank.common.durable import ROOM, replace_text, writing
from fullrank.common.errors import FullrankError, Malformed
from fullrank.common.foreign import TEXT, brief, parse_json, read_regular
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
    with suppress(Malformed):
        return ending_in(read_regular(run_dir / IDENTITY, TEXT.size))
    return None


def ending_in(identity: str | bytes) -> Ending | None:
    """The end of a run in the text of its ``run.json``; None without one."""
    with suppress(Malformed, KeyError, TypeError, ValidationError):
        return _ENDING.validate_python(parse_json(identity, origin=IDENTITY)[ENDING])
    return None


def write_ending(run_dir: Path, ending: Ending) -> None:
    """Record the end of a run whose directory the caller holds; durable when this returns."""
    path = run_dir / IDENTITY
    facts = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {**STAMP}
    facts[ENDING] = _ENDING.dump_python(ending)
    replace_text(path, json.dumps(facts, indent=2) + "\n")


OUTCOME = "logs/outcome.json"
"""File of a run directory with the outcome of the last command that trained in it."""


def leave_outcome(run_dir: Path, code: int, reason: str = "") -> None:
    """Leave exit code and reason, if there is a directory still; a failed start leaves none."""
    facts = {"exit_code": code, "reason": brief(" ".join(reason.split()), limit=1000)}
    with suppress(OSError):
        (run_dir / OUTCOME).parent.mkdir(exist_ok=True)
        replace_text(run_dir / OUTCOME, json.dumps(facts) + "\n")


def read_outcome(run_dir: Path) -> tuple[int, str] | None:
    """Exit code and reason; None without them, or if a controller has begun a term since."""
    with suppress(Malformed, KeyError, TypeError, ValueError):
        facts = parse_json(read_regular(run_dir / OUTCOME, TEXT.size), origin=OUTCOME)
        if is_since(run_dir / OUTCOME, run_dir / IDENTITY):
            return int(facts["exit_code"]), brief(str(facts["reason"]), limit=1000)
    return None


def is_since(file: Path, beginning: Path) -> bool:
    """True unless a file is older than another one, with which a later process has begun."""
    with suppress(OSError):
        return file.stat().st_mtime_ns >= beginning.stat().st_mtime_ns
    return True


CAVEATS = "caveats.txt"
"""File of a run directory with a line for each of them; missing where there is none."""


def lasting_caveats(run_dir: Path) -> list[str]:
    """Return the lasting caveats of a run, in the order in which they arose."""
    path = run_dir / CAVEATS
    text = read_regular(path, TEXT.size) if path.exists() else b""
    return text.decode(errors="replace").splitlines()


def keep_caveat(run_dir: Path, line: str) -> None:
    """Add a caveat, on disk when this returns, unless the run has it already.

    Raises:
        FullrankError: The file cannot be written.
    """
    if line not in (held := lasting_caveats(run_dir)):
        _write_caveats(run_dir, [*held, line])


def add_caveats(run_dir: Path, stored: str) -> None:
    """Add the caveats in the text of another ``caveats.txt`` of the run; raises alike."""
    _write_caveats(run_dir, dict.fromkeys([*stored.splitlines(), *lasting_caveats(run_dir)]))


def _write_caveats(run_dir: Path, caveats: Iterable[str]) -> None:
    path = run_dir / CAVEATS
    with writing(path, remedy=ROOM):
        replace_text(path, "".join(f"{caveat}\n" for caveat in caveats))


_LOSS = "replay lost rows before iteration "


def rows_lost(*, iteration: int, expected: int, tail: int, head: int) -> str:
    """Return the caveat of a run whose table does not hold the rows that it was told are stored.

    Args:
        iteration: The iteration that is committed next.
        expected: One past the last position that the run goes on from.
        tail: Oldest position held.
        head: One past the newest position held.
    """
    held = f"only positions {tail} to {head - 1}" if head > tail else "none"
    return (
        f"{_LOSS}{iteration}: of the acknowledged positions 0 to "
        f"{expected - 1} it held {held}; later minibatches, and so the bits, are not those of the "
        "run without the loss"
    )


def held_since(caveats: Iterable[str]) -> int:
    """Return the first iteration after the last loss of rows, by caveats; 0 if none is lost."""
    found = (re.match(rf"{re.escape(_LOSS)}(\d{{1,18}}):", each) for each in caveats)
    return max((int(each[1]) for each in found if each), default=0)
