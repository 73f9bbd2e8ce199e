"""What is injected: a delay model and faults, for each stream by the learner that it serves."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from types import MappingProxyType
from typing import TypeVar

from fullrank.common.types import LearnerId
from fullrank.config import Fault, Hold, PluginSettings, complete_stragglers
from fullrank.stragglers import DelayModel, delay_models, delay_of

F = TypeVar("F", bound=Fault)


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Whom a stream serves, as Welcome said."""

    learner: LearnerId
    seed: int
    learners: int
    """N."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Injection:
    """A delay model, as its settings and as itself, and faults."""

    settings: PluginSettings
    model: DelayModel
    faults: tuple[Fault, ...] = ()

    def check(self, identity: Identity) -> None:
        """Raise ``ConfigError`` if the model cannot be for this run's N."""
        self.model.delays(seed=identity.seed, iteration=0, learners=identity.learners)

    def delay_s(self, identity: Identity, iteration: int) -> float:
        """How late the learner's vector is; ``inf`` if it never comes."""
        if self.fault(Hold, identity, iteration) is not None:
            return inf
        return delay_of(
            self.model,
            seed=identity.seed,
            iteration=iteration,
            learner=identity.learner,
            learners=identity.learners,
        )

    def fault(self, kind: type[F], identity: Identity, iteration: int) -> F | None:
        """The first fault of a kind that strikes."""
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
    """What these settings inject.

    Args:
        settings: A table [stragglers].
        faults: Besides the delays.
        origin: Where each of the table's keys came from, for error messages.

    Raises:
        ConfigError: There is no such delay model, or not with such parameters.
    """
    complete = complete_stragglers(settings, origin)
    model = delay_models.build(complete.name, **complete.params)
    return Injection(settings=complete, model=model, faults=faults)
