"""`make train` and `make dashboard`, by the commands they call: a run and its live page."""

import json
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPResponse
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from tests.addresses import free_address
from tests.e2e.commands import ENDLESS, end, interrupt, settings, start
from tests.waiting import WAIT_S, wait_until

pytestmark = pytest.mark.e2e


@pytest.mark.smoke
def test_the_newest_run_is_shown_while_it_trains_and_its_curve_moves(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_dir / "runs" / "first"
    run.parent.mkdir(parents=True)
    monkeypatch.chdir(run_dir)
    address = free_address()
    training = start("train", "--local", "--run-dir", str(run), *settings(ENDLESS))
    wait_until(lambda: (run / "config.toml").exists(), what="there is a run")
    dashboard = start("dashboard", "--port", address.partition(":")[2])
    try:
        with closing(_events(address)) as events:
            lengths = _lengths(events)
            first = next(each for each in lengths if each)
            assert next(each for each in lengths if each > first)
    finally:
        dashboard.terminate()
        interrupt(training)
        shown, _ = end(dashboard), end(training)
    assert (shown.code, "Traceback" in shown.error) == (0, False)


def _events(address: str) -> HTTPResponse:
    """Stream of the page's events, as soon as it is served."""
    opened: list[HTTPResponse] = []

    def answers() -> bool:
        try:
            opened.append(urlopen(f"http://{address}/events", timeout=WAIT_S))
        except URLError:
            return False
        return True

    wait_until(answers, what="the page is served")
    return opened[0]


def _lengths(events: HTTPResponse) -> Iterator[int]:
    """Number of points of the curve of returns, message by message."""
    for line in events:
        if line.startswith(b"data: "):
            curve = json.loads(line.removeprefix(b"data: "))["curve"]
            yield curve["start"] + len(curve["columns"].get("return", []))
