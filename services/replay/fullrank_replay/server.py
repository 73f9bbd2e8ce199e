"""Composition root of the replay service: configuration to a listening server."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path

from fullrank.common.errors import RunDirectoryInUse, ServiceLost
from fullrank.host.certificates import Role
from fullrank.host.process import STOPPED, Launch, first, is_set, run, stop_event, tune_process
from fullrank.host.run_directory import announce, lock_replay, withdraw
from fullrank.net.channel import Security
from fullrank.net.prometheus import Exporter, Family, gauge
from fullrank.net.server import Health, Server
from fullrank.replay.fence import Fence
from fullrank.replay.store import Store
from fullrank.replay.table import TABLE, Table
from fullrank.runs.events import EventLog
from fullrank.v1 import replay_pb2
from fullrank_replay.servicer import ReplayServicer

log = logging.getLogger(__name__)

LOCK_PERIOD_S = 0.1
"""Period at which a directory that another process holds is tried again."""


def main(launch: Launch) -> int:
    """Serve until told to stop; returns the exit code."""
    tune_process(launch)
    run(serve(launch))
    return 0


async def serve(launch: Launch, stop: asyncio.Event | None = None) -> None:
    """Serve until ``stop`` is set, by default until the process is told to stop.

    With ``launch.until_finished`` it serves until its runs have ended.

    Raises:
        RunDirectoryInUse: Another process holds the directory of the tables.
        ServiceLost: It was told to stop before the end of the runs that it was to serve.
    """
    stop = stop or stop_event(launch)
    directory = launch.run_dir / "replay" if launch.run_dir else None
    async with AsyncExitStack() as stack:
        if directory is not None:
            lock = _locked(directory, stop, within_s=launch.config.replay.deadline_s)
            stack.enter_context(await lock)
        await _serve(launch, directory, stop)


async def _locked(directory: Path, stop: asyncio.Event, *, within_s: float) -> ExitStack:
    """Lock the directory of the tables, once a predecessor that still drains has left it."""
    clock = asyncio.get_running_loop().time
    deadline = clock() + within_s
    while True:
        try:
            return lock_replay(directory)
        except RunDirectoryInUse:
            if stop.is_set() or clock() > deadline:
                raise
        await asyncio.sleep(LOCK_PERIOD_S)


async def _serve(launch: Launch, directory: Path | None, stop: asyncio.Event) -> None:
    settings = launch.config.replay
    sync = settings.acknowledge == "fsync"
    store = Store(directory, sync=sync, most_bytes=settings.total_bytes)
    for table, rows in store.lost.items():
        log.warning("rows_lost table=%s rows=%d", table, rows)
    for table, error in store.unusable.items():
        log.error("table_unusable table=%s reason=%s", table, error)
    event_log = EventLog(launch.run_dir, "replay")
    servicer = ReplayServicer(store, Fence(directory), event_log)
    security = Security.configured(launch.config.tls, Role.REPLAY)
    server = Server(
        replay_pb2.DESCRIPTOR.services_by_name["ReplayService"],
        servicer,
        security=security,
        prebuilt=frozenset({"GetSamples"}),
    )
    exporter = Exporter(
        launch.config.metrics.prometheus,
        lambda: table_metrics(store),
        run_dir=launch.run_dir,
        name="replay",
        expires_at=lambda: security.expires_at,
    )
    async with Health(launch.config.health.address) as health, exporter:
        bound = await server.start(settings.listen or settings.address)
        announce(launch.run_dir, "replay", bound)
        await health.at_work(True)
        endings = [stop, servicer.ended] if launch.until_finished else [stop]
        await first(*map(is_set, endings))
        await health.at_work(False)
        withdraw(launch.run_dir, "replay")
        await server.stop()
    event_log.close()
    if launch.until_finished and not servicer.ended.is_set():
        raise ServiceLost(STOPPED)


def table_metrics(store: Store) -> Iterator[Family]:
    """The current state of every run's table."""

    def by_run(value: Callable[[Table], int]) -> dict[str, float]:
        tables = store.tables.items()
        return {name.removesuffix(f"/{TABLE}"): float(value(table)) for name, table in tables}

    for name, text, value in (
        ("head_position", "One past the newest row.", lambda table: table.head),
        ("tail_position", "The oldest row held.", lambda table: table.tail),
        ("capacity_rows", "Rows held at most.", lambda table: table.capacity),
        ("row_bytes", "Size of a row.", lambda table: 4 * table.row_size),
    ):
        yield gauge(f"replay_{name}", text, by_run(value), label="run")
