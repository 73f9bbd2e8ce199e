"""The controller's ports: ControllerService, MonitorService and Prometheus."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from fullrank.common.errors import ServiceLost
from fullrank.config.tree import RunConfig
from fullrank.rpc.addresses import announce
from fullrank.rpc.prometheus import Exporter
from fullrank.rpc.security import Security
from fullrank.rpc.server import Server
from fullrank.v1 import controller_pb2, monitor_pb2
from fullrank_controller.driver import Driver
from fullrank_controller.learners.servicer import ControllerServicer
from fullrank_controller.monitor.log import IterationLog
from fullrank_controller.monitor.servicer import PREBUILT, MonitorServicer
from fullrank_controller.monitor.subscription import Subscriptions
from fullrank_controller.persistence.run_directory import RunDirectory
from fullrank_controller.prometheus import Totals, run_metrics
from fullrank_controller.run import Run

DRAIN_S = 0.5
"""Grace for monitor calls in flight, whose subscribers were told that the controller stops."""


@asynccontextmanager
async def open_ports(
    config: RunConfig,
    run: Run,
    driver: Driver,
    directory: RunDirectory,
    *,
    totals: Totals,
    security: Security,
) -> AsyncIterator[None]:
    """Serve the run and announce the addresses; at the end, close every stream.

    Raises:
        AddressInUse: An address is taken or cannot be bound.
    """
    server = Server(
        controller_pb2.DESCRIPTOR.services_by_name["ControllerService"],
        ControllerServicer(run),
        security=security,
        prebuilt=frozenset({"Work"}),
    )
    async with AsyncExitStack() as stack:
        listen = config.controller.listen or config.controller.address
        address = await server.start(listen, on_bound=run.served_at)
        stack.push_async_callback(server.stop)
        announce(directory.path, "controller", address)
        await stack.enter_async_context(
            open_observation(config, run, driver, directory, totals=totals, security=security)
        )
        stack.callback(_send_away, run, directory)
        yield


@asynccontextmanager
async def open_observation(
    config: RunConfig,
    run: Run,
    driver: Driver,
    directory: RunDirectory,
    *,
    totals: Totals,
    security: Security,
) -> AsyncIterator[None]:
    """Serve the ports for observers alone: MonitorService and, if configured, Prometheus.

    Raises:
        AddressInUse: An address is taken or cannot be bound.
    """
    exporter = Exporter(
        config.metrics.prometheus,
        lambda: [*run_metrics(run, acknowledged=driver.pipeline.head), *totals.families()],
        run_dir=directory.path,
        name="controller",
    )
    await exporter.start()
    try:
        async with _open_monitor(config, run, driver, directory, security=security):
            yield
    finally:
        await exporter.stop()


def _send_away(run: Run, directory: RunDirectory) -> None:
    """Withdraw the address and end the streams of all learners."""
    directory.withdraw("controller")
    for member in run.roster.members:
        member.expel(ServiceLost("the controller is stopping"))


@asynccontextmanager
async def _open_monitor(
    config: RunConfig, run: Run, driver: Driver, directory: RunDirectory, *, security: Security
) -> AsyncIterator[None]:
    """Serve MonitorService on its own port.

    Raises:
        AddressInUse: The address is taken or cannot be bound.
    """

    def is_last(iteration: int) -> bool:
        return run.progress.finished and iteration + 1 == run.identity.iterations

    iterations = IterationLog(directory.metrics)
    subscriptions = Subscriptions(iterations, is_last=is_last)
    server = Server(
        monitor_pb2.DESCRIPTOR.services_by_name["MonitorService"],
        MonitorServicer(run, driver, subscriptions, directory.checkpoints),
        security=security,
        prebuilt=PREBUILT,
    )
    address = await server.start(config.monitor.listen or config.monitor.address)
    announce(directory.path, "monitor", address)
    try:
        yield
    finally:
        directory.withdraw("monitor")
        await subscriptions.close()
        await server.stop(drain_s=DRAIN_S)
        iterations.close()
