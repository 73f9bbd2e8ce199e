"""Injection, and the gate of one Work stream: it decides which messages pass, and when.

An injection is a delay model and faults, applied to each stream by its learner. No clock, no
network: times are arguments. Delayed vectors wait here; all other messages pass them. Vectors are
never interleaved, because chunks belong to the Coded message before them.
"""

import logging
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf
from types import MappingProxyType
from typing import Protocol, TypeVar

import google_crc32c
from google.protobuf.message import DecodeError

from fullrank.common.errors import ConfigError, ServiceLost
from fullrank.common.types import LearnerId
from fullrank.config.elsewhere import from_elsewhere
from fullrank.config.faults import CorruptFault, DropFault, Fault, HoldFault, ThrottleFault
from fullrank.config.plugins import complete_stragglers
from fullrank.config.tree import PluginSettings
from fullrank.stragglers import DelayModel, delay_models
from fullrank.stragglers.base import SlowsUnits, lateness_of
from fullrank.v1 import controller_pb2 as pb
from fullrank.v1.tensor_pb2 import Chunk

log = logging.getLogger(__name__)
F = TypeVar("F", bound=Fault)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamIdentity:
    """Learner of a stream, from its Welcome message."""

    learner: LearnerId
    seed: int
    learners: int
    """Number of learners, N."""
    began_at: float
    """Time at which the run began."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Injection:
    """A delay model with its settings, and faults."""

    settings: PluginSettings
    model: DelayModel
    faults: tuple[Fault, ...] = ()

    def check(self, identity: StreamIdentity) -> None:
        """Raise ``ConfigError`` if the model is impossible for this run's N."""
        lateness_of(
            self.model, seed=identity.seed, iteration=0, learner=0, learners=identity.learners
        )

    def delay_s(self, identity: StreamIdentity, vector: "CodedVector") -> float:
        """Delay of the learner's vector, seconds; ``inf`` if it is held for ever.

        It makes up for a pause before the first unit of the iteration, of which a later assignment
        has only the rest to wait for, and for the longer computing of a slow machine.
        """
        if self.fault(HoldFault, identity, vector.iteration) is not None:
            return inf
        late = lateness_of(
            self.model,
            seed=identity.seed,
            iteration=vector.iteration,
            learner=identity.learner,
            learners=identity.learners,
            time_s=vector.opened_at - identity.began_at,
        )
        pause_s = max(0.0, late.delay_s - (vector.assigned_at - vector.opened_at))
        return pause_s + (late.factor - 1.0) * vector.compute_s

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
        ConfigError: The delay model does not exist, does not take these parameters, or is none
            for a sidecar.
    """
    complete = complete_stragglers(settings, origin)
    model = delay_models.build(complete.name, **complete.params)
    if isinstance(model, SlowsUnits):
        raise ConfigError(
            f"{complete.name}: no sidecar sees a unit computed; set it in [stragglers] of the run"
        )
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


def read_learner(message: bytes) -> pb.LearnerMessage | None:
    """The message of a learner; None if it carries no part of a vector, or is no such message."""
    try:
        said = pb.LearnerMessage.FromString(message)
    except DecodeError:
        return None
    return said if said.HasField("coded") or said.chunks else None


def read_controller(message: bytes) -> pb.ControllerMessage | None:
    """The message of the controller; None if it is no such message."""
    try:
        return pb.ControllerMessage.FromString(message)
    except DecodeError:
        return None


def is_last(chunk: Chunk) -> bool:
    """True if a chunk completes its vector."""
    return chunk.offset + len(chunk.data) >= chunk.total


def split_units(message: pb.LearnerMessage) -> pb.LearnerMessage:
    """Take the finished units out of a message; returns a message with them."""
    units = pb.LearnerMessage(units=message.units)
    message.ClearField("units")
    return units


def corrupt(chunk: Chunk, fault: CorruptFault) -> bool:
    """Invert the byte of the vector if this chunk contains it; returns whether it does."""
    position = (fault.byte % chunk.total if chunk.total else 0) - chunk.offset
    if not 0 <= position < len(chunk.data):
        return False
    data = bytearray(chunk.data)
    data[position] ^= 0xFF
    chunk.data = bytes(data)
    if fault.mend_checksum:
        chunk.crc32c = google_crc32c.value(chunk.data)
    return True


@dataclass(eq=False, slots=True, kw_only=True)
class CodedVector:
    """A coded vector on its way through."""

    iteration: int
    row: int
    compute_s: float
    """Computing time that the learner reports."""
    opened_at: float
    """Time of the learner's first assignment of the iteration."""
    assigned_at: float
    """Time of its last assignment."""
    arrived: float
    delayed: bool = False
    """True if it was delayed on arrival; a vector that was not is never held."""
    pieces: deque[bytes] = field(default_factory=deque)
    whole: bool = False
    """True if its last piece has arrived."""
    dropped: bool = False


class Gate:
    """Takes the learner's messages and returns those due for the controller.

    Args:
        injection: Returns the current injection; called each time, so that changes apply at once.
    """

    def __init__(self, injection: Callable[[], Injection]) -> None:
        self._injection = injection
        self.identity: StreamIdentity | None = None
        """Learner that it serves; None before Welcome."""
        self._assigned, self._opened_at, self._assigned_at = -1, 0.0, 0.0
        self._over = -1
        self._others: deque[bytes] = deque()
        self._waiting: list[CodedVector] = []
        self._arriving: CodedVector | None = None
        self._leaving: CodedVector | None = None

    @property
    def bytes_per_s(self) -> float | None:
        """Current rate limit of each direction; None if it is not throttled."""
        if self.identity is None:
            return None
        fault = self._injection().fault(ThrottleFault, self.identity, self._assigned)
        return fault.bytes_per_s if fault else None

    def hear(self, message: bytes, *, now: float) -> None:
        """Read a message of the controller before it is passed to the learner.

        Raises:
            ConfigError: The delay model is impossible for this run.
        """
        said = read_controller(message)
        if said is None:
            return
        match said.WhichOneof("message"):
            case "welcome":
                self.identity = _identity(said.welcome, now=now)
                self._injection().check(self.identity)
            case "assignment":
                if self._assigned != said.assignment.ids.iteration:
                    self._assigned, self._opened_at = said.assignment.ids.iteration, now
                self._assigned_at = now
                self._over = self._assigned - 1
                self._drop(until=inf)
            case "commit":
                self._over = said.commit.ids.iteration
                self._drop(until=self._over)

    def take(self, message: bytes, *, now: float) -> None:
        """Accept a message of the learner.

        Raises:
            ServiceLost: A fault drops the connection.
        """
        said = read_learner(message)
        if said is not None and said.HasField("coded"):
            self._announce(said.coded, now)
        if said is None or self._arriving is None:  # not part of a vector
            self._others.append(message)
        else:
            self._add(self._arriving, message, said)

    def _announce(self, coded: pb.Coded, now: float) -> None:
        if self._arriving is not None:
            self._end(self._arriving)
        iteration = coded.ids.iteration
        self._arriving = vector = CodedVector(
            iteration=iteration,
            row=coded.row,
            compute_s=coded.compute_s if 0.0 <= coded.compute_s < inf else 0.0,
            opened_at=self._opened_at,
            assigned_at=self._assigned_at,
            arrived=now,
        )
        if self.identity is not None:
            if self._injection().fault(DropFault, self.identity, iteration) is not None:
                raise ServiceLost(f"the connection is dropped by a fault, iteration {iteration}")
            vector.delayed = self._injection().delay_s(self.identity, vector) > 0.0
        vector.dropped = vector.delayed and iteration <= self._over
        if not vector.dropped:
            self._waiting.append(vector)

    def _add(self, vector: CodedVector, message: bytes, said: pb.LearnerMessage) -> None:
        changed = False
        if self.identity is not None:
            fault = self._injection().fault(CorruptFault, self.identity, vector.iteration)
            if fault is not None:
                for chunk in said.chunks:
                    changed |= corrupt(chunk, fault)
        if vector.delayed and said.units:
            self._others.append(split_units(said).SerializeToString())
            changed = True
        if vector.dropped:
            return
        vector.pieces.append(said.SerializeToString() if changed else message)
        vector.whole = any(map(is_last, said.chunks))

    def next(self, *, now: float) -> bytes | None:
        """The next message due for the controller; None if there is none yet."""
        if self._others:
            return self._others.popleft()
        if self._leaving is None:
            self._leaving = self._released(now)
        vector = self._leaving
        if vector is None or not vector.pieces:
            return None
        piece = vector.pieces.popleft()
        if vector.whole and not vector.pieces:
            self._leaving = None
        return piece

    def due(self) -> float:
        """Time at which the next held vector is due; ``inf`` if there is none."""
        if self._leaving is not None or not self._waiting:
            return inf
        return min(map(self._due, self._waiting))

    def _due(self, vector: CodedVector) -> float:
        if not vector.delayed or self.identity is None:
            return vector.arrived
        return vector.arrived + self._injection().delay_s(self.identity, vector)

    def _released(self, now: float) -> CodedVector | None:
        """The first vector that is due."""
        vector = min(self._waiting, key=self._due, default=None)
        if vector is None or self._due(vector) > now:
            return None
        self._waiting.remove(vector)
        if vector.delayed and self.identity is not None:
            log.info(
                "vector_released learner=%d iteration=%d row=%d delay_s=%.4f held_s=%.4f",
                self.identity.learner,
                vector.iteration,
                vector.row,
                self._due(vector) - vector.arrived,
                now - vector.arrived,
            )
        return vector

    def _end(self, vector: CodedVector) -> None:
        """Mark a vector as finished: no further piece will arrive."""
        vector.whole = True
        if self._leaving is vector and not vector.pieces:
            self._leaving = None

    def _drop(self, *, until: float) -> None:
        """Drop the delayed vectors of iterations up to ``until``, even if partly forwarded."""
        here = [*self._waiting, *([self._leaving] if self._leaving else [])]
        for vector in here:
            if vector.delayed and vector.iteration <= until:
                vector.dropped = True
                vector.pieces.clear()
        self._waiting = [vector for vector in self._waiting if not vector.dropped]
        if self._leaving is not None and self._leaving.dropped:
            self._leaving = None


def _identity(welcome: pb.Welcome, *, now: float) -> StreamIdentity:
    config = from_elsewhere(welcome.configuration, origin="the run's configuration").config
    return StreamIdentity(
        learner=welcome.learner,
        seed=config.seed,
        learners=config.learners,
        began_at=now - welcome.elapsed_s,
    )
