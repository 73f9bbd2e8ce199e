"""Current injection of a process, and the streams to notify of changes."""

from typing import Protocol

from fullrank_straggler.injection import Injection, StreamIdentity


class Listener(Protocol):
    """A stream that the injection applies to."""

    @property
    def identity(self) -> StreamIdentity | None:
        """Learner that it serves; None before Welcome."""

    def changed(self) -> None:
        """Handle a change of the injection."""


class Control:
    """Holds the injection; a change is one assignment and therefore atomic."""

    def __init__(self, injection: Injection) -> None:
        self._injection = injection
        self._listeners: set[Listener] = set()

    def injection(self) -> Injection:
        """The current injection."""
        return self._injection

    def change(self, injection: Injection) -> None:
        """Replace the injection.

        Raises:
            ConfigError: It is impossible for a run that passes through; the injection is unchanged.
        """
        for listener in self._listeners:
            if listener.identity is not None:
                injection.check(listener.identity)
        self._injection = injection
        for listener in self._listeners:
            listener.changed()

    @property
    def attached(self) -> int:
        """Number of streams that the injection applies to."""
        return len(self._listeners)

    def attach(self, listener: Listener) -> None:
        """Notify a stream of changes until it is detached."""
        self._listeners.add(listener)

    def detach(self, listener: Listener) -> None:
        """Stop notifying a stream."""
        self._listeners.discard(listener)
