"""Computation of one assignment: rows are sent while later ones are still computed."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor

from fullrank.common.updates import batch_digest
from fullrank.replay.items import Gathered
from fullrank.v1 import controller_pb2 as pb
from fullrank_learner.active_assignment import ActiveAssignment, CodedRow, Progress, rows_of
from fullrank_learner.run_context import LearnerContext
from fullrank_learner.shared_memory import SharedMemory


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
    work.started_at = loop.time()

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
