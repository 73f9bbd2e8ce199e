"""Run ``fullrank`` as users do: processes, exit codes, and remaining files."""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import dropwhile, islice
from pathlib import Path
from typing import IO

import psutil
from tests.waiting import WAIT_S

from fullrank.config import RunConfig, from_toml, to_toml
from fullrank.local import LocalRun
from fullrank.runs.record import IterationRecord, read_records

TINY = (
    "environment.copies=2",
    "collect.steps=25",
    "collect.warmup=128",
    "collect.warmup_copies=8",
    "algorithm.batch_size=32",
    "algorithm.hidden=16",
    "replay.capacity=20000",
    "metrics.sinks=[]",
)
ENDLESS = "iterations=1000000"
"""A run that ends only because it is told to, however late a busy machine tells it."""


PROGRESS = re.compile(r"^(playing|drawing) .*: [\d,]+ of [\d,]+\n", re.MULTILINE)
"""Lines on standard error that a command prints where its work takes seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Exit code and output of a command."""

    code: int
    output: str
    error: str


def settings(*overrides: str) -> list[str]:
    """Options for a tiny run."""
    return [word for setting in (*TINY, *overrides) for word in ("--set", setting)]


def start(
    *words: str,
    env: Mapping[str, str] | None = None,
    output: IO[str] | int = subprocess.PIPE,
    within: Sequence[str] = (),
) -> "subprocess.Popen[str]":
    """Start ``fullrank words...``, run by the command ``within`` if one is given.

    The process heeds Ctrl-C as at a terminal; background processes of a shell and their children
    ignore it. No Python runs in the fork, because gRPC, which runs in this process, may hold its
    locks there.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    return subprocess.Popen(
        [*within, sys.executable, "-m", "fullrank", *words],
        stdout=output,
        stderr=output,
        text=True,
        env={**os.environ, **(env or {})},
    )


def end(process: "subprocess.Popen[str]") -> Outcome:
    """Wait for the process and return its outcome, without the progress of long work."""
    try:
        output, error = process.communicate(timeout=WAIT_S)
    finally:
        process.kill()
    error = PROGRESS.sub("", error or "")
    return Outcome(code=process.returncode, output=output, error=error)


def fullrank(
    *words: str, env: Mapping[str, str] | None = None, within: Sequence[str] = ()
) -> Outcome:
    """Run a command to its end."""
    return end(start(*words, env=env, within=within))


def works(*words: str) -> bool:
    """True if the command exists and succeeds."""
    there = shutil.which(words[0]) is not None
    return there and subprocess.run(words, capture_output=True, check=False).returncode == 0


def processes_of(run_dir: Path) -> list[psutil.Process]:
    """Processes with the run directory on their command line."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if any(str(run_dir) in word for word in process.cmdline()):
                found.append(process)
    return found


def learners_of(run_dir: Path) -> list[psutil.Process]:
    """Processes of the single learners: the children of the process that imported torch."""
    serving = [each for each in processes_of(run_dir) if "learner" in each.cmdline()]
    parents = {process.pid for process in serving}
    return [process for process in serving if process.ppid() in parents]


def kill_all(run_dir: Path) -> None:
    """Clean up after a failed test."""
    for process in processes_of(run_dir):
        with suppress(psutil.Error):
            process.kill()


def committed(run_dir: Path) -> int:
    """Number of iterations in metrics.jsonl."""
    metrics = run_dir / "metrics.jsonl"
    return metrics.read_text().count("\n") if metrics.exists() else 0


def interrupt(process: "subprocess.Popen[str]") -> None:
    """Interrupt a process as Ctrl-C does."""
    process.send_signal(signal.SIGINT)


def records(run_dir: Path) -> list[IterationRecord]:
    """Records in metrics.jsonl."""
    return read_records(run_dir / "metrics.jsonl")


def digests(run_dir: Path) -> list[str]:
    """Digests of the committed updates."""
    return [record.update_digest for record in records(run_dir)]


def config_of(run_dir: Path) -> RunConfig:
    """Configuration that the run was started with."""
    return from_toml((run_dir / "config.toml").read_text())


def shorten(run_dir: Path, *, iterations: int) -> None:
    """Let a stopped run end after so many iterations once it is resumed."""
    config = replace(config_of(run_dir), iterations=iterations)
    (run_dir / "config.toml").write_text(to_toml(config))


def final_state(run_dir: Path) -> bytes:
    """Parameters, targets and optimiser of the newest checkpoint, byte for byte."""
    newest = max(path for path in (run_dir / "checkpoints").iterdir() if path.name.isdigit())
    return (newest / "state.safetensors").read_bytes()


def centralised(run_dir: Path, *, iterations: int | None = None) -> list[str]:
    """Update digests of the fault-free run, or of its first iterations."""
    run = LocalRun(config_of(run_dir), coded=False)
    return [iteration.update_digest for iteration in islice(run, iterations)]


def tracebacks(run_dir: Path) -> list[str]:
    """Lines of the services' logs from the first sign of an error on; empty for a clean run."""
    signs = ("Traceback", "Exception", " ERROR ", "never retrieved")
    return [
        f"{log.name}: {line}"
        for log in sorted((run_dir / "logs").iterdir())
        for line in dropwhile(
            lambda line: not any(sign in line for sign in signs), log.read_text().splitlines()
        )
    ]
