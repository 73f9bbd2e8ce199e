"""Orders of a run to its host, and the events that the host answers with.

An order names what it is about by number; arrays stay with the host. Each is given once, and
answered by ``Done`` when it is executed.
"""

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Open:
    """Open the table at the position from which the run resumes, and warm it up if it is empty."""


@dataclass(frozen=True, slots=True)
class Assemble:
    """Wait for the means to compute."""


@dataclass(frozen=True, slots=True)
class Play:
    """Play a collection with the current parameters; done once nothing reads them any more."""

    collection: int


@dataclass(frozen=True, slots=True)
class Collect:
    """Have the table hold a collection's transitions; play it unless that was begun."""

    collection: int


@dataclass(frozen=True, slots=True)
class Settle:
    """Fix the code and its holders for an iteration; its parameters are the current ones."""

    iteration: int


@dataclass(frozen=True, slots=True)
class Draw:
    """Fix the minibatch of an iteration."""

    iteration: int


@dataclass(frozen=True, slots=True)
class Audit:
    """Await late reports of the iterations before this one, and settle disputes on them."""

    iteration: int


@dataclass(frozen=True, slots=True)
class Compute:
    """Compute the update of an iteration."""

    iteration: int


@dataclass(frozen=True, slots=True)
class Apply:
    """Step the parameters by the update of an iteration, computed or known from the log."""

    iteration: int


@dataclass(frozen=True, slots=True)
class MakeDurable:
    """Make the applied iterations from this one on durable, then publish them."""

    iteration: int


@dataclass(frozen=True, slots=True)
class Hurry:
    """Let no iteration before this one wait for others that become durable with it."""

    iteration: int


@dataclass(frozen=True, slots=True)
class TakeCheckpoint:
    """Save the state after so many iterations, all applied and durable."""

    iterations: int


@dataclass(frozen=True, slots=True)
class Finish:
    """Say that all iterations are durable and audited."""


RunOrder: TypeAlias = (
    Open
    | Assemble
    | Play
    | Collect
    | Settle
    | Draw
    | Audit
    | Compute
    | Apply
    | MakeDurable
    | Hurry
    | TakeCheckpoint
    | Finish
)


@dataclass(frozen=True, slots=True)
class Begin:
    """The host is ready."""


@dataclass(frozen=True, slots=True)
class Done:
    """An order is executed."""

    order: RunOrder


@dataclass(frozen=True, slots=True)
class Drawn:
    """The minibatch of an iteration is fixed, though its collection may still be played."""

    iteration: int


@dataclass(frozen=True, slots=True)
class Durable:
    """So many iterations are durable and published, before the order for it is done."""

    iterations: int


@dataclass(frozen=True, slots=True)
class Stop:
    """No further iteration is to begin; what is applied is still made durable."""

    void: bool = False
    """True if the state must not be checkpointed: it is disputed, or another controller's."""


@dataclass(frozen=True, slots=True)
class Save:
    """A checkpoint is wanted as soon as there is a state from which a run resumes."""


@dataclass(frozen=True, slots=True)
class Amend:
    """The run has another number of iterations from now on, at least ``RunMachine.least``."""

    iterations: int


RunEvent: TypeAlias = Begin | Done | Drawn | Durable | Stop | Save | Amend
