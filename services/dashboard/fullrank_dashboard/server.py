"""Composition root of the dashboard: configuration to a page that follows runs."""

import asyncio
import logging
import socket
from contextlib import suppress

import uvicorn

from fullrank.config import RunConfig
from fullrank.errors import AddressInUse, ConfigError
from fullrank.rpc.addresses import announce, resolve, withdraw
from fullrank.rpc.health import Health
from fullrank.rpc.launch import Launch, stop_event, tune_process
from fullrank.rpc.security import is_loopback
from fullrank_dashboard.following import Following
from fullrank_dashboard.page import page_of

log = logging.getLogger(__name__)

DRAIN_S = 1
"""Grace for pages, which listen for as long as they are open."""
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")


def main(launch: Launch) -> int:
    """Serve until told to stop; returns the exit code."""
    tune_process(launch)
    asyncio.run(serve(launch))
    return 0


async def serve(launch: Launch, stop: asyncio.Event | None = None) -> None:
    """Serve until ``stop`` is set, by default until the process is told to stop.

    Raises:
        ConfigError: The page would be served beyond loopback, and nobody has allowed that.
        AddressInUse: An address is taken.
    """
    stop = stop or stop_event(launch)
    config = launch.config
    runs = [Following(run, config.tls) for run in _runs(launch)]
    listener = _listen(config)
    hosts = LOOPBACK if is_loopback(config.dashboard.address) else ("*",)
    server = uvicorn.Server(
        uvicorn.Config(
            page_of(runs, hosts=hosts),
            log_level="warning",
            access_log=False,
            lifespan="off",
            server_header=False,
            timeout_graceful_shutdown=DRAIN_S,
        )
    )
    async with Health(config.health.address) as health:
        following = [asyncio.create_task(each.follow()) for each in runs]
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        address = _name(listener)
        announce(launch.run_dir, "dashboard", address)
        log.info("the dashboard is at http://%s", address)
        await health.at_work(True)
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait({stopping, serving, *following}, return_when=asyncio.FIRST_COMPLETED)
        await health.at_work(False)
        withdraw(launch.run_dir, "dashboard")
        server.should_exit = True
        await serving
        for task in (stopping, *following):
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


def _runs(launch: Launch) -> tuple[str, ...]:
    """Those that are configured, else the one whose configuration this is."""
    config = launch.config
    if config.dashboard.runs:
        return config.dashboard.runs
    return (resolve(config.monitor.address, launch.run_dir, "monitor"),)


def _listen(config: RunConfig) -> socket.socket:
    address = config.dashboard.address
    if not config.tls.allow_plaintext and not is_loopback(address):
        raise ConfigError(
            f"refusing to serve the page at {address}, where everybody may see the runs: keep "
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
