"""Composition root of the sidecar: configuration to a proxied port, and a port that steers it."""

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from fullrank.common.errors import ConfigError, InvalidContribution
from fullrank.config.faults import Fault
from fullrank.config.layers import Resolved
from fullrank.host.certificates import Role
from fullrank.host.process import Launch, stop_event, tune_process
from fullrank.host.run_directory import announce, resolve, withdraw
from fullrank.net.channel import Security
from fullrank.net.errors import Context, statuses
from fullrank.net.prometheus import Exporter, Family, gauge
from fullrank.net.server import Health, Server
from fullrank.net.straggler import decode_fault, decode_model, encode_injection
from fullrank.stragglers import delay_models
from fullrank.v1 import straggler_pb2 as pb
from fullrank_straggler.gate import Control, Injection, injection_of
from fullrank_straggler.relay import Proxy

log = logging.getLogger(__name__)


class StragglerServicer:
    """StragglerService over the injection of one process."""

    def __init__(self, control: Control) -> None:
        self._control = control

    async def GetInjection(
        self, request: pb.GetInjectionRequest, context: Context
    ) -> pb.GetInjectionResponse:
        """Report the current injection."""
        return pb.GetInjectionResponse(injection=self._encoded())

    async def SetInjection(
        self, request: pb.SetInjectionRequest, context: Context
    ) -> pb.SetInjectionResponse:
        """Apply a change as a whole or not at all."""
        async with statuses(context):
            injection = self._control.injection()
            if request.HasField("faults"):
                faults = enumerate(request.faults.faults)
                injection = replace(
                    injection, faults=tuple(_fault(index, fault) for index, fault in faults)
                )
            if request.HasField("model"):
                injection = _with_model(injection, request.model)
            try:
                self._control.change(injection)
            except ConfigError as error:
                raise InvalidContribution(f"model.params: {error}") from None
            return pb.SetInjectionResponse(injection=self._encoded())

    def _encoded(self) -> pb.Injection:
        injection = self._control.injection()
        return encode_injection(injection.settings, injection.faults)


def _with_model(injection: Injection, model: pb.DelayModel) -> Injection:
    field = "model.params" if model.name in delay_models else "model.name"
    try:
        settings = decode_model(model)
        origin = {f"stragglers.{key}": "the request" for key in settings.params}
        return injection_of(settings, injection.faults, origin=origin)
    except ConfigError as error:
        raise InvalidContribution(f"{field}: {error}") from None


def _fault(index: int, fault: pb.Fault) -> Fault:
    try:
        return decode_fault(fault)
    except ConfigError as error:
        raise InvalidContribution(f"faults.{index}.{error}") from None


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
        expires_at=lambda: security.expires_at,
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
