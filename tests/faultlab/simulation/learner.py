"""A simulated learner: no network or threads, and injected misbehaviour."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TypeAlias

import numpy as np
from tests.faultlab.liars import Forged
from tests.faultlab.simulation.link import SimulatedStream
from tests.faultlab.simulation.replay import SimulatedReplay

from fullrank import __version__
from fullrank.algorithms import Algorithm
from fullrank.common.errors import FullrankError, InvalidContribution
from fullrank.common.types import RunTerm
from fullrank.common.updates import DIGEST_BYTES, batch_digest
from fullrank.net.codec import LEARNER_CHUNKS, Assembler, encode_chunks
from fullrank.net.messages import run_term_message, sample_of, sent_event
from fullrank.runs.events import EventLog, Welcomed
from fullrank.training.worker import AssignedRow, Worker
from fullrank.v1 import controller_pb2 as pb

LearnerStream: TypeAlias = SimulatedStream[pb.LearnerMessage, pb.ControllerMessage]


class LearnerBehaviour(Enum):
    """Behaviour of a learner on one assignment."""

    OK = auto()
    SLOW = auto()
    SILENT = auto()
    DIE = auto()
    """Break the stream after half of the messages."""
    REPEAT = auto()
    """Send every message twice."""
    STALE = auto()
    """Send the previous contribution again first."""
    WRONG_VECTOR = auto()
    WRONG_DIGEST = auto()
    COLLUDE = auto()
    """Report and send wrong updates that fit each other, the same as every other colluder."""


@dataclass(slots=True, kw_only=True)
class SimulatedLearner:
    """Connects, works, and connects again.

    Args:
        connect: A stream to the present controller; None while there is none.
        algorithm: A copy of its own.
        seed: The run's seed.
        replay: Source of the minibatches.
        behaviour: Draws the behaviour on the assignment of an iteration.
        draws: Generator of its delays.
        ready: What it says of its numerics.
        event_log: The event log of the learner.
        domain: Its failure domain.
    """

    connect: Callable[[], LearnerStream | None]
    algorithm: Algorithm
    seed: int
    replay: SimulatedReplay
    behaviour: Callable[[int], LearnerBehaviour]
    draws: np.random.Generator
    ready: pb.Ready
    event_log: EventLog
    domain: str = ""
    stream: LearnerStream | None = None
    lease: bytes = b""
    _served: RunTerm = field(default=RunTerm("", 0))
    _last: list[pb.LearnerMessage] = field(default_factory=list)

    async def run(self) -> None:
        """Serve controllers for ever."""
        while True:
            self.stream = self.connect()
            if self.stream is not None:
                with suppress(FullrankError):
                    await self._converse(self.stream)
                self.disconnect()
            await asyncio.sleep(self.draws.exponential(0.2))

    def disconnect(self) -> None:
        """Break the stream."""
        if self.stream is not None:
            self.stream.cut()

    def computing_s(self, assignment: pb.Assignment, behaviour: LearnerBehaviour) -> float:
        """Draw the time until the contribution is sent."""
        return float(self.draws.exponential(1.0 if behaviour is LearnerBehaviour.SLOW else 0.1))

    async def _converse(self, stream: LearnerStream) -> None:
        served = run_term_message(self._served)
        hello = pb.Hello(version=__version__, host="", served=served, domain=self.domain)
        stream.send(pb.LearnerMessage(hello=hello))
        welcome = (await stream.receive()).welcome
        self._served, self.lease = RunTerm(welcome.run, welcome.term), welcome.lease
        self.event_log.append(Welcomed(run=welcome.run, term=welcome.term, learner=welcome.learner))
        stream.send(pb.LearnerMessage(ready=self.ready))
        work: asyncio.Task[None] | None = None
        try:
            while True:
                message = await stream.receive()
                kind = message.WhichOneof("message")
                if kind in ("assignment", "commit") and work is not None:
                    work.cancel()
                if kind == "assignment":
                    self._write_sections(message)
                    assignment = message.assignment
                    work = asyncio.create_task(self._work(stream, welcome.learner, assignment))
        finally:
            if work is not None:
                work.cancel()

    def _write_sections(self, message: pb.ControllerMessage) -> None:
        """Write the sections, which are small enough to come with their assignment."""
        chunks = list(message.chunks)
        for section in message.assignment.sections:
            if section >= len(self.algorithm.problem.sections) or not chunks:
                raise InvalidContribution("not the announced sections")
            view = self.algorithm.parameters.view(section)
            Assembler(view, array_id=section).add(chunks.pop(0))

    async def _work(self, stream: LearnerStream, learner: int, assignment: pb.Assignment) -> None:
        behaviour = self.behaviour(assignment.ids.iteration)
        try:
            await asyncio.sleep(self.computing_s(assignment, behaviour))
            messages = self._contribution(learner, assignment, behaviour)
        except (FullrankError, ValueError):  # a flipped bit in the assignment
            stream.cut()
            return
        sent = {
            LearnerBehaviour.SILENT: [],
            LearnerBehaviour.DIE: messages[: len(messages) // 2],
            LearnerBehaviour.REPEAT: [*messages, *messages],
            LearnerBehaviour.STALE: [*self._last, *messages],
        }
        for message in sent.get(behaviour, messages):
            stream.send(message)
        self._last = messages
        if behaviour is LearnerBehaviour.DIE:
            stream.cut()

    def _contribution(
        self, learner: int, assignment: pb.Assignment, behaviour: LearnerBehaviour
    ) -> list[pb.LearnerMessage]:
        """Reports, header and chunks of a contribution, one message each."""
        ids, [row] = assignment.ids, assignment.rows
        batch = self.replay.gather(sample_of(assignment.sample))
        gradients = self.algorithm.gradients
        if behaviour is LearnerBehaviour.COLLUDE:
            gradients = Forged(gradients)
        worker = Worker(self.algorithm.problem, gradients, seed=self.seed)
        assigned = AssignedRow(
            row=row.row, units=tuple(row.units), coefficients=tuple(row.coefficients)
        )
        computed = list(worker.compute([assigned], batch, iteration=ids.iteration))
        reports = [pb.UnitDone(ids=ids, unit=unit, digest=digest) for unit, digest, _ in computed]
        coded = computed[-1].coded[row.row]
        if behaviour is LearnerBehaviour.WRONG_VECTOR:
            entry, error = int(self.draws.integers(len(coded))), 2.0 ** -self.draws.integers(1, 40)
            coded[entry] += max(error, np.spacing(abs(coded[entry])))
        if behaviour is LearnerBehaviour.WRONG_DIGEST:
            reports[0].digest = bytes(DIGEST_BYTES)
        header = pb.Coded(ids=ids, row=row.row, batch_digest=batch_digest(batch), compute_s=0.01)
        self.event_log.append(sent_event(header, learner=learner))
        chunks = b"".join(map(bytes, encode_chunks(coded, array_id=row.row, field=LEARNER_CHUNKS)))
        return [
            *(pb.LearnerMessage(units=[report]) for report in reports),
            pb.LearnerMessage(coded=header),
            pb.LearnerMessage.FromString(chunks),
        ]
