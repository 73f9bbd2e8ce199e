"""Injection: a delay model and faults, applied to each stream by its learner, and their changes."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from types import MappingProxyType
from typing import Protocol, TypeVar

from fullrank.common.types import LearnerId
from fullrank.config.faults import Fault, HoldFault
from fullrank.config.plugins import complete_stragglers
from fullrank.config.tree import PluginSettings
from fullrank.stragglers import DelayModel, delay_models, delay_of

F = TypeVar("F", bound=Fault)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamIdentity:
    """Learner of a stream, from its Welcome message."""

    learner: LearnerId
    seed: int
    learners: int
    """Number of learners, N."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Injection:
    """A delay model with its settings, and faults."""

    settings: PluginSettings
    model: DelayModel
    faults: tuple[Fault, ...] = ()

    def check(self, identity: StreamIdentity) -> None:
        """Raise ``ConfigError`` if the model is impossible for this run's N."""
        self.model.delays(seed=identity.seed, iteration=0, learners=identity.learners)

    def delay_s(self, identity: StreamIdentity, iteration: int) -> float:
        """Delay of the learner's vector, seconds; ``inf`` if it is held for ever."""
        if self.fault(HoldFault, identity, iteration) is not None:
            return inf
        return delay_of(
            self.model,
            seed=identity.seed,
            iteration=iteration,
            learner=identity.learner,
            learners=identity.learners,
        )

    def fault(self, kind: type[F], identity: StreamIdentity, iteration: int) -> F | None:
        """The first fault of a kind that applies."""
        for fault in self.faults:
            if isinstance(fault, kind) and fault.strikes(
                learner=identity.learner, iteration=iteration
            ):
                return fault
        return None


def injection_of(
    settings: PluginSettings,
    faults: tuple[Fault, ...] = (),
    *,
    origin: Mapping[str, str] = MappingProxyType({}),
) -> Injection:
    """An injection from settings.

    Args:
        settings: A table [stragglers].
        faults: Faults besides the delays.
        origin: Origin of each key of the table, for error messages.

    Raises:
        ConfigError: The delay model does not exist or does not take these parameters.
    """
    complete = complete_stragglers(settings, origin)
    model = delay_models.build(complete.name, **complete.params)
    return Injection(settings=complete, model=model, faults=faults)


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
