"""A learner without a network or threads, that may misbehave."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum, auto

import numpy as np

from fullrank import __version__
from fullrank.algorithms import Algorithm, IndependentAlgorithm
from fullrank.common.errors import FullrankError, InvalidContribution
from fullrank.common.types import FloatArray, RunTerm, UnitIndex
from fullrank.common.updates import DIGEST_BYTES, add_scaled, batch_digest, unit_digest
from fullrank.rpc.codec import LEARNER_CHUNKS, Assembler, encode_chunks
from fullrank.rpc.messages import run_term_message, sample_of
from fullrank.runs.event_log import EventLog, Sent, Welcomed
from fullrank.v1 import controller_pb2 as pb
from fullrank_faultlab.rehearsal.replay import RehearsedReplay
from fullrank_faultlab.rehearsal.wire import Line


class Conduct(Enum):
    """What a learner does with one assignment."""

    OK = auto()
    SLOW = auto()
    SILENT = auto()
    DIE = auto()
    """Cuts the stream after half of what it had to say."""
    AGAIN = auto()
    """Sends everything twice."""
    STALE = auto()
    """Sends once more what it sent last, whenever that was."""
    WRONG_VECTOR = auto()
    WRONG_DIGEST = auto()


@dataclass(slots=True, kw_only=True)
class RehearsedLearner:
    """Dials, works, dials again.

    Args:
        dial: A stream to the controller of now; None while there is none.
        algorithm: Its own copy.
        replay: Where it takes minibatches from.
        conduct: Drawn for each assignment.
        draws: Keys its own delays.
        event_log: Its history.
    """

    dial: Callable[[], Line | None]
    algorithm: Algorithm
    replay: RehearsedReplay
    conduct: Callable[[], Conduct]
    draws: np.random.Generator
    event_log: EventLog
    line: Line | None = None
    _served: RunTerm = field(default=RunTerm("", 0))
    _last: list[pb.LearnerMessage] = field(default_factory=list)

    async def live(self) -> None:
        """For ever."""
        while True:
            self.line = self.dial()
            if self.line is not None:
                with suppress(FullrankError):
                    await self._converse(self.line)
                self.hang_up()
            await asyncio.sleep(self.draws.exponential(0.2))

    def hang_up(self) -> None:
        """Lose the connection."""
        if self.line is not None:
            self.line.cut()

    async def _converse(self, line: Line) -> None:
        hello = pb.Hello(version=__version__, host="", served=run_term_message(self._served))
        line.say(pb.LearnerMessage(hello=hello))
        welcome = (await line.hear()).welcome
        self._served = RunTerm(welcome.run, welcome.term)
        self.event_log.append(Welcomed(run=welcome.run, term=welcome.term, learner=welcome.learner))
        ready = pb.Ready(fingerprint="", probe=[b""], stable=True)
        line.say(pb.LearnerMessage(ready=ready))
        job: asyncio.Task[None] | None = None
        try:
            while True:
                message = await line.hear()
                kind = message.WhichOneof("message")
                if kind in ("assignment", "commit") and job is not None:
                    job.cancel()
                if kind == "assignment":
                    self._write(message)
                    work = self._work(line, welcome.learner, message.assignment)
                    job = asyncio.create_task(work)
        finally:
            if job is not None:
                job.cancel()

    def _write(self, message: pb.ControllerMessage) -> None:
        """The sections, which are small enough to come with their assignment."""
        chunks = list(message.chunks)
        for section in message.assignment.sections:
            if section >= len(self.algorithm.sections) or not chunks:
                raise InvalidContribution("not the sections that were announced")
            view = self.algorithm.view(section)
            Assembler(view, array_id=section).add(chunks.pop(0))

    async def _work(self, line: Line, learner: int, assignment: pb.Assignment) -> None:
        conduct = self.conduct()
        try:
            await asyncio.sleep(self.draws.exponential(1.0 if conduct is Conduct.SLOW else 0.1))
            messages = self._contribution(learner, assignment, conduct)
        except (FullrankError, ValueError):  # what a flipped bit made of the assignment
            line.cut()
            return
        said = {
            Conduct.SILENT: [],
            Conduct.DIE: messages[: len(messages) // 2],
            Conduct.AGAIN: [*messages, *messages],
            Conduct.STALE: [*self._last, *messages],
        }
        for message in said.get(conduct, messages):
            line.say(message)
        self._last = messages
        if conduct is Conduct.DIE:
            line.cut()

    def _contribution(
        self, learner: int, assignment: pb.Assignment, conduct: Conduct
    ) -> list[pb.LearnerMessage]:
        """Reports, header and chunks, each as a message of its own."""
        ids, [row] = assignment.ids, assignment.rows
        batch = self.replay.gather(sample_of(assignment.sample))
        coded = np.zeros(max(self.algorithm.unit_sizes))
        reports: list[pb.UnitDone] = []
        coefficients = dict(zip(row.units, row.coefficients, strict=True))
        for unit, update in self._updates(batch, row.row, sorted(coefficients), ids.iteration):
            add_scaled(coded, coefficients[unit], update)
            reports.append(pb.UnitDone(ids=ids, unit=unit, digest=unit_digest(update)))
        if conduct is Conduct.WRONG_VECTOR:
            coded[int(self.draws.integers(len(coded)))] += 2.0 ** -int(self.draws.integers(1, 40))
        if conduct is Conduct.WRONG_DIGEST:
            reports[0].digest = bytes(DIGEST_BYTES)
        digest = batch_digest(batch)
        self._note(learner, assignment, digest)
        header = pb.Coded(ids=ids, row=row.row, batch_digest=digest, compute_s=0.01)
        chunks = b"".join(map(bytes, encode_chunks(coded, array_id=row.row, field=LEARNER_CHUNKS)))
        return [
            *(pb.LearnerMessage(units=[report]) for report in reports),
            pb.LearnerMessage(coded=header),
            pb.LearnerMessage.FromString(chunks),
        ]

    def _updates(
        self, batch: FloatArray, row: int, units: Sequence[UnitIndex], iteration: int
    ) -> Iterator[tuple[UnitIndex, FloatArray]]:
        if isinstance(self.algorithm, IndependentAlgorithm):
            return self.algorithm.updates_of_row(row, units, iteration=iteration)
        return self.algorithm.updates(batch, units, iteration=iteration)

    def _note(self, learner: int, assignment: pb.Assignment, digest: bytes) -> None:
        ids = assignment.ids
        self.event_log.append(
            Sent(
                run=ids.run,
                term=ids.term,
                epoch=ids.epoch,
                iteration=ids.iteration,
                attempt=ids.attempt,
                learner=learner,
                row=assignment.rows[0].row,
                batch_digest=digest.hex(),
            )
        )
