"""HTTP application of the dashboard: the page, its events and its rounds."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from fullrank.common.errors import FullrankError, NotFound
from fullrank.common.foreign import brief
from fullrank.common.types import JSON
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
    epoch: int = -1
    evaluations: list[JSON] | None = None

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
        if view.code is not None and view.code.epoch != self.epoch:
            news["code"] = code_facts(view.code)
            self.epoch = view.code.epoch
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

    async def one_round(request: Request) -> Response:
        number, iteration = request.path_params["run"], request.path_params["iteration"]
        try:
            if number >= len(runs):
                raise NotFound(f"there is no run {number}")
            record = await runs[number].find(iteration)
        except FullrankError as error:
            return JSONResponse({"problem": str(error)}, status_code=404, headers=HEADERS)
        return JSONResponse(runs[number].view.round(record), headers=HEADERS)

    return Starlette(
        routes=[
            Route("/", index),
            Route("/events", events),
            Route("/runs/{run:int}/rounds/{iteration:int}", one_round),
            Mount("/static", StaticFiles(directory=STATIC)),
        ],
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=list(hosts))],
    )


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
