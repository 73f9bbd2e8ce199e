"""Event logs: one line for each action of a service.

An event is written to ``<run>/history/<service>.jsonl`` by a single system call, so that
``kill -9`` loses none; a truncated line is skipped. Lines carry no times: their order matters, and
ids link the files of several services (docs/adr/0020-fault-harness.md).
"""

from io import FileIO
from mmap import ACCESS_READ, mmap
from pathlib import Path

from fullrank.common.errors import Malformed
from fullrank.common.foreign import regular
from fullrank.common.text import plain
from fullrank.runs.events import EVENT, Event

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
