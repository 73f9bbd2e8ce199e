"""Composition root of the replay service: configuration to a listening server."""

import asyncio

from fullrank.rpc.addresses import announce, withdraw
from fullrank.rpc.health import Health
from fullrank.rpc.identity import Role
from fullrank.rpc.process import Launch, run, stop_event, tune_process
from fullrank.rpc.prometheus import Exporter
from fullrank.rpc.security import Security
from fullrank.rpc.server import Server
from fullrank.runs.event_log import EventLog
from fullrank.v1 import replay_pb2
from fullrank_replay.fence import Fence
from fullrank_replay.prometheus import table_metrics
from fullrank_replay.servicer import ReplayServicer
from fullrank_replay.store import Store


def main(launch: Launch) -> int:
    """Serve until told to stop; returns the exit code."""
    tune_process(launch)
    run(serve(launch))
    return 0


async def serve(launch: Launch, stop: asyncio.Event | None = None) -> None:
    """Serve until ``stop`` is set, by default until the process is told to stop."""
    stop = stop or stop_event(launch)
    settings = launch.config.replay
    directory = launch.run_dir / "replay" if launch.run_dir else None
    store = Store(directory, sync=settings.acknowledge == "fsync")
    event_log = EventLog(launch.run_dir, "replay")
    server = Server(
        replay_pb2.DESCRIPTOR.services_by_name["ReplayService"],
        ReplayServicer(store, Fence(directory), event_log),
        security=Security.of(launch.config.tls, Role.REPLAY),
        prebuilt=frozenset({"GetSamples"}),
    )
    exporter = Exporter(
        launch.config.metrics.prometheus,
        lambda: table_metrics(store),
        run_dir=launch.run_dir,
        name="replay",
    )
    async with Health(launch.config.health.address) as health:
        await exporter.start()
        bound = await server.start(settings.listen or settings.address)
        announce(launch.run_dir, "replay", bound)
        await health.at_work(True)
        await stop.wait()
        await health.at_work(False)
        withdraw(launch.run_dir, "replay")
        await server.stop()
        await exporter.stop()
        event_log.close()
