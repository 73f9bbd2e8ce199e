"""The controller's ports: ControllerService, MonitorService and Prometheus."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

from fullrank.common.errors import ServiceLost
from fullrank.host.run_directory import announce
from fullrank.net.channel import Security
from fullrank.net.prometheus import Exporter, gauge
from fullrank.net.server import Server
from fullrank.runs.identity import CHECKPOINTS
from fullrank.runs.record import METRICS
from fullrank.v1 import controller_pb2, monitor_pb2
from fullrank_controller.driver import Driver
from fullrank_controller.learners.servicer import ControllerServicer
from fullrank_controller.monitor.log import IterationLog
from fullrank_controller.monitor.servicer import PREBUILT, MonitorServicer, Subscriptions
from fullrank_controller.prometheus import run_metrics, store_metrics
from fullrank_controller.term import Term

DRAIN_S = 0.5
"""Grace for monitor calls in flight, whose subscribers were told that the controller stops."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerPorts:
    """The ports of one term. Opening them raises ``AddressInUse`` if an address is taken."""

    term: Term
    driver: Driver
    security: Security
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when an administrator orders the controller to stop."""

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Serve the run and announce the addresses; at the end, close every stream."""
        server = Server(
            controller_pb2.DESCRIPTOR.services_by_name["ControllerService"],
            ControllerServicer(self.term, self.driver, self.stop),
            security=self.security,
            prebuilt=frozenset({"Work", "Collect"}),
        )
        async with AsyncExitStack() as stack:
            settings = self.term.config.controller
            address = await server.start(
                settings.listen or settings.address, on_bound=self.term.run.served_at
            )
            stack.push_async_callback(server.stop)
            announce(self.term.directory.path, "controller", address)
            await stack.enter_async_context(self.open_observation())
            stack.callback(self._send_away)
            yield

    @asynccontextmanager
    async def open_observation(self) -> AsyncIterator[None]:
        """Serve the ports for observers alone: MonitorService and, if configured, Prometheus."""
        term, driver = self.term, self.driver
        exporter = Exporter(
            term.config.metrics.prometheus,
            lambda: [
                *run_metrics(term.run, acknowledged=driver.pipeline.head),
                gauge(
                    "disk_free_bytes",
                    "Free space for the run.",
                    shutil.disk_usage(term.directory.path).free,
                ),
                *store_metrics(term.watchdog),
                *term.totals.families(),
            ],
            run_dir=term.directory.path,
            name="controller",
            run=term.run.identity.name,
            expires_at=lambda: self.security.expires_at,
        )
        async with exporter, self._open_monitor():
            yield

    def _send_away(self) -> None:
        """Withdraw the address and end the streams of all learners and collectors."""
        self.term.directory.withdraw("controller")
        for member in (each for roster in self.term.run.rosters for each in roster.members):
            member.expel(ServiceLost(self.term.run.progress.parting))

    @asynccontextmanager
    async def _open_monitor(self) -> AsyncIterator[None]:
        """Serve MonitorService on its own port."""
        run, directory = self.term.run, self.term.directory
        settings = self.term.config.monitor

        def is_last(iteration: int) -> bool:
            return run.progress.finished and iteration + 1 == run.progress.iterations

        iterations = IterationLog(directory.path / METRICS)
        subscriptions = Subscriptions(iterations, is_last=is_last)
        server = Server(
            monitor_pb2.DESCRIPTOR.services_by_name["MonitorService"],
            MonitorServicer(run, self.driver, subscriptions, directory.path / CHECKPOINTS),
            security=self.security,
            prebuilt=PREBUILT,
        )
        address = await server.start(settings.listen or settings.address)
        announce(directory.path, "monitor", address)
        try:
            yield
        finally:
            directory.withdraw("monitor")
            try:
                await subscriptions.close(run.progress.parting)
            finally:
                await server.stop(drain_s=DRAIN_S)
                iterations.close()
