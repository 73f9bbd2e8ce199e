"""Cancellation of a computation that runs on a thread."""

import threading

from fullrank.common.errors import Cancelled


class Cancellation:
    """Asks a computing thread to stop at its next check.

    Args:
        reason: Text of the error that stops it.
    """

    def __init__(self, reason: str) -> None:
        self._reason = reason
        self._asked = threading.Event()

    def ask(self) -> None:
        """Let every further check raise."""
        self._asked.set()

    def check(self) -> None:
        """Raise ``Cancelled`` once asked to; called by the computing thread between stages."""
        if self._asked.is_set():
            raise Cancelled(self._reason)
