"""The stage of a run: played once for each set of policies, one process at a time, and never by
the order of another page."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.types import Message
from tests.waiting import eventually

from fullrank.common.errors import FullrankError
from fullrank.common.types import JSON
from fullrank.config import RunConfig, to_toml
from fullrank.config.tree import EnvironmentSettings, TlsSettings
from fullrank.runs.checkpoint import save
from fullrank.runs.identity import CHECKPOINTS
from fullrank_dashboard import following
from fullrank_dashboard.following import Following, Stage, fullrank
from fullrank_dashboard.server import page_of
from fullrank_dashboard.view import RunView


def _run(directory: Path, config: RunConfig | None = None) -> str:
    directory.mkdir(exist_ok=True)
    (directory / "config.toml").write_text(to_toml(config or RunConfig()))
    return str(directory)


def _checkpoint(directory: Path, iteration: int) -> None:
    save(directory / CHECKPOINTS, iteration=iteration, arrays={}, facts={}, keep=3)


class Playing:
    """Commands that were given, which one process at a time carries out."""

    def __init__(self) -> None:
        self.given: list[str] = []
        self.at_once = 0

    async def __call__(self, verb: str, *options: str) -> None:
        self.at_once += 1
        assert self.at_once == 1
        await asyncio.to_thread(self._play, verb, *options)
        self.at_once -= 1

    def _play(self, verb: str, *options: str) -> None:
        self.given.append(verb)
        Path(options[options.index("--output") + 1]).write_text('{"moments": []}')


@pytest.fixture
def playing(monkeypatch: pytest.MonkeyPatch) -> Playing:
    """Commands that play nothing, and no pause between them."""
    commands = Playing()
    monkeypatch.setattr(following, "fullrank", commands)
    monkeypatch.setattr(following, "PAUSE_S", 0.0)
    return commands


@asynccontextmanager
async def _kept(*stages: Stage) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(each.keep()) for each in stages]
    yield
    for task in tasks:
        task.cancel()


def _staged(view: RunView) -> JSON:
    facts: JSON = view.facts()["stage"]
    return facts


async def _asked(one: Stage, view: RunView) -> JSON:
    """Ask, and wait for the answer."""
    revision = view.revision
    one.ask()
    await eventually(
        lambda: view.revision > revision and not _staged(view)["busy"], what="it is answered"
    )
    return _staged(view)


async def test_policies_are_played_once(tmp_path: Path, playing: Playing) -> None:
    view = RunView("run")
    one = Stage(_run(tmp_path), view, asyncio.Lock())
    async with _kept(one):
        assert "saved after 100 iterations" in (await _asked(one, view))["problem"]
        _checkpoint(tmp_path, 99)
        assert (await _asked(one, view))["played"] == 99
        assert one.episode == b'{"moments": []}'
        await _asked(one, view)
        assert playing.given == ["render"]
        _checkpoint(tmp_path, 199)
        assert (await _asked(one, view))["played"] == 199
        assert playing.given == ["render", "render"]


async def test_runs_play_one_after_the_other(tmp_path: Path, playing: Playing) -> None:
    turn, views = asyncio.Lock(), [RunView("one"), RunView("two")]
    stages = [Stage(_run(tmp_path / view.name), view, turn) for view in views]
    for view in views:
        _checkpoint(tmp_path / view.name, 99)
    async with _kept(*stages):
        for each in stages:
            each.ask()
        await eventually(
            lambda: all(_staged(view)["played"] == 99 for view in views), what="both have played"
        )
    assert playing.given == ["render", "render"]


@pytest.mark.parametrize(
    ("run", "words"),
    [("127.0.0.1:1", "where the run's directory is"), ("foreign", "of other packages")],
)
async def test_nothing_is_played_of_runs_and_environments_of_elsewhere(
    tmp_path: Path, playing: Playing, run: str, words: str
) -> None:
    foreign = EnvironmentSettings(name="somewhere:make")
    directory = _run(tmp_path / "foreign", replace(RunConfig(), environment=foreign))
    view = RunView(run)
    one = Stage(directory if run == "foreign" else run, view, asyncio.Lock())
    async with _kept(one):
        assert words in (await _asked(one, view))["problem"]
    assert playing.given == []


@pytest.mark.integration
async def test_a_command_that_fails_says_why_in_its_own_words() -> None:
    with pytest.raises(FullrankError, match=r"there is no run 'nowhere'"):
        await fullrank("render", "--", "nowhere")


async def test_a_command_that_never_ends_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[asyncio.subprocess.Process] = []
    begin = asyncio.create_subprocess_exec

    async def endless(*words: str, **pipes: int) -> asyncio.subprocess.Process:
        started.append(await begin(sys.executable, "-c", "input()", stdin=-1, stdout=-1, stderr=-1))
        return started[0]

    monkeypatch.setattr(asyncio, "create_subprocess_exec", endless)
    monkeypatch.setattr(following, "LONGEST_S", 0.0)
    with pytest.raises(FullrankError, match="took more than"):
        await fullrank("render")
    assert started[0].returncode is not None


async def _answer(page: Starlette, method: str, path: str, **headers: str) -> tuple[int, JSON]:
    """Status and body of a page's answer."""
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b""}

    async def send(message: Message) -> None:
        sent.append(message)

    named = {"host": "here", **headers}
    scope = {"type": "http", "method": method, "path": path, "query_string": b""}
    scope["headers"] = [(name.encode(), value.encode()) for name, value in named.items()]
    await page(scope, receive, send)
    return sent[0]["status"], json.loads(sent[1]["body"])


async def test_a_page_of_another_origin_makes_nobody_play(tmp_path: Path) -> None:
    following, asked = Following(_run(tmp_path), TlsSettings()), list[str]()

    class Asked(Stage):
        def ask(self) -> None:
            asked.append("asked")

    following.stage = Asked(str(tmp_path), following.view, asyncio.Lock())
    page, path = page_of([following], hosts=["here"], stop=asyncio.Event()), "/runs/0/episode"
    foreign = await _answer(page, "POST", path, origin="http://elsewhere")
    assert (foreign[0], asked) == (403, [])
    assert (await _answer(page, "POST", path, origin="http://here"))[0] == 202
    assert asked == ["asked"]
    missing = 404, {"problem": "no episode was played yet"}
    assert await _answer(page, "GET", path) == missing
    assert await _answer(page, "GET", "/runs/7/episode") == (404, {"problem": "there is no run 7"})
