"""The outcome of one run under injected faults."""

from dataclasses import dataclass, field


class InvariantBroken(Exception):
    """The event logs of a run violate an invariant."""


@dataclass(slots=True)
class FaultOutcome:
    """Faults injected into a run, and the guarantees that it broke."""

    seed: int
    faults: list[str] = field(default_factory=list)
    """The injected faults, in order."""
    violations: list[str] = field(default_factory=list)
    """Empty when all guarantees hold."""
