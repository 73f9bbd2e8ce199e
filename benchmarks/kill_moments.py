"""Claim: killed at any of 1,000 random moments, `fullrank train` leaves no process after 30 s.

In each moment a run of replay, controller and three learners begins; at a random time of its first
seconds, or of those after its first commit, `fullrank train` or its controller is killed (kill -9),
and within 30 s every process of the run must have ended. Runs overlap. Every twentieth one is
started as users do. All others are forked, `train` and its services alike, from a process that has
imported their code, since imports take most of a start. Time and victim of moment i follow from the
seed and i: `--first 60` continues after 60 moments.

    OMP_NUM_THREADS=1 python benchmarks/kill_moments.py --moments 1000
"""

import argparse
import ctypes
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import numpy as np
import psutil

from fullrank.cli import processes, train
from fullrank.cli.main import main as fullrank
from fullrank.cli.serve import GROUP
from fullrank.config import load
from fullrank.rpc.process import STOPPING
from fullrank.runs.record import METRICS

assert train  # imported for the forks

LIMIT_S = 30.0
COLD_EVERY = 20
"""Of as many moments one is that of a run that is started as users do."""
WARM_WINDOW_S, COLD_WINDOW_S, TRAINING_WINDOW_S = 4.0, 15.0, 2.0
"""Times after the start, or after the first commit, within which a process is killed."""
PR_SET_NAME, PR_SET_CHILD_SUBREAPER = 15, 36
"""Operations of prctl(2)."""
SERVICES = ("controller", "learner", "replay")
SETTINGS = (
    "learners=3",
    "code.name=uncoded",
    "environment.copies=2",
    "collect.steps=5",
    "collect.warmup=64",
    "collect.warmup_copies=8",
    "algorithm.batch_size=16",
    "algorithm.hidden=16",
    "iterations=1000000",
    "checkpoint.every=5",
    "metrics.sinks=[]",
)


class ForkedProcess:
    """Stands for ``subprocess.Popen`` in ``fullrank train``: it forks instead of executing.

    Args:
        command: ``python -P -m fullrank serve NAME ...``.
        stdout: Receives the output.
    """

    def __init__(self, command: Sequence[str], *, stdout: Any, **_: object) -> None:
        self.args = command
        self.returncode: int | None = None
        reading, writing = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            os.setsid()
            rename(name_of()[:-1] + command[5][0])
            run_forked(command[4:], stdin=reading, stdout=stdout.fileno())
        os.close(reading)
        self.stdin = os.fdopen(writing, "wb")

    def poll(self) -> int | None:
        """Return the exit code; None while it runs."""
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end."""
        ends_at = time.monotonic() + (1e9 if timeout is None else timeout)
        while (code := self.poll()) is None:
            if time.monotonic() > ends_at:
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
            time.sleep(0.01)
        return code

    def terminate(self) -> None:
        """Tell it to stop."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGTERM)


def run_forked(words: Sequence[str], *, stdin: int, stdout: int) -> NoReturn:
    """Run ``fullrank words...`` in this process, which was forked, as after an exec."""
    for number in STOPPING:
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.dup2(stdin, 0)
    os.dup2(stdout, 1)
    os.dup2(stdout, 2)
    os.closerange(3, 1024)  # pipes and locks of the parent; its objects stay, and close nothing
    code: object = 1
    try:
        fullrank(words)
    except SystemExit as ended:
        code = ended.code
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 0)


def rename(name: str) -> None:
    """Name this process, and those that it forks."""
    ctypes.CDLL(None).prctl(PR_SET_NAME, name.encode(), 0, 0, 0)


def name_of(process: int | str = "self") -> str:
    """Name of a process."""
    return Path(f"/proc/{process}/comm").read_text().strip()


@dataclass(kw_only=True)
class Moment:
    """One run, and the moment in which a process of it is killed."""

    number: int
    cold: bool
    victim: str
    training: bool
    """True if the time counts from the first commit."""
    after_s: float
    run_dir: Path
    began_at: float = field(default_factory=time.monotonic)
    train: int = 0
    killed_at: float | None = None
    committed_at: float | None = None

    @classmethod
    def draw(cls, number: int, *, seed: int, scratch: Path) -> "Moment":
        """Draw time and victim."""
        draws, cold = np.random.default_rng([seed, number]), number % COLD_EVERY == COLD_EVERY - 1
        training, window_s = draws.random() < 0.5, COLD_WINDOW_S if cold else WARM_WINDOW_S
        return cls(
            number=number,
            cold=cold,
            victim=str(draws.choice(["train", "controller"])),
            training=training,
            after_s=float(draws.uniform(0.0, TRAINING_WINDOW_S if training else window_s)),
            run_dir=scratch / f"moment-{number:05d}",
        )

    def begin(self) -> None:
        """Start ``fullrank train``."""
        words = ["train", "--run-dir", str(self.run_dir)]
        words += [word for setting in SETTINGS for word in ("--set", setting)]
        with self.log.open("wb") as output:
            if self.cold:
                self.train = subprocess.Popen(
                    [sys.executable, "-m", "fullrank", *words],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                ).pid
                return
            self.train = os.fork()
            if not self.train:
                os.setsid()
                rename(f"moment-{self.number:05d}t")
                vars(processes)["subprocess"] = SimpleNamespace(
                    Popen=ForkedProcess,
                    PIPE=subprocess.PIPE,
                    STDOUT=subprocess.STDOUT,
                    TimeoutExpired=subprocess.TimeoutExpired,
                )
                run_forked(words, stdin=os.open(os.devnull, os.O_RDONLY), stdout=output.fileno())

    def living(self) -> list[psutil.Process]:
        """Processes of the run that live, whoever forked them."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error, OSError):
                if process.status() != psutil.STATUS_ZOMBIE and self._owns(process):
                    found.append(process)
        return found

    def _owns(self, process: psutil.Process) -> bool:
        if self.cold:
            return any(str(self.run_dir) in word for word in process.cmdline())
        return name_of(process.pid).startswith(f"moment-{self.number:05d}")

    @property
    def log(self) -> Path:
        """File with what ``fullrank train`` prints."""
        return self.run_dir.with_suffix(".log")

    @property
    def due(self) -> bool:
        """True once the process is to be killed."""
        now, metrics = time.monotonic(), self.run_dir / METRICS
        if self.committed_at is None and metrics.exists() and metrics.stat().st_size:
            self.committed_at = now
        since = self.committed_at if self.training else self.began_at
        return since is not None and now - since >= self.after_s

    def kill(self) -> None:
        """Kill the victim; ``train`` where there is no controller yet."""
        named = f"moment-{self.number:05d}c"
        found = [
            process
            for process in (self.living() if self.victim == "controller" else [])
            if ("controller" in process.cmdline() if self.cold else name_of(process.pid) == named)
        ]
        if not found:
            self.victim, found = "train", [psutil.Process(self.train)]
        for process in found:
            process.kill()
        self.killed_at = time.monotonic()


@dataclass(kw_only=True)
class Findings:
    """What was seen so far."""

    moments: Counter[tuple[str, bool]] = field(default_factory=Counter)
    learned: int = 0
    longest_s: float = 0.0
    left: list[str] = field(default_factory=list)

    def take(self, moment: Moment, living: Sequence[psutil.Process]) -> None:
        """Take a moment that is over, and end what is left of it."""
        assert moment.killed_at is not None
        self.moments[moment.victim, moment.cold] += 1
        self.learned += moment.committed_at is not None
        self.longest_s = max(self.longest_s, time.monotonic() - moment.killed_at)
        for process in living:
            with suppress(psutil.Error):
                words = " ".join(process.cmdline()) if moment.cold else process.name()
                self.left.append(f"moment {moment.number}, {moment.victim} killed: {words}")
                process.kill()

    def print(self, moments: int, *, since: int, seed: int) -> None:
        """Print all of it."""
        print("| killed | started | moments |")
        print("|---|---|---|")
        for (victim, cold), count in sorted(self.moments.items()):
            print(f"| {victim} | {'as users do' if cold else 'by a fork'} | {count} |")
        for line in self.left:
            print(line, file=sys.stderr)
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu_s = (used.ru_utime + used.ru_stime) / moments
        print(
            f"\n{moments} moments from {since} on, seed {seed}: "
            f"{self.learned} after the first commit; "
            f"{len(self.left)} processes left after {LIMIT_S:.0f} s; the last process of a run "
            f"ended within {self.longest_s:.1f} s; {cpu_s:.1f} CPU seconds for each moment."
        )


def step(running: list[Moment], findings: Findings) -> None:
    """Kill what is due, and take the moments that are over.

    Raises:
        RuntimeError: A run ended by itself.
    """
    for moment in list(running):
        if moment.killed_at is None:
            if not psutil.pid_exists(moment.train):
                raise RuntimeError(f"{moment} ended by itself: {moment.log.read_text()}")
            if moment.due:
                moment.kill()
            continue
        living = moment.living()
        if not living or time.monotonic() - moment.killed_at > LIMIT_S:
            findings.take(moment, living)
            running.remove(moment)
            if not living:
                shutil.rmtree(moment.run_dir, ignore_errors=True)
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            continue


def import_services() -> None:
    """Import what a run needs, without a thread, so that processes can be forked."""
    for point in entry_points(group=GROUP):
        if point.name in SERVICES:
            point.load()
    load(overrides=list(SETTINGS)).check()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--moments", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0, help="number of the first moment")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--at-once", type=int, default=4, help="runs that overlap")
    options = parser.parse_args()
    import_services()
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # orphans are reaped here
    findings, running = Findings(), list[Moment]()
    waiting = list(range(options.first, options.first + options.moments))
    with tempfile.TemporaryDirectory() as scratch:
        try:
            while waiting or running:
                while waiting and len(running) < options.at_once:
                    number = waiting.pop(0)
                    moment = Moment.draw(number, seed=options.seed, scratch=Path(scratch))
                    moment.begin()
                    running.append(moment)
                step(running, findings)
                time.sleep(0.02)
        finally:
            for process in [process for moment in running for process in moment.living()]:
                process.kill()
    findings.print(options.moments, since=options.first, seed=options.seed)
    return int(bool(findings.left))


if __name__ == "__main__":
    sys.exit(main())
