"""Orders of a run to its host, and the events that the host answers with.

An order names what it is about by number; arrays stay with the host. Each is given once, and
answered by ``Done`` when it is executed.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RunOrder:
    """What a host is to do."""


@dataclass(frozen=True, slots=True)
class Open(RunOrder):
    """Open the table at the position from which the run resumes, and warm it up if it is empty."""


@dataclass(frozen=True, slots=True)
class Assemble(RunOrder):
    """Wait for the means to compute."""


@dataclass(frozen=True, slots=True)
class Play(RunOrder):
    """Play a collection with the current parameters; done once nothing reads them any more."""

    collection: int


@dataclass(frozen=True, slots=True)
class Collect(RunOrder):
    """Have the table hold a collection's transitions; play it unless that was begun."""

    collection: int


@dataclass(frozen=True, slots=True)
class Settle(RunOrder):
    """Fix the code and its holders for an iteration; its parameters are the current ones."""

    iteration: int


@dataclass(frozen=True, slots=True)
class Draw(RunOrder):
    """Fix the minibatch of an iteration."""

    iteration: int


@dataclass(frozen=True, slots=True)
class Audit(RunOrder):
    """Await late reports of the iterations before this one, and settle disputes on them."""

    iteration: int


@dataclass(frozen=True, slots=True)
class Compute(RunOrder):
    """Compute the update of an iteration."""

    iteration: int


@dataclass(frozen=True, slots=True)
class Apply(RunOrder):
    """Step the parameters by the update of an iteration, computed or known from the log."""

    iteration: int


@dataclass(frozen=True, slots=True)
class MakeDurable(RunOrder):
    """Make the applied iterations from this one on durable, then publish them."""

    iteration: int


@dataclass(frozen=True, slots=True)
class Hurry(RunOrder):
    """Let no iteration before this one wait for others that become durable with it."""

    iteration: int


@dataclass(frozen=True, slots=True)
class TakeCheckpoint(RunOrder):
    """Save the state after so many iterations, all applied and durable."""

    iterations: int


@dataclass(frozen=True, slots=True)
class Finish(RunOrder):
    """Say that all iterations are durable and audited."""


@dataclass(frozen=True, slots=True)
class RunEvent:
    """What a host tells a run."""


@dataclass(frozen=True, slots=True)
class Begin(RunEvent):
    """The host is ready."""


@dataclass(frozen=True, slots=True)
class Done(RunEvent):
    """An order is executed."""

    order: RunOrder


@dataclass(frozen=True, slots=True)
class Drawn(RunEvent):
    """The minibatch of an iteration is fixed, though its collection may still be played."""

    iteration: int


@dataclass(frozen=True, slots=True)
class Durable(RunEvent):
    """So many iterations are durable and published, before the order for it is done."""

    iterations: int


@dataclass(frozen=True, slots=True)
class Stop(RunEvent):
    """No further iteration is to begin; what is applied is still made durable."""

    void: bool = False
    """True if the state must not be checkpointed: it is disputed, or another controller's."""


@dataclass(frozen=True, slots=True)
class Save(RunEvent):
    """A checkpoint is wanted as soon as there is a state from which a run resumes."""


@dataclass(frozen=True, slots=True)
class Amend(RunEvent):
    """The run has another number of iterations from now on, at least ``RunMachine.least``."""

    iterations: int
