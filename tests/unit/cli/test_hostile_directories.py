"""Verbs in a directory of which one file is hostile: one line, a documented code, no waiting."""

import os
import re
import shutil
from collections.abc import Callable, Iterable
from itertools import cycle, product
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from tests.unit.cli.verified import MADDPG, train

from fullrank.cli import this_host
from fullrank.cli.this_host import LOGS
from fullrank.runs.evaluations import append

Spoil: TypeAlias = Callable[[Path], object]

VERBS = (
    "run status RUN",
    "run logs RUN",
    "plot RUN --output OUT.png",
    "checkpoint ls RUN",
    "checkpoint verify RUN",
    "checkpoint diff RUN RUN",
    "checkpoint export RUN OUT.zip",
    "codes plan RUN",
    "eval RUN --episodes 1",
    "compare RUN RUN --episodes 1",
    "export RUN --output OUT",
    "verify RUN",
    "render RUN --output OUT.gif",
    "run resume RUN --attach --local",
)
"""Verbs that read a run's directory, the last one of which writes to it, too."""

FILES = (
    "config.toml",
    "run.json",
    "metrics.jsonl",
    "evaluations.jsonl",
    "numerics.json",
    "history/controller.jsonl",
    "checkpoints/000007/manifest.json",
    "checkpoints/000007/state.safetensors",
    "journal/*.journal",
    "replay/*/transitions.table",
    "replay/*/fence.json",
)


def replaced(content: bytes) -> Spoil:
    return lambda path: path.write_bytes(content)


def changed(old: bytes, new: bytes) -> Spoil:
    """Change every match of a pattern, so that the rest of the file is as its writer left it."""
    return lambda path: path.write_bytes(re.sub(old, new, path.read_bytes()))


def linked(target: str) -> Spoil:
    def link(path: Path) -> None:
        path.unlink()
        path.symlink_to(target)

    return link


def made(make: Callable[[Path], object]) -> Spoil:
    def remake(path: Path) -> None:
        path.unlink()
        make(path)

    return remake


KINDS: dict[str, Spoil] = {
    "fifo": made(os.mkfifo),
    "directory": made(os.mkdir),
    "device": linked("/dev/zero"),
    "loop": made(lambda path: path.symlink_to(path.name)),
    "dangling": linked("nowhere"),
    "sparse": lambda path: os.truncate(path, 2**42),
}
CONTENTS: dict[str, Spoil] = {
    "empty": replaced(b""),
    "zeros": replaced(bytes(5000)),
    "nested": replaced(b'{"facts": ' + b"[" * 100_000 + b"\n"),
    "nested toml": replaced(b"x = " + b"[" * 100_000),
    "digits": changed(rb"\b[0-9]+\b", b"9" * 4_000),
    "more digits": changed(rb"\b[0-9]+\b", b"9" * 5_000),
    "texts": changed(rb"\b[0-9]+\b", b'"x"'),
    "not finite": changed(rb"\b[0-9]+\b", b"NaN"),
    "lists": replaced(b"[[]]\n"),
    "no text": replaced(b"\xff\xfe\n"),
}


def cases(of: Iterable[str]) -> list[Any]:
    """Pairs of a file and what becomes of it; all but one kind for each file are slow."""
    quick = set(zip(FILES, cycle(of), strict=False))
    return [
        pytest.param(*pair, marks=[] if pair in quick else pytest.mark.slow)
        for pair in product(FILES, of)
    ]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run with every kind of file."""
    brief = "environment.horizon=3"  # few pictures of an episode
    run = train(tmp_path_factory.mktemp("runs") / "run", *MADDPG, brief)
    interval = {"mean": 1.0, "low": 0.0, "high": 2.0}
    append(run, {"iteration": 7, "term": 1, "trained": {**interval, "sides": {}}})
    (run / LOGS).mkdir(exist_ok=True)
    (run / LOGS / "controller.log").write_text("it starts\n")
    return run


def check(fullrank: Any, verb: str, run: Path) -> None:
    """Run a verb, which succeeds or ends with one line and a documented code."""
    words = verb.replace("RUN", str(run)).replace("OUT", str(run.parent / "out")).split()
    for left in run.parent.glob("out*"):
        shutil.rmtree(left, ignore_errors=True)
        left.unlink(missing_ok=True)
    outcome = fullrank(*words)
    assert outcome.code in range(16), verb
    if outcome.code:
        assert re.fullmatch(r"fullrank: [^\n]{1,2000}\n", outcome.error), (verb, outcome.error)
    assert all(len(line) <= 2010 for line in outcome.output.split("\n")), verb


@pytest.mark.parametrize("verb", [*VERBS, "run status RUN --follow"])
def test_the_run_as_it_is_is_read(verb: str, original: Path, tmp_path: Path, fullrank: Any) -> None:
    run = Path(shutil.copytree(original, tmp_path / "run"))
    check(fullrank, verb, run)


@pytest.mark.integration
@pytest.mark.parametrize(("name", "kind"), cases(KINDS))
def test_a_file_of_another_kind_ends_every_verb_with_one_line(
    name: str, kind: str, original: Path, tmp_path: Path, fullrank: Any
) -> None:
    run = Path(shutil.copytree(original, tmp_path / "run"))
    KINDS[kind](next(run.glob(name)))
    for verb in VERBS:
        check(fullrank, verb, run)


@pytest.mark.integration
@pytest.mark.parametrize(("name", "content"), cases(CONTENTS))
def test_a_file_of_hostile_content_ends_every_verb_with_one_line(
    name: str, content: str, original: Path, tmp_path: Path, fullrank: Any
) -> None:
    run = Path(shutil.copytree(original, tmp_path / "run"))
    CONTENTS[content](next(run.glob(name)))
    for verb in VERBS:
        check(fullrank, verb, run)


def test_no_byte_of_a_log_is_obeyed_by_a_terminal(
    tmp_path: Path, fullrank: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sequence that is written in two parts is none in the output of a follower, either."""
    log = tmp_path / LOGS / "controller.log"
    log.parent.mkdir()
    (tmp_path / "config.toml").touch()
    log.write_bytes(b"it \x1b]0;evil\x07 starts\xff\nit ends\xc2")
    plain = "it \\x1b]0;evil\\x07 starts\ufffd\n"
    assert fullrank("run", "logs", str(tmp_path)) == (0, f"{plain}it ends\ufffd\n", "")

    trainers = iter([1, None])

    def trainer_of(run: Path) -> int | None:
        with log.open("ab") as file:
            file.write(b"\x9b2J\nit goes on")
        return next(trainers)

    monkeypatch.setattr(this_host, "trainer_of", trainer_of)
    monkeypatch.setattr(this_host, "POLL_S", 0)
    followed = fullrank("run", "logs", str(tmp_path), "--follow")
    ends = ["it ends\\x9b2J", "it goes on\ufffd2J", "it goes on", ""]
    assert followed == (0, plain + "\n".join(ends), "")


def test_a_log_that_is_no_regular_file_is_one_line(tmp_path: Path, fullrank: Any) -> None:
    (tmp_path / LOGS).mkdir()
    (tmp_path / "config.toml").touch()
    os.mkfifo(tmp_path / LOGS / "controller.log")
    check(fullrank, "run logs RUN", tmp_path)
