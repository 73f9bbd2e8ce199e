"""Two commands show a run: from ``fullrank train`` to a page on which its curve has moved.

Both run with their defaults in an empty directory, the second as soon as there is a run. Somebody
who has the page open is told the first returns, and a second later more of them. What is measured
begins with the first command; the install is not in it.

    python benchmarks/two_commands.py
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPResponse
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from tenacity import (
    retry,
    retry_if_exception_type,
    retry_if_not_result,
    stop_after_delay,
    wait_fixed,
)

CLAIM_S = 120.0
PAGE = "http://127.0.0.1:8050"
WITHIN, PAUSE = stop_after_delay(CLAIM_S), wait_fixed(0.05)


def fullrank(*words: str) -> "subprocess.Popen[bytes]":
    quiet = subprocess.DEVNULL
    return subprocess.Popen([sys.executable, "-m", "fullrank", *words], stdout=quiet, stderr=quiet)


@retry(retry=retry_if_not_result(bool), stop=WITHIN, wait=PAUSE)
def begun() -> bool:
    return any(Path("runs").glob("*/config.toml"))


@retry(retry=retry_if_exception_type(URLError), stop=WITHIN, wait=PAUSE)
def listen() -> HTTPResponse:
    """What the page hears, as soon as it is served."""
    answer: HTTPResponse = urlopen(f"{PAGE}/events", timeout=CLAIM_S)
    return answer


def points(events: HTTPResponse) -> Iterator[int]:
    """How many returns the page knows, whenever it is told something."""
    for line in events:
        if line.startswith(b"data: "):
            curve = json.loads(line.removeprefix(b"data: "))["curve"]
            yield curve["start"] + len(curve["columns"].get("return", []))


def measure() -> dict[str, float]:
    """What there is to see, and after how many seconds."""
    began_s = time.perf_counter()
    found: dict[str, float] = {}

    def note(what: str) -> None:
        found[what] = time.perf_counter() - began_s

    processes = [fullrank("train")]
    try:
        begun()
        processes.append(fullrank("dashboard"))
        with closing(listen()) as events:
            note("the page is served")
            told = points(events)
            first = next(each for each in told if each)
            note("it has a curve")
            next(each for each in told if each > first)
            note("the curve has moved")
    finally:
        for process in processes:
            process.terminate()
            process.wait()
    return found


def main() -> int:
    with tempfile.TemporaryDirectory() as scratch:
        os.chdir(scratch)
        found = measure()
        os.chdir("/")
    print("| after the first command | s | claim |\n|---|---|---|")
    for what, after_s in found.items():
        print(f"| {what} | {after_s:.1f} | {CLAIM_S:.0f} |")
    return int(max(found.values()) > CLAIM_S)


if __name__ == "__main__":
    sys.exit(main())
