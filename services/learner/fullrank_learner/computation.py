"""Computation of one assignment: units are reported while later ones are still computed."""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor

from fullrank.common.types import UnitIndex
from fullrank.common.updates import batch_digest
from fullrank.rpc.clients import WorkCall
from fullrank.v1 import controller_pb2 as pb
from fullrank_learner.active_assignment import ActiveAssignment, Contribution, rows_of
from fullrank_learner.run_context import RunContext
from fullrank_learner.shared_memory import SharedMemory


async def compute(
    call: WorkCall,
    context: RunContext,
    work: ActiveAssignment,
    pool: ThreadPoolExecutor,
    memory: SharedMemory | None,
) -> tuple[Contribution, list[pb.UnitDone]]:
    """Run the worker on its thread; return the contribution and the reports not yet sent.

    Raises:
        SectionsUnreadable: The sections in shared memory are damaged.
    """
    loop = asyncio.get_running_loop()
    reports: asyncio.Queue[tuple[UnitIndex, bytes] | None] = asyncio.Queue()

    def report(unit: UnitIndex, digest: bytes) -> None:
        loop.call_soon_threadsafe(reports.put_nowait, (unit, digest))

    rows = rows_of(work.message)
    batch = await work.batch
    work.started_at = loop.time()

    def run_worker() -> Contribution:
        shared = memory if work.message.offsets else None
        if shared is not None:
            shared.read(work.message, context.algorithm.parameters)
        start = time.perf_counter()
        computed = context.worker.compute(
            rows,
            batch.rows,
            iteration=work.message.ids.iteration,
            check_cancelled=work.check_cancelled,
            report=report,
        )
        digest = batch_digest(batch.rows)
        places = shared.write(computed.coded) if shared is not None else {}
        compute_s = time.perf_counter() - start
        return Contribution(computed, digest, batch.size_bytes, batch.items, compute_s, places)

    computing = loop.run_in_executor(pool, run_worker)
    computing.add_done_callback(lambda _: reports.put_nowait(None))
    pending: list[pb.UnitDone] = []
    while (done := await reports.get()) is not None:
        pending.append(pb.UnitDone(ids=work.message.ids, unit=done[0], digest=done[1]))
        if reports.empty() and not computing.done():
            await call.write(pb.LearnerMessage(units=pending).SerializeToString())
            pending = []
    contribution = await computing
    unit, digest = contribution.computed.last
    pending.append(pb.UnitDone(ids=work.message.ids, unit=unit, digest=digest))
    load = sum(len(row.units) for row in rows)
    target_s = context.config.compute.emulate_unit_s * load
    await work.pause(target_s - (loop.time() - work.complete_at))
    compute_s = max(contribution.compute_s, target_s)
    return contribution._replace(compute_s=compute_s), pending
