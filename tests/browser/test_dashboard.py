"""The dashboard page in a browser, over real runs."""

import asyncio
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen
from xml.etree import ElementTree

import pytest
from playwright.async_api import Page, expect
from tests.browser.conftest import WAIT_MS, Show
from tests.e2e.commands import ENDLESS
from tests.integration.cluster import Cluster, resolved
from tests.unit.cli.verified import train
from tests.unit.runs.test_record import record, write
from tests.waiting import WAIT_S

from fullrank.config import load, to_toml
from fullrank.runs.evaluations import append
from fullrank.runs.record import METRICS
from fullrank_collector.server import attach as attach_collector

pytestmark = [pytest.mark.browser, pytest.mark.integration]

expect.set_options(timeout=WAIT_MS)


async def _until(page: Page, condition: str) -> None:
    """Return as soon as the condition holds; the page's own policy forbids waiting within it."""
    async with asyncio.timeout(WAIT_S):
        while not await page.evaluate(condition):
            await asyncio.sleep(0.05)


DRAWN = "document.querySelector('#returns canvas')?.toDataURL()"
DARK = "rgb(15, 16, 20)"
ROUND = "Number(document.querySelector('#iteration').textContent.replaceAll(',', ''))"


def _written_run(directory: Path, *, iterations: int = 3, **settings: Any) -> str:
    """A run whose controller is gone."""
    directory.mkdir()
    (directory / "config.toml").write_text(to_toml(load(options=settings).config))
    lanes = {
        "assigned_s": {0: 0.0, 1: 0.0},
        "started_s": {0: 0.1},
        "sent_s": {0: 0.2},
        "arrival_s": {0: 0.21},
        "compute_s": {0: 0.1},
        "decodable_s": 0.21,
        "received": (0,),
    }
    write(
        directory / METRICS,
        *(
            record(
                each,
                return_mean=float(each),
                iteration_s=30.0,
                statistics={
                    "env_steps": 100.0 * each,
                    "loss/a": 1.0,
                    "loss/b": 2.0,
                    "entropy": 0.5,
                },
                **lanes,
            )
            for each in range(iterations)
        ),
    )
    return str(directory)


async def test_a_run_moves_on_the_page_which_asks_nobody_else(
    page: Page, show: Show, tmp_path: Path
) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    async with Cluster(tmp_path / "run", resolved(ENDLESS)) as cluster:
        cluster.replay()
        cluster.controller()
        cluster.learners(4)
        async with show(await _directory(cluster)) as address:
            await page.goto(f"{address}/#rounds")
            await _until(page, f"{ROUND} > 0")
            seen = await page.evaluate(ROUND)
            await _until(page, f"{ROUND} > {seen}")
            await expect(page.locator(".lanes li")).to_have_count(4)
            await expect(page.locator("#learners tbody tr")).to_have_count(4)
            await expect(page.locator("#code .lead")).to_contain_text("cyclic at 4 learners: any 1")
            await expect(page.locator("#budget .lead")).to_contain_text("of an iteration")
            await expect(page.locator("#proof .lead")).to_contain_text("Exact")
            await expect(page.locator("#problem")).to_be_empty()
            await page.get_by_role("tab", name="Learning").click()
            drawn = await page.evaluate(DRAWN)
            await _until(page, f"{DRAWN} !== '{drawn}'")
            assert all(url.startswith((address, "data:")) for url in asked)


async def test_the_code_counts_learners_and_not_their_rows(
    page: Page, show: Show, tmp_path: Path
) -> None:
    few = resolved(ENDLESS, "learners=2", "code.tolerance=0")
    async with Cluster(tmp_path / "run", few) as cluster:
        cluster.replay()
        cluster.controller()
        cluster.learners(2)
        async with show(await _directory(cluster)) as address:
            await page.goto(f"{address}/#rounds")
            await expect(page.locator("#code .lead")).to_contain_text("cyclic at 2 learners: any 0")
            label = "Assignment matrix of 3 rows and 3 units; loads from 1 to 1"
            await expect(page.locator("#code canvas")).to_have_attribute("aria-label", label)


COLLECTED = (
    "collectors.count=2",
    "collect.mode=keyed",
    "collect.block=1",
    "collect.lag=1",
    "environment.copies=4",
)


async def test_collectors_are_shown_with_their_blocks_and_who_waits_for_whom(
    page: Page, show: Show, tmp_path: Path
) -> None:
    async with Cluster(tmp_path / "run", resolved(ENDLESS, *COLLECTED)) as cluster:
        cluster.replay()
        cluster.controller()
        cluster.learners(4)
        for _ in range(2):
            stop = asyncio.Event()
            cluster.start(stop, attach_collector(cluster.launch, stop))
        async with show(await _directory(cluster)) as address:
            await page.goto(f"{address}/#rounds")
            await _until(page, f"{ROUND} > 2")
            await expect(page.locator("#collectors tbody tr")).to_have_count(2)
            await expect(page.locator("#collectors .lead")).to_contain_text("collectors")
            await expect(page.locator("#collectors .note")).to_contain_text("0 lost")


async def _directory(cluster: Cluster) -> str:
    await cluster.address()
    return str(cluster.run_dir)


async def test_the_page_outlasts_a_controller_that_starts_again(
    page: Page, show: Show, tmp_path: Path
) -> None:
    async with Cluster(tmp_path / "run", resolved(ENDLESS)) as cluster:
        cluster.replay()
        controller = cluster.controller()
        cluster.learners(4)
        async with show(await _directory(cluster)) as address:
            await page.goto(f"{address}/#rounds")
            await _until(page, f"{ROUND} > 0")
            await controller.end()
            await expect(page.locator("#problem")).to_contain_text("trying again in")
            seen = await page.evaluate(ROUND)
            cluster.controller()
            await _until(page, f"{ROUND} > {seen}")
            await expect(page.locator("#problem")).to_be_empty()
            await expect(page.locator("#log")).to_contain_text("started again: term 2")


@pytest.mark.parametrize(
    ("run", "settings", "words"),
    [
        ("127.0.0.1:1", {}, "Connection refused"),
        ("nowhere", {}, "is this a run?"),
        ("127.0.0.1:1", {"tls.certificates": "nowhere"}, "see `fullrank certs`"),
    ],
)
async def test_what_cannot_be_seen_is_said_in_words_and_tried_again(
    page: Page, show: Show, run: str, settings: dict[str, object], words: str
) -> None:
    async with show(run, **settings) as address:
        await page.goto(address)
        await expect(page.locator("#problem")).to_contain_text(words)
        await expect(page.locator("#problem")).to_contain_text("trying again in")
        await expect(page.locator("nav button")).to_have_text(run)


async def test_runs_are_compared_and_earlier_rounds_looked_at_by_keyboard(
    page: Page, show: Show, tmp_path: Path
) -> None:
    runs = [_written_run(tmp_path / name, iterations=5) for name in ("one", "two")]
    async with show(*runs) as address:
        await page.goto(address)
        await expect(page.locator("nav button")).to_have_text(["one", "two"])
        await expect(page.locator("#returns .u-legend .u-series")).to_have_count(3)
        await page.get_by_role("tab", name="Learning").focus()
        await page.keyboard.press("ArrowRight")
        await expect(page.locator("#rounds")).to_be_visible()
        await page.keyboard.press("2")
        await expect(page.locator("nav button[aria-checked=true]")).to_have_text("two")
        await expect(page.locator("#iteration")).to_have_text("4")
        await page.locator("#round h2").click()
        await page.keyboard.press("ArrowLeft")
        await expect(page.locator("#iteration")).to_have_text("3")
        await expect(page.locator("#live")).to_have_attribute("aria-pressed", "false")
        await page.keyboard.press("l")
        await expect(page.locator("#iteration")).to_have_text("4")
        await page.keyboard.press("t")
        await expect(page.locator("html")).to_have_attribute("data-theme", "dark")
        await expect(page.locator("body")).to_have_css("background-color", DARK)


async def test_greedy_returns_stand_in_the_chart_as_they_come_and_superseded_ones_say_so(
    page: Page, show: Show, tmp_path: Path
) -> None:
    run = _written_run(tmp_path / "run", iterations=5)
    labels = page.locator("#returns .u-legend .u-series th")
    async with show(run) as address:
        await page.goto(address)
        await expect(labels).to_have_text(["iteration", "run"])
        _evaluate(tmp_path / "run", 1)
        await expect(labels).to_have_text(["iteration", "run", "run greedily"])
        await expect(page.locator("#summary")).to_contain_text("random play")
        drawn = await page.evaluate(DRAWN)
        _evaluate(tmp_path / "run", 3)
        await _until(page, f"{DRAWN} !== '{drawn}'")
    write(tmp_path / "run" / METRICS, record(2, term=2))
    async with show(run) as address:
        await page.goto(address)
        greedily = ["run greedily", "run greedily, superseded"]
        await expect(labels).to_have_text(["iteration", "run", *greedily])


def _evaluate(run: Path, iteration: int) -> None:
    interval = {"mean": -1.0, "low": -2.0, "high": 0.0}
    of_all = {**interval, "sides": {}}
    facts = {"iteration": iteration, "term": 1, "trained": of_all, "random": of_all}
    append(run, facts)


async def test_a_telephone_shows_everything_below_one_another(
    page: Page, show: Show, tmp_path: Path
) -> None:
    await page.set_viewport_size({"width": 360, "height": 740})
    async with show(_written_run(tmp_path / "run")) as address:
        await page.goto(f"{address}/#rounds")
        await expect(page.locator("#round .lanes li")).to_have_count(2)
        lefts = await page.evaluate(
            "[...document.querySelectorAll('#rounds section')].filter((each) => each.offsetParent)"
            ".map((each) => each.offsetLeft)"
        )
        assert len(set(lefts)) == 1


CUT = """[...document.querySelectorAll('body *')].filter((each) => each.clientWidth
    && !each.matches('input, select') && each.scrollWidth > each.clientWidth + 1
    && ['hidden', 'clip'].includes(getComputedStyle(each).overflowX)).map((each) => each.outerHTML)
"""


@pytest.mark.parametrize("width", [360, 1280, 1920])
async def test_nothing_is_cut_off(page: Page, show: Show, tmp_path: Path, width: int) -> None:
    await page.set_viewport_size({"width": width, "height": 900})
    _written_run(tmp_path / "run", seed=1)
    _evaluate(tmp_path / "run", 2)
    other = _written_run(tmp_path / f"a_run_with_a_{'long_' * 12}name")
    async with show(str(tmp_path / "run"), other) as address:
        for view, drawn in VIEWS.items():
            await page.goto(f"{address}/#{view}")
            await expect(page.locator(drawn)).to_be_visible()
            assert await page.evaluate("document.documentElement.scrollWidth") == width
            assert await page.evaluate(CUT) == []


VIEWS = {
    "learning": "#statistics article:last-child canvas",
    "rounds": "#times canvas",
    "compare": "#differences tbody tr",
}


async def test_the_axis_and_the_pinned_statistics_are_chosen_and_remembered(
    page: Page, show: Show, tmp_path: Path
) -> None:
    pinned = page.locator("#statistics h3")
    place = page.locator("#returns .u-legend .u-series").first
    async with show(_written_run(tmp_path / "run", iterations=5)) as address:
        await page.goto(address)
        await expect(pinned).to_have_text(["loss", "entropy"])
        await page.get_by_role("button", name="Unpin loss").click()
        await expect(pinned).to_have_text(["entropy"])
        await expect(place).to_contain_text("iteration")
        await page.get_by_role("radio", name="minutes").click()
        await expect(place).to_contain_text("minutes of training")
        await page.locator("#measure").select_option("loss")
        await page.reload()
        await expect(pinned).to_have_text(["entropy"])
        await expect(place).to_contain_text("minutes of training")
        await expect(page.locator("#returns .u-legend th")).to_contain_text(["run a", "run b"])
        await page.get_by_role("button", name="loss", exact=True).click()
        await expect(pinned).to_have_text(["entropy", "loss"])


async def test_a_curve_is_saved_as_a_picture_and_as_numbers(
    page: Page, show: Show, tmp_path: Path
) -> None:
    _written_run(tmp_path / "run", iterations=3)
    _evaluate(tmp_path / "run", 1)
    async with show(str(tmp_path / "run")) as address:
        await page.goto(address)
        await expect(page.locator("#returns canvas")).to_be_visible()
        picture = ElementTree.fromstring(await _saved(page, "SVG"))
        table = await _saved(page, "CSV")
    texts = [each.text for each in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert {"return", "iteration", "run", "run greedily", "random play -1"} <= set(texts)
    assert len([*picture.iter("{http://www.w3.org/2000/svg}circle")]) == 1
    names = "greedy_return/mean,greedy_return/mean_low,greedy_return/mean_high"
    assert table.splitlines() == [
        f"run,iteration,env_steps,minutes,return/mean,{names}",
        "run,0,0,0.5,0,,,",
        "run,1,100,1,1,-1,-2,0",
        "run,2,200,1.5,2,,,",
    ]


async def test_the_whole_curve_stays_in_sight_as_it_grows(
    page: Page, show: Show, tmp_path: Path
) -> None:
    async with show(_written_run(tmp_path / "run", iterations=3)) as address:
        await page.goto(address)
        await expect(page.locator("#summary")).to_contain_text("iterations3")
        write(tmp_path / "run" / METRICS, *(record(n, return_mean=-90.0) for n in range(3, 40)))
        await expect(page.locator("#summary")).to_contain_text("iterations40")
        picture = ElementTree.fromstring(await _saved(page, "SVG"))
    texts = [str(each.text) for each in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert any(text.startswith("-") and float(text) <= -80.0 for text in texts)


async def _saved(page: Page, name: str) -> str:
    async with page.expect_download() as download:
        await page.get_by_role("button", name=name).click()
    path = await (await download.value).path()
    return await asyncio.to_thread(path.read_text)


async def test_runs_stand_side_by_side_and_their_settings_differ_where_they_do(
    page: Page, show: Show, tmp_path: Path
) -> None:
    seeds = [_written_run(tmp_path / f"s{seed}", seed=seed) for seed in (1, 2)]
    other: dict[str, Any] = {"environment.name": "predator_prey"}
    chase = _written_run(tmp_path / "chase", seed=1, **other)
    async with show(*seeds, chase) as address:
        await page.goto(f"{address}/#compare")
        await expect(page.locator("#table tbody tr")).to_have_count(3)
        await expect(page.locator("#differences tbody tr")).to_have_text(["seed12"])
        await expect(page.get_by_role("checkbox", name="Show chase")).to_be_disabled()
        labels = page.locator("#returns .u-legend th")
        await expect(labels).to_have_text(["iteration", "s1, 2 seeds"])
        await page.get_by_role("checkbox", name="seeds as one band").uncheck()
        await expect(labels).to_have_text(["iteration", "s1", "s2"])
        await page.get_by_role("checkbox", name="Show s2").uncheck()
        await expect(labels).to_have_text(["iteration", "s1"])
        await expect(page.locator("#differences h2")).to_have_text("Settings")
        await page.get_by_role("button", name="chase").last.click()
        await expect(page.locator("#learning")).to_be_visible()
        await expect(page.locator("nav button[aria-checked=true]")).to_have_text("chase")


EPISODE = "document.querySelector('#episode canvas').toDataURL()"


async def test_an_episode_plays_beside_the_curve(
    page: Page, show: Show, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fullrank_dashboard.following.NICE", 0)
    run = await asyncio.to_thread(train, tmp_path / "run", "checkpoint.every=2")
    async with show(str(run)) as address:
        await page.goto(address)
        await expect(page.locator("#episode .note")).to_contain_text("after 8 iterations")
        drawn = await page.evaluate(EPISODE)
        await _until(page, f"{EPISODE} !== '{drawn}'")
        await page.get_by_role("button", name="Pause").click()
        await page.locator("#step").fill("25")
        await expect(page.locator("#episode output")).to_contain_text("step 25 · return -")


async def test_a_page_under_somebody_else_s_name_gets_nothing(show: Show, tmp_path: Path) -> None:
    async with show(_written_run(tmp_path / "run")) as address:
        request = Request(address, headers={"Host": "elsewhere.example"})
        with pytest.raises(HTTPError, match="400"):
            await asyncio.to_thread(urlopen, request)
