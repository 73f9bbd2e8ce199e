"""Claim: the dashboard answers within 100 ms, with two live runs of 10,000 iterations in Chromium.

A simulated monitor reports eight learners and commits four iterations a second. Keys and clicks
come from outside the page; the page's event timing measures each from the input until its frame is
painted. Chromium does not list events shorter than 16 ms; they count as 16 ms. The longest times
show what else the machine was doing.

    python benchmarks/dashboard.py --iterations 10000
"""

import argparse
import asyncio
import json
import math
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from statistics import median
from typing import Any

from playwright.async_api import Page, async_playwright
from tenacity import retry, retry_if_exception_type, retry_if_not_result, wait_fixed

from fullrank.codes import make_code
from fullrank.common.errors import ServiceLost
from fullrank.config import RunConfig, load, to_toml
from fullrank.rpc.addresses import resolve
from fullrank.rpc.process import Launch
from fullrank.rpc.security import PLAINTEXT
from fullrank.rpc.server import Server
from fullrank.v1 import controller_pb2
from fullrank.v1 import monitor_pb2 as pb
from fullrank_dashboard.server import serve

CLAIM_MS = 100.0
LEARNERS, UNITS = 8, 5
TIMES = 12
"""Repetitions of each interaction."""
SHORTEST_MS = 16.0

OBSERVE = """() => {
  window.taken = [];
  new PerformanceObserver((list) => taken.push(...list.getEntries().map((entry) => entry.duration)))
    .observe({type: "event", durationThreshold: 16});
}"""
SETTLE = "() => new Promise((done) => requestAnimationFrame(() => setTimeout(done, 30)))"


class SimulatedMonitor:
    """MonitorService over an invented run, whose first iterations exist from the start.

    Args:
        iterations: Number of first iterations.
        seed: Shifts the curve of returns.
    """

    def __init__(self, iterations: int, *, seed: int) -> None:
        self._first, self._seed, self._began_s = iterations, seed, time.monotonic()
        self._code = make_code("cyclic", rows=LEARNERS, units=UNITS)

    @property
    def committed(self) -> int:
        return self._first + int(4 * (time.monotonic() - self._began_s))

    async def GetStatus(self, request: object, context: object) -> Any:
        learners = [
            controller_pb2.LearnerStatus(
                learner=number, host="here", rows=[number], fingerprint="f"
            )
            for number in range(LEARNERS)
        ]
        return controller_pb2.GetStatusResponse(
            run="made up",
            term=1,
            epoch=1,
            state=controller_pb2.RUN_STATE_RUNNING,
            iterations_committed=self.committed,
            iterations=10**6,
            units=UNITS,
            learners=learners,
        )

    async def Watch(self, request: pb.WatchRequest, context: object) -> AsyncIterator[object]:
        for first in range(request.from_iteration, self.committed, 200):
            numbers = range(first, min(first + 200, self.committed))
            yield pb.WatchResponse(iterations=[self._iteration(number) for number in numbers])

    async def GetCode(self, request: object, context: object) -> pb.GetCodeResponse:
        rows = [
            controller_pb2.Row(row=number, units=row.nonzero()[0], coefficients=row[row != 0.0])
            for number, row in enumerate(self._code.matrix)
        ]
        holders = [pb.Holder(row=learner, learner=learner) for learner in range(LEARNERS)]
        return pb.GetCodeResponse(
            epoch=1, name="cyclic", parameters="{}", units=UNITS, rows=rows, holders=holders
        )

    async def GetConfiguration(self, request: object, context: object) -> Any:
        return pb.GetConfigurationResponse(run="made up", configuration=to_toml(RunConfig()))

    async def GetPolicies(self, request: object, context: object) -> None:
        """Not implemented: the page never asks for policies."""

    def _iteration(self, number: int) -> pb.Iteration:
        wave = math.sin(number * (1 + self._seed)) + math.sin(number / 7)
        late = number % LEARNERS
        timelines = [
            pb.Timeline(learner=learner, row=learner, late=True, assigned_s=0.001)
            if learner == late
            else pb.Timeline(
                learner=learner,
                row=learner,
                assigned_s=0.001,
                started_s=0.01,
                compute_s=0.02,
                sent_s=0.03,
                arrived_s=0.04 + 0.001 * learner,
            )
            for learner in range(LEARNERS)
        ]
        return pb.Iteration(
            iteration=number, term=1, epoch=1, code="cyclic", rows=LEARNERS, tolerance=1,
            return_mean=-800 + 400 * (1 - math.exp(-number / 3000)) + 60 * wave,
            collect_s=0.01, round_s=0.06 + 0.005 * wave, decodable_s=0.05, decode_s=0.002,
            received=[learner for learner in range(LEARNERS) if learner != late],
            timelines=timelines,
            exact=True, condition=3 + wave, error_bound=0.0, update_digest=b"made up",
        )  # fmt: skip


def interactions(page: Page) -> Mapping[str, Callable[[int], Awaitable[object]]]:
    """Interactions by name; each takes the number of its repetition."""

    async def zoom(turn: int) -> None:
        box = await page.locator("#returns .u-over").bounding_box()
        assert box is not None
        await page.mouse.move(box["x"] + 100, box["y"] + 50)
        await page.mouse.down()
        await page.mouse.move(box["x"] + 300, box["y"] + 50)
        await page.mouse.up()
        await page.mouse.dblclick(box["x"] + 100, box["y"] + 50)

    return {
        "smoothing": lambda turn: page.locator("#smoothing").press("ArrowRight"),
        "another round": lambda turn: page.locator("#earlier").press("Enter"),
        "another run": lambda turn: page.locator("nav button").nth(turn % 2).click(),
        "zoom in and out": zoom,
        "hide and show a curve": lambda turn: page.locator("#returns .u-legend th").nth(2).click(),
        "light and dark": lambda turn: page.locator("#theme").click(),
    }


@retry(retry=retry_if_exception_type(ServiceLost), wait=wait_fixed(0.05))
async def announced_page(place: Path) -> str:
    """Address of the page, as soon as it is served."""
    return resolve("127.0.0.1:0", place, "dashboard")


@retry(retry=retry_if_not_result(bool), wait=wait_fixed(0.05))
async def drawn(page: Page, iterations: int) -> bool:
    """Wait until all iterations are on the page."""
    text = await page.locator("#iteration").inner_text()
    return int(text.replace(",", "").replace("–", "0")) >= iterations - 1


async def measure(page: Page) -> dict[str, list[float]]:
    """Durations of each interaction, milliseconds."""
    by_interaction = {}
    await page.evaluate(OBSERVE)
    for name, interact in interactions(page).items():
        durations = []
        for turn in range(TIMES):
            await page.evaluate("() => { taken.length = 0; }")
            await interact(turn)
            await page.evaluate(SETTLE)
            durations.append(max([SHORTEST_MS, *await page.evaluate("() => taken")]))
        by_interaction[name] = durations
    return by_interaction


async def run(iterations: int, scratch: Path) -> tuple[float, dict[str, list[float]]]:
    """Measure the seconds until both curves are drawn, and all durations."""
    descriptor = pb.DESCRIPTOR.services_by_name["MonitorService"]
    monitors = [
        Server(descriptor, SimulatedMonitor(iterations, seed=seed), security=PLAINTEXT)
        for seed in (0, 1)
    ]
    addresses = [await monitor.start("127.0.0.1:0") for monitor in monitors]
    overrides = [f"dashboard.runs={json.dumps(addresses)}", "dashboard.address=127.0.0.1:0"]
    stop = asyncio.Event()
    launch = Launch(resolved=load(overrides=overrides), run_dir=scratch)
    serving = asyncio.create_task(serve(launch, stop))
    address = await announced_page(scratch)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=shutil.which("chromium"))
        page = await browser.new_page(viewport={"width": 1280, "height": 1000})
        began_s = time.monotonic()
        await page.goto(f"http://{address}")
        await drawn(page, iterations)
        drawn_s = time.monotonic() - began_s
        durations = await measure(page)
        await browser.close()
    stop.set()
    await serving
    for monitor in monitors:
        await monitor.stop(drain_s=0.1)
    return drawn_s, durations


def main() -> int:
    """Print the durations; return 1 if a median reaches the limit."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--iterations", type=int, default=10_000)
    with tempfile.TemporaryDirectory() as scratch:
        drawn_s, durations = asyncio.run(run(parser.parse_args().iterations, Path(scratch)))
    print("| interaction | median, ms | longest, ms |\n|---|---|---|")
    for name, times_ms in durations.items():
        print(f"| {name} | {median(times_ms):.0f} | {max(times_ms):.0f} |")
    print(f"\nBoth curves were drawn {drawn_s:.1f} s after the page was opened.")
    print(f"Claimed: every median is below {CLAIM_MS:.0f} ms.")
    return int(max(map(median, durations.values())) >= CLAIM_MS)


if __name__ == "__main__":
    sys.exit(main())
