"""Draw docs/dashboard/: the dashboard over runs, in light, in dark and on a telephone.

fullrank train --iterations 600 --run-dir runs/a &
python tools/screenshots.py runs/a runs/b
"""

import argparse
import asyncio
import json
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from playwright.async_api import Browser, async_playwright, expect
from tenacity import retry, retry_if_exception_type, wait_fixed

from fullrank.common.errors import ServiceLost
from fullrank.config import load
from fullrank.host.process import Launch
from fullrank.host.run_directory import resolve
from fullrank_dashboard.server import serve

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "dashboard"
PICTURES: Mapping[str, Any] = {
    "light": {"viewport": {"width": 1280, "height": 900}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 1280, "height": 900}, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 390, "height": 1700}, "color_scheme": "light"},
}


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
    page = await browser.new_page(**PICTURES[name])
    await page.goto(address)
    await expect(page.locator("#iteration")).not_to_have_text("–")
    await expect(page.locator("#returns canvas")).to_be_visible()
    await page.screenshot(path=FOLDER / f"{name}.png")
    await page.close()


def main() -> None:
    """Draw the runs named on the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("runs", nargs="+", help="run directories, the first one live")
    FOLDER.mkdir(exist_ok=True)
    asyncio.run(draw(parser.parse_args().runs))


if __name__ == "__main__":
    main()
