"""Composition root of the dashboard: configuration to a page that follows runs."""

import asyncio
import logging
import socket

import uvicorn
from starlette.applications import Starlette

from fullrank.common.errors import AddressInUse, ConfigError
from fullrank.config.tree import RunConfig
from fullrank.host.process import Launch, stop_event, tune_process
from fullrank.host.run_directory import announce, resolve, withdraw
from fullrank.net.channel import is_loopback
from fullrank.net.server import Health
from fullrank_dashboard.following import Following
from fullrank_dashboard.page import page_of

log = logging.getLogger(__name__)

DRAIN_S = 1
"""Grace period of pages that do not read, seconds."""
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")


def main(launch: Launch) -> int:
    """Serve until told to stop; returns the exit code."""
    tune_process(launch)
    asyncio.run(serve(launch))
    return 0


async def serve(launch: Launch, stop: asyncio.Event | None = None) -> None:
    """Serve until ``stop`` is set, by default until the process is told to stop.

    Raises:
        ConfigError: The page would be served beyond loopback, which is not allowed.
        AddressInUse: An address is taken.
    """
    stop = stop or stop_event(launch)
    config = launch.config
    runs = [Following(run, config.tls) for run in _runs(launch)]
    listener = _listen(config)
    hosts = LOOPBACK if is_loopback(config.dashboard.address) else ("*",)
    server = _server(page_of(runs, hosts=hosts, stop=stop))
    async with Health(config.health.address) as health, asyncio.TaskGroup() as group:
        following = [group.create_task(run.follow()) for run in runs]
        serving = group.create_task(server.serve(sockets=[listener]))
        address = _name(listener)
        announce(launch.run_dir, "dashboard", address)
        log.info("the dashboard is at http://%s", address)
        await health.at_work(True)
        await stop.wait()
        await health.at_work(False)
        withdraw(launch.run_dir, "dashboard")
        server.should_exit = True
        await serving
        for task in following:
            task.cancel()


def _server(page: Starlette) -> uvicorn.Server:
    return uvicorn.Server(
        uvicorn.Config(
            page,
            log_config=None,  # log as the process does
            log_level="warning",
            access_log=False,
            lifespan="off",
            server_header=False,
            timeout_graceful_shutdown=DRAIN_S,
        )
    )


def _runs(launch: Launch) -> tuple[str, ...]:
    """The configured runs, by default the run of this configuration."""
    config = launch.config
    if config.dashboard.runs:
        return config.dashboard.runs
    return (resolve(config.monitor.address, launch.run_dir, "monitor"),)


def _listen(config: RunConfig) -> socket.socket:
    address = config.dashboard.address
    if not config.tls.allow_plaintext and not is_loopback(address):
        raise ConfigError(
            f"refusing to serve the page at {address}, where any host may see the runs: keep "
            "dashboard.address on loopback, or say tls.allow_plaintext=true"
        )
    host, _, port = address.rpartition(":")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host.strip("[]"), int(port)), family=family)
    except OSError as error:
        raise AddressInUse(
            f"cannot listen on dashboard.address = {address}: {error.strerror}; stop the other "
            "process or choose another port"
        ) from error


def _name(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
