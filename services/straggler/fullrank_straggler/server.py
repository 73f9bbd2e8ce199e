"""Composition root of the sidecar: configuration to a proxied port and a control port."""

import asyncio
import logging
from collections.abc import Iterator
from functools import partial

from fullrank.config.layers import Resolved
from fullrank.host.certificates import Role
from fullrank.host.process import Launch, stop_event, tune_process
from fullrank.host.run_directory import announce, resolve, withdraw
from fullrank.net.channel import Security
from fullrank.net.prometheus import Exporter, Family, gauge
from fullrank.net.server import Health, Server
from fullrank.v1 import straggler_pb2 as pb
from fullrank_straggler.control import Control
from fullrank_straggler.injection import Injection, injection_of
from fullrank_straggler.relay import Proxy
from fullrank_straggler.servicer import StragglerServicer

log = logging.getLogger(__name__)


def main(launch: Launch) -> int:
    """Serve until told to stop; returns the exit code."""
    tune_process(launch)
    asyncio.run(serve(launch))
    return 0


async def serve(launch: Launch, stop: asyncio.Event | None = None) -> None:
    """Serve until ``stop`` is set, by default until the process is told to stop.

    Raises:
        ConfigError: The configured delay model or certificate cannot be.
        AddressInUse: An address is taken.
    """
    stop = stop or stop_event(launch)
    settings, run_dir = launch.config.sidecar, launch.run_dir
    control = Control(_configured(launch.resolved))
    security = Security.configured(launch.config.tls, Role.LEARNER)
    proxy = Proxy(
        partial(resolve, launch.config.controller.address, run_dir, "controller"),
        control,
        security=security,
    )
    descriptor = pb.DESCRIPTOR.services_by_name["StragglerService"]
    server = Server(descriptor, StragglerServicer(control), security=security)
    exporter = Exporter(
        launch.config.metrics.prometheus,
        lambda: _metrics(control),
        run_dir=launch.run_dir,
        name="straggler",
    )
    async with Health(launch.config.health.address) as health:
        await exporter.start()
        bound = {
            "straggler": await proxy.start(settings.address),
            "straggler-control": await server.start(settings.control),
        }
        for name, address in bound.items():
            announce(run_dir, name, address)
        log.info("serving address=%s control=%s", *bound.values())
        await health.at_work(True)
        await stop.wait()
        await health.at_work(False)
        for name in bound:
            withdraw(run_dir, name)
        await server.stop()
        await proxy.stop()
        await exporter.stop()


def _metrics(control: Control) -> Iterator[Family]:
    """Metrics of this process."""
    yield gauge("straggler_streams", "Streams that pass through.", control.attached)
    yield gauge("straggler_faults", "Faults injected.", len(control.injection().faults))


def _configured(resolved: Resolved) -> Injection:
    config = resolved.config
    return injection_of(config.stragglers, config.sidecar.faults, origin=resolved.origin)
