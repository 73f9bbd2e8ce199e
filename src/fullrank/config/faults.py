"""Faults that the straggler sidecar injects besides delays: entries of ``sidecar.faults``."""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from fullrank.common.errors import ConfigError
from fullrank.common.schema import Index, Ordinal


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fault:
    """Learners and iterations that a fault strikes."""

    learners: tuple[Index, ...] = ()
    """Learner indices; empty: all."""
    iterations: tuple[Ordinal, ...] = ()
    """Iterations; empty: all."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    def strikes(self, *, learner: int, iteration: int) -> bool:
        """True if the fault acts on a learner in an iteration."""
        return (not self.learners or learner in self.learners) and (
            not self.iterations or iteration in self.iterations
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DropFault(_Fault):
    """End the learner's stream when its vector is announced; the learner may dial again."""

    kind: Literal["drop"] = "drop"


@dataclass(frozen=True, slots=True, kw_only=True)
class ThrottleFault(_Fault):
    """Limit the learner's stream to a bandwidth in each direction."""

    kind: Literal["throttle"] = "throttle"
    bytes_per_s: Annotated[float, Field(gt=0, allow_inf_nan=False)]


@dataclass(frozen=True, slots=True, kw_only=True)
class CorruptFault(_Fault):
    """Flip every bit of one byte of the vector."""

    kind: Literal["corrupt"] = "corrupt"
    byte: Index = 0
    """Position in the vector, modulo its length."""
    mend_checksum: bool = False
    """Make the chunk's checksum match, so that only digests show the fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldFault(_Fault):
    """Withhold the vector for ever."""

    kind: Literal["hold"] = "hold"


Fault: TypeAlias = Annotated[
    DropFault | ThrottleFault | CorruptFault | HoldFault, Field(discriminator="kind")
]


def fault_of(table: dict[str, Any]) -> Fault:
    """The fault that a table describes.

    Raises:
        ConfigError: A key is unknown or missing, or a value impossible; the message names the key.
    """
    try:
        adapter: TypeAdapter[Fault] = TypeAdapter(Fault)
        return adapter.validate_python(table)
    except ValidationError as error:
        fault = error.errors()[0]
        key = ".".join(map(str, fault["loc"])) or "kind"
        expected = fault["msg"].replace("Input should be", "must be")
        raise ConfigError(f"{key}: {expected}") from None
