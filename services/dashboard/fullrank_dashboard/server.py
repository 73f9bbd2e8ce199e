"""Composition root of the dashboard: configuration to a page that follows runs, and its routes."""

import asyncio
import json
import logging
import socket
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from fullrank.common.errors import AddressInUse, ConfigError, FullrankError, NotFound
from fullrank.common.foreign import brief
from fullrank.common.types import JSON
from fullrank.config.tree import RunConfig
from fullrank.host.certificates import Role
from fullrank.host.process import Launch, stop_event, tune_process
from fullrank.host.run_directory import announce, resolve, withdraw
from fullrank.net.channel import expiry_of, is_loopback
from fullrank.net.prometheus import Exporter
from fullrank.net.server import Health
from fullrank.net.status import CodeInUse
from fullrank_dashboard.following import Following
from fullrank_dashboard.view import RunView, code_facts

log = logging.getLogger(__name__)

STATIC = Path(__file__).parent / "static"
PERIOD_S = 0.25
"""Time between two messages to a page."""
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
"""The page loads nothing from other origins and cannot be framed."""


@dataclass(slots=True)
class PageState:
    """State of one run that a page has received."""

    revision: int = -1
    generation: int = -1
    points: int = 0
    code: CodeInUse | None = None
    evaluations: list[JSON] | None = None
    settings: JSON | None = None

    def news(self, view: RunView) -> JSON | None:
        """Changes since the last call; None without any."""
        if view.revision == self.revision:
            return None
        curve = view.curve
        start = max(0, self.points - 1) if curve.generation == self.generation else 0
        news = view.facts() | {
            "curve": {"start": start, "width": curve.width, "columns": curve.columns(start)}
        }
        if (evaluations := view.evaluations()) != self.evaluations:
            news["evaluations"] = self.evaluations = evaluations
        if view.settings != self.settings:
            news["settings"] = self.settings = view.settings
        if view.code is not None and view.code is not self.code:
            news["code"] = code_facts(view.code)
            self.code = view.code
        self.revision, self.generation, self.points = view.revision, curve.generation, len(curve)
        return news


def page_of(runs: Sequence[Following], *, hosts: Sequence[str], stop: asyncio.Event) -> Starlette:
    """The application.

    Args:
        runs: Runs that it shows.
        hosts: Allowed host names, against DNS rebinding.
        stop: Ends the event streams of pages.
    """

    async def index(request: Request) -> Response:
        return FileResponse(STATIC / "index.html", headers=HEADERS)

    async def events(request: Request) -> Response:
        news = _events([run.view for run in runs], stop)
        return StreamingResponse(news, media_type="text/event-stream", headers=HEADERS)

    def named(request: Request) -> Following:
        number: int = request.path_params["run"]
        if number >= len(runs):
            raise NotFound(f"there is no run {number}")
        return runs[number]

    async def one_round(request: Request) -> Response:
        run = named(request)
        record = await run.find(request.path_params["iteration"])
        return JSONResponse(run.view.round(record), headers=HEADERS)

    async def episode(request: Request) -> Response:
        stage = named(request).stage
        if request.method == "POST":
            if _is_foreign(request):
                return JSONResponse({"problem": "ask from the page"}, 403, headers=HEADERS)
            stage.ask()
            return JSONResponse({}, 202, headers=HEADERS)
        if not stage.episode:
            raise NotFound("no episode was played yet")
        return Response(stage.episode, media_type="application/json", headers=HEADERS)

    async def not_found(request: Request, error: Exception) -> Response:
        return JSONResponse({"problem": str(error)}, 404, headers=HEADERS)

    return Starlette(
        routes=[
            Route("/", index),
            Route("/events", events),
            Route("/runs/{run:int}/rounds/{iteration:int}", one_round),
            Route("/runs/{run:int}/episode", episode, methods=["GET", "POST"]),
            Mount("/static", StaticFiles(directory=STATIC)),
        ],
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=list(hosts))],
        exception_handlers={FullrankError: not_found},
    )


def _is_foreign(request: Request) -> bool:
    """True if a page of another origin makes the browser send the request."""
    origin = request.headers.get("origin")
    return origin is not None and urlsplit(origin).netloc != request.headers.get("host")


async def _events(views: Sequence[RunView], stop: asyncio.Event) -> AsyncIterator[str]:
    """Server-sent events for as long as the page reads; a slow page gets larger ones."""
    states = [PageState() for _ in views]
    while not stop.is_set():
        for message in _messages(views, states):
            yield message
        await asyncio.sleep(PERIOD_S)


def _messages(views: Sequence[RunView], states: Sequence[PageState]) -> Iterator[str]:
    for number, (view, state) in enumerate(zip(views, states, strict=True)):
        try:
            message = _message(number, state.news(view))
        except Exception as error:  # it spoils its own card alone
            log.exception("cannot_be_shown run=%s", view.name)
            state.revision = view.revision  # said once
            empty = RunView(view.name)
            empty.away(f"it cannot be shown: {type(error).__name__}: {brief(str(error))}")
            message = _message(number, PageState().news(empty))
        if message:
            yield message


def _message(number: int, news: JSON | None) -> str:
    """News of a run as an event; empty without any."""
    if news is None:
        return ""
    return f"data: {json.dumps({'run': number} | news, allow_nan=False)}\n\n"


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
    turn = asyncio.Lock()
    runs = [Following(run, config.tls, turn) for run in _runs(launch)]
    listener = _listen(config)
    hosts = LOOPBACK if is_loopback(config.dashboard.address) else ("*",)
    server = _server(page_of(runs, hosts=hosts, stop=stop))
    exporter = Exporter(
        config.metrics.prometheus,
        list,
        run_dir=launch.run_dir,
        name="dashboard",
        expires_at=lambda: expiry_of(config.tls, Role.MONITOR),
    )
    async with Health(config.health.address) as health, exporter, asyncio.TaskGroup() as group:
        following = [
            group.create_task(task) for run in runs for task in (run.follow(), run.stage.keep())
        ]
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
