"""Fixtures: Chromium, and a dashboard over runs of the test's choice."""

import asyncio
import json
import logging
import os
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import TypeAlias

import pytest
from playwright.async_api import Browser, Error, Page, async_playwright
from tests.waiting import WAIT_S, eventually

from fullrank.config import load
from fullrank.host.process import Launch
from fullrank.host.run_directory import resolve
from fullrank_dashboard.server import serve

CHROMIUM = os.environ.get("FULLRANK_CHROMIUM") or shutil.which("chromium")
REQUIRED = bool(os.environ.get("FULLRANK_REQUIRE_CHROMIUM"))
"""True if a missing browser fails the tests instead of skipping them."""

WAIT_MS = 1000 * WAIT_S
"""Playwright's own limits, of 30 s, would judge a slow machine."""

TRIES = 20
"""Loads of a page while networks of the host change, as those of containers do."""

Show: TypeAlias = Callable[..., AbstractAsyncContextManager[str]]
"""Serves a page over the given runs and settings; returns its address."""


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    """Run a headless Chromium."""
    if CHROMIUM is None:
        unable = pytest.fail if REQUIRED else pytest.skip
        unable("no Chromium: install one, or name it by FULLRANK_CHROMIUM")
    async with async_playwright() as playwright:
        chromium = await playwright.chromium.launch(executable_path=CHROMIUM, timeout=WAIT_MS)
        yield chromium
        await chromium.close()


@pytest.fixture
async def page(browser: Browser) -> AsyncIterator[Page]:
    """A browser page; a failing script fails the test."""
    page = await browser.new_page()
    page.set_default_timeout(WAIT_MS)
    page.on("console", lambda message: print("the page says:", message.text))
    _go_patiently(page)
    failed: list[str] = []
    page.on("pageerror", lambda error: failed.append(str(error)))
    yield page
    assert failed == []


def _go_patiently(page: Page) -> None:
    """Load a page again whose files Chromium gave up, as it does when the host gets a network."""
    failures: list[str] = []
    page.on("requestfailed", lambda request: failures.append(f"{request.url} {request.failure}"))
    goto = page.goto

    async def patient(address: str) -> None:
        for left in reversed(range(TRIES)):
            failures.clear()
            try:
                await goto(address)
            except Error as error:
                if "ERR_NETWORK_CHANGED" not in str(error) or not left:
                    raise
                continue
            if not any("ERR_NETWORK_CHANGED" in each for each in failures):
                return
            print("failed:", *failures)

    page.goto = patient  # type: ignore[method-assign,assignment]


@pytest.fixture
def show(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Show:
    """Serves dashboards, which stop silently, even while a page is open."""

    @asynccontextmanager
    async def serving(*runs: str, **settings: object) -> AsyncIterator[str]:
        place, stop = tmp_path / "dashboard", asyncio.Event()
        overrides = [f"{key}={json.dumps(value)}" for key, value in settings.items()]
        overrides += ["dashboard.address=127.0.0.1:0", f"dashboard.runs={json.dumps(runs)}"]
        task = asyncio.create_task(
            serve(Launch(resolved=load(overrides=overrides), run_dir=place), stop)
        )
        announced = place / "services" / "dashboard.json"
        await eventually(lambda: announced.exists() or task.done(), what="it is served")
        yield f"http://{resolve('127.0.0.1:0', place, 'dashboard')}"
        stop.set()
        await task
        assert [each.message for each in caplog.records if each.levelno >= logging.ERROR] == []

    return serving
