"""Runs for ``fullrank verify``: trained in this process, damaged and rewritten."""

import asyncio
import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fullrank.common.types import FloatArray
from fullrank.config import load
from fullrank.host.process import Launch
from fullrank.replay.file_format import FileLayout, read_header
from fullrank.replay.samplers import Sample
from fullrank.replay.store import table_file
from fullrank.runs import journal
from fullrank.runs.identity import run_of
from fullrank.runs.journal import Journal
from fullrank.runs.journal_format import Entry
from fullrank.runs.snapshot import REPLAY
from fullrank_controller.local.server import serve

ITERATIONS = 8
TINY = (
    f"iterations={ITERATIONS}",
    "environment.copies=2",
    "collect.steps=5",
    "collect.warmup=64",
    "collect.warmup_copies=8",
    "algorithm.hidden=16",
    "replay.capacity=4096",
    "checkpoint.every=3",
    "checkpoint.keep=9",
    "metrics.sinks=[]",
)
MADDPG = ("algorithm.batch_size=16",)
QMIX = (
    "environment.name=two_step_game",
    "environment.agents=0",
    "algorithm.name=qmix",
    "algorithm.micro_batches=3",
    "algorithm.batch_size=7",
    "algorithm.target_every=3",
)
DARL1N = ("environment.name=ising", "algorithm.name=darl1n", "algorithm.batch_size=4")
TEAMS = {
    "maddpg": MADDPG,
    "masac": (*MADDPG, "algorithm.name=masac"),
    "micro-batches": (*MADDPG, "algorithm.micro_batches=3"),
    "prioritised": (*MADDPG, "sampling.method=prioritised", "collect.lag=1"),
    "qmix": QMIX,
    "prioritised episodes": (
        *QMIX,
        "sampling.method=prioritised",
        "algorithm.td_errors=true",
        "collect.lag=1",
    ),
    "darl1n": DARL1N,
}


def train(run: Path, *settings: str) -> Path:
    """Run, or resume, in this process to the end."""
    resolved = load(None, environ={}, overrides=[*TINY, *settings]).check()
    launch = Launch(resolved=resolved, run_dir=run, until_finished=True)
    assert asyncio.run(serve(launch, run, asyncio.Event()))
    return run


def entries_of(run: Path) -> list[Entry]:
    return journal.read(run / "journal", first=0)


def sample_of(entry: Entry) -> Sample:
    seed, tail, head, size = entry.facts["sample"]
    return Sample(
        table="transitions",
        seed=seed,
        iteration=entry.iteration,
        tail=tail,
        head=head,
        size=size,
    )


def flip(path: Path, place: int) -> None:
    """Flip one bit of a byte; a negative place counts from the end."""
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


def flip_row(run: Path, position: int, column: int = 0) -> None:
    """Flip the lowest bit of an entry of a row."""
    path = table_file(run / REPLAY, run_of(run))
    row_size, _, slots = read_header(path, path.read_bytes()[:4096])
    layout = FileLayout(row_size=row_size, slots=slots)
    with path.open("r+b") as file:
        place = layout.rows_at + layout.row_bytes * (position % slots) + 4 * column
        byte = os.pread(file.fileno(), 1, place)
        os.pwrite(file.fileno(), bytes([byte[0] ^ 1]), place)


def rewrite(run: Path, entries: Sequence[Entry]) -> None:
    """Store other entries, with checksums of their own."""
    shutil.rmtree(run / "journal")
    own = Journal(run / "journal", term=1, first=entries[0].iteration, confirm=lambda: None)
    for entry in entries:
        assert entry.updates is not None
        own.append(entry.iteration, facts=entry.facts, updates=entry.updates)
    own.close()


def altered(entry: Entry, *, facts: Any = None, updates: FloatArray | None = None) -> Entry:
    changed = {**json.loads(json.dumps(entry.facts)), **(facts or {})}
    return replace(entry, facts=changed, updates=entry.updates if updates is None else updates)
