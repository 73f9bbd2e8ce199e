"""The injection of a process, and who must hear when it changes."""

from typing import Protocol

from fullrank_straggler.injection import Identity, Injection


class Listener(Protocol):
    """A stream that the injection acts on."""

    @property
    def identity(self) -> Identity | None:
        """Whom it serves, from Welcome on."""

    def changed(self) -> None:
        """Take note of a change."""


class Control:
    """Holds what is injected; a change is one assignment, so that nobody sees half of it."""

    def __init__(self, injection: Injection) -> None:
        self._injection = injection
        self._listeners: set[Listener] = set()

    def injection(self) -> Injection:
        """What is injected now."""
        return self._injection

    def change(self, injection: Injection) -> None:
        """Inject this from now on.

        Raises:
            ConfigError: It cannot be for a run that passes through; nothing has changed.
        """
        for listener in self._listeners:
            if listener.identity is not None:
                injection.check(listener.identity)
        self._injection = injection
        for listener in self._listeners:
            listener.changed()

    @property
    def attached(self) -> int:
        """Streams that the injection acts on."""
        return len(self._listeners)

    def attach(self, listener: Listener) -> None:
        """Tell it of changes, until it is detached."""
        self._listeners.add(listener)

    def detach(self, listener: Listener) -> None:
        """Tell it no more."""
        self._listeners.discard(listener)
