"""Composition root of the collector: replicas that share an import of torch and keep redialling."""

import faulthandler
import logging
import time
import uuid
from asyncio import Event
from concurrent.futures import ThreadPoolExecutor

from fullrank.common.errors import ConfigError, Stuck
from fullrank.host.certificates import Role
from fullrank.host.children import Restarts, run_replica, run_replicas
from fullrank.host.process import Launch, end_process, tune_process
from fullrank.net.attachment import attach_as
from fullrank.net.channel import Security
from fullrank.net.server import Health
from fullrank_collector.run_context import CollectorContext
from fullrank_collector.session import CollectorSession

log = logging.getLogger(__name__)

STDERR = 2
"""File descriptor of the log."""


def main(launch: Launch) -> int:
    """Run the replicas until a stop signal; return the exit code."""
    import torch

    if launch.replicas > 1 and launch.config.health.address:
        raise ConfigError("health.address is one collector's; leave it empty with --replicas")
    torch.set_num_threads(launch.config.compute.threads)
    tune_process(launch)
    return run_replicas(launch, _replica, Restarts(say=log.warning, clock=time.monotonic))


def _replica(launch: Launch, _: int) -> int:
    return run_replica(attach(launch))


async def attach(launch: Launch, stop: Event | None = None) -> None:
    """Dial until ``stop`` is set, by default until the process receives a stop signal.

    Collectors reconnect to a restarted controller. With ``launch.until_finished`` the collector
    ends when the run is finished.

    Raises:
        FullrankError: The failure is permanent, so that redialling cannot help.
    """
    context: CollectorContext | None = None
    process = uuid.uuid4().bytes
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="play") as pool:

        async def dial(address: str, security: Security, health: Health) -> None:
            nonlocal context
            session = CollectorSession(
                address,
                settings=launch.config,
                pool=pool,
                context=context,
                process=process,
                health=health,
                security=security,
            )
            try:
                await session.run()
            finally:
                context = session.context

        try:
            await attach_as(Role.COLLECTOR, launch, dial, say=log.info, stop=stop)
        except Stuck as error:
            faulthandler.dump_traceback(STDERR)
            end_process(error)  # the playing thread cannot be ended
        finally:
            if context is not None:
                pool.submit(context.close).result()
