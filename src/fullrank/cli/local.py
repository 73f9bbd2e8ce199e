"""A run in this process: no services, the same files, shown live."""

import logging
import os
import time
from pathlib import Path

from fullrank.cli.log import start_log
from fullrank.cli.processes import ensure_idle
from fullrank.cli.progress import ProgressView, view
from fullrank.cli.serve import find
from fullrank.cli.terminal import Terminal
from fullrank.config import RunConfig, load
from fullrank.host.process import Launch
from fullrank.runs.record import IterationRecord

SHOW_S = 0.2
"""Shortest time between two updates of the view."""


def run_in_process(path: Path, config: RunConfig, console: Terminal) -> None:
    """Run, or continue, the run in ``path`` to its end.

    Raises:
        KeyboardInterrupt: It was told to stop; its committed iterations are checkpointed.
        FullrankError: The run failed.
    """
    ensure_idle(path)
    _log_to(path / "logs" / "local.log")
    main = find("local")
    launch = load(path / "config.toml", environ=os.environ, overrides=())
    shown = view(console, iterations=config.iterations)
    try:
        shown.say(f"run {path}")
        shown.say(f"training in {path}")
        code = main(
            Launch(
                resolved=launch,
                run_dir=path,
                until_finished=True,
                observers=[_Batches(shown)],
                report=lambda text: shown.say(text or f"training in {path}"),
            )
        )
        if code:
            shown.say(f"stopped; continue with: fullrank resume --local {path}")
            raise KeyboardInterrupt
    finally:
        shown.close()


def _log_to(path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    start_log(logging.FileHandler(path, mode="w", delay=True))


class _Batches:
    """A receiver of records that updates a view a few times a second.

    Args:
        shown: The view.
    """

    def __init__(self, shown: ProgressView) -> None:
        self._shown = shown
        self._pending: list[IterationRecord] = []
        self._shown_at = 0.0

    def write(self, record: IterationRecord) -> None:
        """Show the record, or keep it for the next update."""
        self._pending.append(record)
        if time.monotonic() >= self._shown_at + SHOW_S:
            self.close()

    def close(self) -> None:
        """Show the records that were kept."""
        self._shown.show(self._pending)
        self._pending, self._shown_at = [], time.monotonic()
