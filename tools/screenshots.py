"""Draw docs/dashboard/: the views of the dashboard over runs, in light, in dark and on a telephone.

fullrank train --iterations 1500 --run-dir runs/a &
python tools/screenshots.py runs/a runs/b
"""

import argparse
import asyncio
import json
import shutil
import tempfile
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.async_api import Browser, async_playwright, expect
from tenacity import retry, retry_if_exception_type, wait_fixed

from fullrank.common.errors import ServiceLost
from fullrank.config import load
from fullrank.host.process import Launch
from fullrank.host.run_directory import resolve
from fullrank_dashboard.server import serve

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "dashboard"
PICTURES: Mapping[str, tuple[str, Any]] = {
    "light": ("learning", {"viewport": {"width": 1280, "height": 1000}, "color_scheme": "light"}),
    "dark": ("rounds", {"viewport": {"width": 1280, "height": 1000}, "color_scheme": "dark"}),
    "runs": ("compare", {"viewport": {"width": 1280, "height": 1000}, "color_scheme": "light"}),
    "phone": ("learning", {"viewport": {"width": 390, "height": 1700}, "color_scheme": "light"}),
}
"""View and browser of each picture."""
COLOURS = 96
"""Colours of a picture, which has few."""


@retry(retry=retry_if_exception_type(ServiceLost), wait=wait_fixed(0.05))
async def announced_page(place: Path) -> str:
    """Address of the page, as soon as it is served."""
    return resolve("127.0.0.1:0", place, "dashboard")


async def draw(runs: list[str]) -> None:
    """Serve the page and take its pictures."""
    overrides = [f"dashboard.runs={json.dumps(runs)}", "dashboard.address=127.0.0.1:0"]
    stop = asyncio.Event()
    with tempfile.TemporaryDirectory() as scratch:
        launch = Launch(resolved=load(overrides=overrides), run_dir=Path(scratch))
        serving = asyncio.create_task(serve(launch, stop))
        address = await announced_page(Path(scratch))
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(executable_path=shutil.which("chromium"))
            for name in PICTURES:
                await picture(browser, f"http://{address}", name)
            await browser.close()
        stop.set()
        await serving


async def picture(browser: Browser, address: str, name: str) -> None:
    """Take a picture as soon as the page is drawn."""
    view, options = PICTURES[name]
    page = await browser.new_page(**options)
    page.set_default_timeout(0)
    await page.goto(f"{address}/#{view}")
    await expect(page.locator(f"#{view} .uplot").first).to_be_visible()
    if view == "learning":
        await expect(page.locator("#episode .note")).to_contain_text("after", timeout=0)
        await page.locator("#play").click()
        await page.locator("#step").fill("12")
    drawn = Image.open(BytesIO(await page.screenshot())).convert("RGB")
    drawn.quantize(COLOURS, dither=Image.Dither.NONE).save(FOLDER / f"{name}.png", optimize=True)
    await page.close()


def main() -> None:
    """Draw the runs named on the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("runs", nargs="+", help="run directories, the first one live")
    FOLDER.mkdir(exist_ok=True)
    asyncio.run(draw(parser.parse_args().runs))


if __name__ == "__main__":
    main()
