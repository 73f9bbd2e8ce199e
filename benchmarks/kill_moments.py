"""Claim: killed at any of 200 random moments, `fullrank train` leaves no process after 30 s.

In each moment a run of replay, controller and three learners begins; at a random time of its first
seconds, or of those after its first commit, `fullrank train` or its controller is killed (kill -9),
and within 30 s every process of the run must have ended. Runs overlap. Time and victim of moment i
follow from the seed and i: `--first 60` continues after 60 moments.

    OMP_NUM_THREADS=1 python benchmarks/kill_moments.py --moments 200
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import psutil

from fullrank.runs.record import METRICS

LIMIT_S = 30.0
START_WINDOW_S, TRAINING_WINDOW_S = 15.0, 2.0
"""Times after the start, or after the first commit, within which a process is killed."""
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


@dataclass(kw_only=True)
class Moment:
    """One run, and the moment in which a process of it is killed."""

    number: int
    victim: str
    training: bool
    """True if the time counts from the first commit."""
    after_s: float
    run_dir: Path
    began_at: float = field(default_factory=time.monotonic)
    train: psutil.Popen = field(init=False)
    killed_at: float | None = None
    committed_at: float | None = None

    @classmethod
    def draw(cls, number: int, *, seed: int, scratch: Path) -> "Moment":
        """Draw time and victim."""
        draws = np.random.default_rng([seed, number])
        training = draws.random() < 0.5
        return cls(
            number=number,
            victim=str(draws.choice(["train", "controller"])),
            training=training,
            after_s=float(draws.uniform(0.0, TRAINING_WINDOW_S if training else START_WINDOW_S)),
            run_dir=scratch / f"moment-{number:05d}",
        )

    def begin(self) -> None:
        """Start ``fullrank train``."""
        words = [word for setting in SETTINGS for word in ("--set", setting)]
        with self.log.open("wb") as output:
            self.train = psutil.Popen(
                [sys.executable, "-m", "fullrank", "train", "--run-dir", str(self.run_dir), *words],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def living(self) -> list[psutil.Process]:
        """Processes of the run that live."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.status() != psutil.STATUS_ZOMBIE and any(
                    str(self.run_dir) in word for word in process.cmdline()
                ):
                    found.append(process)
        return found

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
        found = [
            process
            for process in (self.living() if self.victim == "controller" else [])
            if "controller" in process.cmdline()
        ]
        if not found:
            self.victim, found = "train", [self.train]
        for process in found:
            process.kill()
        self.killed_at = time.monotonic()


@dataclass(kw_only=True)
class Findings:
    """What was seen so far."""

    moments: Counter[str] = field(default_factory=Counter)
    learned: int = 0
    longest_s: float = 0.0
    left: list[str] = field(default_factory=list)

    def take(self, moment: Moment, living: Sequence[psutil.Process]) -> None:
        """Take a moment that is over, and end what is left of it."""
        assert moment.killed_at is not None
        self.moments[moment.victim] += 1
        self.learned += moment.committed_at is not None
        self.longest_s = max(self.longest_s, time.monotonic() - moment.killed_at)
        for process in living:
            with suppress(psutil.Error):
                words = " ".join(process.cmdline())
                self.left.append(f"moment {moment.number}, {moment.victim} killed: {words}")
                process.kill()

    def print(self, moments: int, *, since: int, seed: int) -> None:
        """Print all of it."""
        print("| killed | moments |\n|---|---|")
        for victim, count in sorted(self.moments.items()):
            print(f"| {victim} | {count} |")
        for line in self.left:
            print(line, file=sys.stderr)
        print(
            f"\n{moments} moments from {since} on, seed {seed}: "
            f"{self.learned} after the first commit; "
            f"{len(self.left)} processes left after {LIMIT_S:.0f} s; the last process of a run "
            f"ended within {self.longest_s:.1f} s."
        )


def step(running: list[Moment], findings: Findings) -> None:
    """Kill what is due, and take the moments that are over.

    Raises:
        RuntimeError: A run ended by itself.
    """
    for moment in list(running):
        if moment.killed_at is None:
            if moment.train.poll() is not None:
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


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--moments", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="number of the first moment")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--at-once", type=int, default=4, help="runs that overlap")
    options = parser.parse_args()
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
