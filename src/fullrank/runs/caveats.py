"""Lasting caveats: guarantees that a run has lost for good, until its end.

They are facts of the run and not of a controller: its directory and its mirror keep them, every
record says them from then on, and every later term reports them.
"""

from pathlib import Path

from fullrank.common.durable import replace_text
from fullrank.common.errors import FullrankError
from fullrank.common.foreign import TEXT, read_regular

CAVEATS = "caveats.txt"
"""File of a run directory with a line for each of them; missing where there is none."""
DISPUTED = "disputed.txt"
"""File of a run directory with a line for each dispute that could not be taken back."""


def lasting_caveats(run_dir: Path) -> list[str]:
    """Return the lasting caveats of a run, in the order in which they arose."""
    return _lines_of(run_dir / CAVEATS)


def disputes_of(run_dir: Path) -> list[str]:
    """Return disputes about committed iterations that could be neither proved nor taken back."""
    return _lines_of(run_dir / DISPUTED)


def keep_caveat(run_dir: Path, line: str) -> None:
    """Add a caveat, on disk when this returns, unless the run has it already.

    Raises:
        FullrankError: The file cannot be written.
    """
    held, path = lasting_caveats(run_dir), run_dir / CAVEATS
    if line in held:
        return
    try:
        replace_text(path, "".join(f"{caveat}\n" for caveat in [*held, line]))
    except OSError as error:
        raise FullrankError(
            f"cannot write {path}: {error.strerror}; make room and resume"
        ) from error


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
        f"replay lost rows before iteration {iteration}: of the acknowledged positions 0 to "
        f"{expected - 1} it held {held}; later minibatches, and so the bits, are not those of the "
        "run without the loss"
    )


def _lines_of(path: Path) -> list[str]:
    text = read_regular(path, TEXT.size) if path.exists() else b""
    return text.decode(errors="replace").splitlines()
