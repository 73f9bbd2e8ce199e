"""The controller's ports: what learners, monitors and Prometheus dial."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import chain

from fullrank.common.errors import ServiceLost
from fullrank.config import RunConfig
from fullrank.rpc.addresses import announce
from fullrank.rpc.exposition import Exposition
from fullrank.rpc.security import Security
from fullrank.rpc.server import Server
from fullrank.v1 import controller_pb2 as pb
from fullrank_controller.learners.servicer import ControllerServicer
from fullrank_controller.monitor.prometheus import Tally, present
from fullrank_controller.monitor.server import Monitoring
from fullrank_controller.persistence.run_directory import RunDirectory
from fullrank_controller.run_state import Run


@asynccontextmanager
async def open_ports(
    config: RunConfig, run: Run, directory: RunDirectory, *, tally: Tally, security: Security
) -> AsyncIterator[None]:
    """Serve the run and announce where; in the end send everybody away.

    Raises:
        AddressInUse: An address is taken or cannot be bound.
    """
    server = Server(
        pb.DESCRIPTOR.services_by_name["ControllerService"],
        ControllerServicer(run),
        security=security,
        prebuilt=frozenset({"Work"}),
    )
    exposition = Exposition(
        config.metrics.prometheus,
        lambda: chain(present(run), tally.families()),
        run_dir=directory.path,
        name="controller",
    )
    monitoring = Monitoring(config.monitor, run, directory, security=security)
    address = await server.start(config.controller.listen or config.controller.address)
    announce(directory.path, "controller", address)
    await exposition.start()
    await monitoring.start()
    try:
        yield
    finally:
        directory.withdraw("controller")
        for member in run.roster.members:
            member.expel(ServiceLost("the controller is stopping"))
        await monitoring.stop()
        await exposition.stop()
        await server.stop()
