"""Contributions of one stream: a row is computed, and sent while later ones are computed.

On the controller's host, sections and vectors lie in memory that both share.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, suppress
from math import inf

from fullrank.algorithms.roles import Parameters
from fullrank.common.errors import Cancelled, FullrankError, NotFound, ServiceLost
from fullrank.common.place import PLACE
from fullrank.common.types import EncodedVector, LearnerId, UnitIndex
from fullrank.common.updates import batch_digest
from fullrank.host.process import QUICK_S
from fullrank.host.shared_memory import START, ReadBlock, WrittenBlock, written_block
from fullrank.net.codec import LEARNER_CHUNKS, EncodedField, bundle, encode_chunks
from fullrank.net.controller_client import WorkCall
from fullrank.net.errors import translated
from fullrank.net.messages import sent_event
from fullrank.net.tracing import UNTRACED, TraceSpan, begin
from fullrank.replay.items import Gathered
from fullrank.runs.events import EventLog
from fullrank.stragglers.base import Lateness
from fullrank.v1 import controller_pb2 as pb
from fullrank.v1.common_pb2 import SharedBlock
from fullrank_learner.active_assignment import ActiveAssignment, CodedRow, Progress, rows_of
from fullrank_learner.run_context import LearnerContext

ENTRY_BYTES = 8
"""Room for an entry of a vector, the size of a float64."""


class SectionsDamaged(Exception):
    """The sections in the controller's block do not match their checksums."""


class SharedMemory:
    """The controller's block, which holds sections, and the learner's own, which holds vectors.

    Args:
        sections: The controller's block.
        vectors: This learner's block.
    """

    def __init__(self, sections: ReadBlock, vectors: WrittenBlock) -> None:
        self._sections, self._vectors = sections, vectors
        self._turn = self._rows = 0

    @classmethod
    def with_controller(cls, location: SharedBlock) -> "SharedMemory":
        """Open the controller's block.

        Raises:
            NotFound: The controller is on another host, or a system has no files in memory.
        """
        sections, vectors = ReadBlock(location), written_block()
        if vectors is None:
            raise NotFound("this system has no files in memory")
        return cls(sections, vectors)

    @property
    def location(self) -> SharedBlock:
        """The place and the id of the learner's block."""
        return self._vectors.location

    def read(self, assignment: pb.Assignment, parameters: Parameters) -> None:
        """Copy the sections of an assignment into the parameters.

        Raises:
            SectionsDamaged: They were overwritten or are damaged.
        """
        places = zip(assignment.sections, assignment.offsets, assignment.crc32c, strict=True)
        for section, offset, checksum in places:
            if not self._sections.read(offset, parameters.view(section), checksum=checksum):
                raise SectionsDamaged
        parameters.written()

    def begin(self) -> None:
        """Write the vectors of an assignment from now on.

        They do not overwrite those of the assignment before, which the controller may be reading.
        """
        self._turn, self._rows = 1 - self._turn, 0

    def write(self, coded: EncodedVector) -> tuple[int, int]:
        """Write the next vector of the assignment; returns its offset and checksum."""
        offset = START + (2 * self._rows + self._turn) * ENTRY_BYTES * len(coded)
        self._rows += 1
        return offset, self._vectors.write(offset, coded)


log = logging.getLogger(__name__)


async def compute(
    context: LearnerContext,
    work: ActiveAssignment,
    pool: ThreadPoolExecutor | None,
    memory: SharedMemory | None,
) -> AsyncGenerator[Progress, None]:
    """Run the worker on its thread, and yield its results until all rows are complete.

    Without a pool it runs on the event loop, to its end.

    Raises:
        Cancelled: The assignment is abandoned.
        SectionsDamaged: The sections in shared memory are damaged.
    """
    loop = asyncio.get_running_loop()
    posted: asyncio.Queue[Progress | Exception] = asyncio.Queue()
    batch = await work.minibatch()

    def post(item: Progress | Exception) -> None:
        if pool is None:
            posted.put_nowait(item)
        else:
            loop.call_soon_threadsafe(posted.put_nowait, item)

    def run_worker() -> None:
        try:
            _compute(context, work, batch, memory if work.message.offsets else None, post)
        except Exception as error:
            post(error)

    missing = len(work.message.rows)
    running = None
    if pool is None:
        run_worker()
    else:
        running = pool.submit(run_worker)
    try:
        while missing:
            item = await posted.get()
            if isinstance(item, Exception):
                raise item
            missing -= len(item.rows)
            yield item
    finally:
        if missing and running is not None:  # parameters may change once the thread has ended
            work.stop()
            await asyncio.wait({asyncio.wrap_future(running)})


def _compute(
    context: LearnerContext,
    work: ActiveAssignment,
    batch: Gathered,
    memory: SharedMemory | None,
    post: Callable[[Progress], None],
) -> None:
    """Post digests with the rows that their units complete, or where they would else be lost."""
    if memory is not None:
        memory.read(work.message, context.algorithm.parameters)
        memory.begin()
    started = time.perf_counter()
    work.batch_digest = batch_digest(batch.rows)
    reports: list[pb.UnitDone] = []

    def check_cancelled() -> None:
        if reports:
            post(Progress(reports.copy(), []))
            reports.clear()
        work.check_cancelled()

    for unit, digest, complete in context.worker.compute(
        rows_of(work.message),
        batch.rows,
        iteration=work.message.ids.iteration,
        check_cancelled=check_cancelled,
    ):
        reports.append(pb.UnitDone(ids=work.message.ids, unit=unit, digest=digest))
        if complete:
            places = {
                row: memory.write(coded) if memory is not None else (0, 0)
                for row, coded in complete.items()
            }
            compute_s = time.perf_counter() - started
            rows = [
                CodedRow(row, coded, compute_s, *places[row]) for row, coded in complete.items()
            ]
            post(Progress(reports.copy(), rows))
            reports.clear()


class Contributor:
    """Computes assignments and sends their rows.

    Args:
        call: The stream.
        peer: The controller, for messages.
        learner: Index of this learner.
        context: Computes units, and knows injected lateness.
        pool: Executor with the one computing thread.
        memory: Memory shared with the controller, if there is any.
        event_log: Records sent vectors.
        began_at: Time at which the run began, in seconds of the event loop's clock.
    """

    def __init__(
        self,
        call: WorkCall,
        *,
        peer: str,
        learner: LearnerId,
        context: LearnerContext,
        pool: ThreadPoolExecutor,
        memory: SharedMemory | None,
        event_log: EventLog,
        began_at: float = 0.0,
    ) -> None:
        self._call, self._peer, self._learner = call, peer, learner
        self._context, self._pool, self._memory = context, pool, memory
        self._event_log, self._began_at = event_log, began_at
        self._computed_s = inf
        """Computing time of the last assignment, seconds."""
        self._iteration, self._resumes_at = (-1, -1), 0.0
        """Term and number of the iteration of the last pause, and its end."""

    async def contribute(self, work: ActiveAssignment) -> None:
        """Compute and send; send no vector once abandoned.

        A failure half-closes the stream: the controller ends it, the row becomes vacant, and the
        learner redials.
        """
        PLACE["iteration"] = iteration = work.message.ids.iteration
        try:
            with translated(self._peer):
                await self._contribute(work)
        except (Cancelled, asyncio.CancelledError):
            log.debug("abandoned iteration=%d", iteration)
        except FullrankError as error:
            log.warning("work_failed iteration=%d reason=%s", iteration, error)
            await self._half_close()
        except Exception:
            log.exception("work_failed iteration=%d", iteration)
            await self._half_close()
        finally:
            if not work.abandoned.is_set():
                work.finished.set()

    async def _half_close(self) -> None:
        """End this side of the stream, unless all of it has ended meanwhile."""
        with suppress(ServiceLost), translated(self._peer):
            await self._call.done_writing()

    async def _contribute(self, work: ActiveAssignment) -> None:
        """Compute and send; ask for sections that have been overwritten in shared memory."""
        try:
            await self._send_rows(work)
        except SectionsDamaged:
            log.warning("sections_unreadable iteration=%d", work.message.ids.iteration)
            await self._write(pb.LearnerMessage(unreadable=pb.Unreadable(ids=work.message.ids)))

    async def _send_rows(self, work: ActiveAssignment) -> None:
        """Fetch the minibatch, then compute and send; each stage has a span."""
        with self._span("fetch", work):
            await work.minibatch()
        with self._span("compute", work) as span:
            await self._compute_rows(work, span)

    def _span(self, name: str, work: ActiveAssignment) -> TraceSpan:
        """Begin the span of a stage; it names the units of all rows."""
        message = work.message
        span = begin(name, message.ids, parent=message.traceparent, learner=self._learner)
        if span is not UNTRACED:
            span.note(units=[unit for row in message.rows for unit in row.units])
        return span

    async def _compute_rows(self, work: ActiveAssignment, span: TraceSpan) -> None:
        """Be as late as the model of stragglers says; send each row as soon as it is computed.

        The span of computing, which includes lateness, ends with the last row.
        """
        clock, unit_s = asyncio.get_running_loop().time, self._context.config.compute.emulate_unit_s
        lateness = await self._begin(work)
        begun_at, units = clock(), list[UnitIndex]()
        pool = None if self._computed_s < QUICK_S else self._pool
        async with aclosing(compute(self._context, work, pool, self._memory)) as computing:
            async for reports, rows in computing:
                units += [report.unit for report in reports]
                for row in rows:
                    compute_s = max(row.compute_s, unit_s * len(units)) * lateness.stretch(units)
                    work.rows.append(row._replace(compute_s=compute_s))
                if not rows:  # report computed units even if no coded vector is ever sent
                    await self._write(pb.LearnerMessage(units=reports))
                    continue
                await work.pause(begun_at + work.rows[-1].compute_s - clock())
                if len(work.rows) == len(work.message.rows):
                    span.end()
                with self._span("send", work):
                    await self._send(work, work.rows[-len(rows) :], reports)
        self._computed_s = work.rows[-1].compute_s

    async def _begin(self, work: ActiveAssignment) -> Lateness:
        """Pause before the first unit; once in an iteration, however often it is assigned.

        Raises:
            Cancelled: The assignment is abandoned.
        """
        clock, ids = asyncio.get_running_loop().time, work.message.ids
        work.started_at = clock()
        time_s = work.complete_at - self._began_at
        lateness = self._context.lateness(ids.iteration, self._learner, time_s=time_s)
        if self._iteration != (ids.term, ids.iteration):
            self._iteration = ids.term, ids.iteration
            self._resumes_at = work.started_at + lateness.delay_s
        await work.pause(self._resumes_at - clock())
        return lateness

    async def _write(self, message: pb.LearnerMessage) -> None:
        await self._call.write(message.SerializeToString())

    async def _send(
        self,
        work: ActiveAssignment,
        rows: Iterable[CodedRow],
        reports: Iterable[pb.UnitDone] = (),
    ) -> None:
        """Send the vectors of rows, or their places in shared memory."""
        clock, batch = asyncio.get_running_loop().time, work.batch.result()
        for row in rows:
            head = pb.Coded(
                ids=work.message.ids,
                row=row.row,
                batch_digest=work.batch_digest,
                batch_bytes=batch.size_bytes,
                items=batch.items,
                compute_s=row.compute_s,
                started_s=work.started_at - work.complete_at,
                sent_s=clock() - work.complete_at,
                offset=row.offset,
                crc32c=row.checksum,
            )
            self._event_log.append(sent_event(head, learner=self._learner))
            fields = [
                EncodedField(pb.LearnerMessage(units=reports, coded=head).SerializeToString())
            ]
            if not row.offset:
                fields += encode_chunks(row.coded, array_id=row.row, field=LEARNER_CHUNKS)
            reports = ()
            for message in bundle(fields):
                work.check_cancelled()
                await self._call.write(message)

    async def send_again(self, work: ActiveAssignment, sending: asyncio.Task[None]) -> None:
        """Send the vectors of an assignment by stream, after those that are being sent."""
        await asyncio.wait({sending})
        rows = [row._replace(offset=0, checksum=0) for row in work.rows]
        ended = (Cancelled, asyncio.CancelledError, FullrankError)
        with suppress(*ended), translated(self._peer):
            await self._send(work, rows)
