"""Claim: 100 joins and leaves within 500 iterations lose no iteration and change no bit.

Services in one process over loopback, `cyclic` with tolerance 1, six learners of which half come
and go: every fifth iteration one or two die without notice, or one joins. The reference is the same
configuration in one process with a fixed set of learners.

    python benchmarks/churn.py --iterations 500 --changes 100
"""

import argparse
import asyncio
import sys
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np

from fullrank.common.errors import ServiceLost
from fullrank.config import Resolved, load
from fullrank.local import LocalRun
from fullrank.rpc.addresses import resolve
from fullrank.rpc.controller_client import ControllerClient
from fullrank.rpc.process import Launch
from fullrank.runs.record import IterationRecord, read_records
from fullrank_controller.server import serve as serve_controller
from fullrank_learner.server import attach
from fullrank_replay.server import serve as serve_replay

LEARNERS, LEAST = 6, 3
SETTINGS = (
    f"learners={LEARNERS}",
    "code.name=cyclic",
    "code.tolerance=1",
    "environment.copies=2",
    "collect.steps=5",
    "collect.warmup=64",
    "collect.warmup_copies=8",
    "algorithm.batch_size=16",
    "algorithm.hidden=16",
    "checkpoint.every=100",
    "metrics.sinks=[]",
)
"""Rounds of a few milliseconds, so that changes strike every part of an iteration."""


class Crowd:
    """Learners that come and go."""

    def __init__(self, launch: Launch, *, seed: int) -> None:
        self._launch = launch
        self._draw = np.random.default_rng(seed)
        self._present: list[asyncio.Task[None]] = []
        self.changes: Counter[str] = Counter()

    def join(self) -> None:
        """Add a learner."""
        self._present.append(asyncio.create_task(attach(self._launch, asyncio.Event())))

    def change(self) -> None:
        """Kill one or two learners or add one, at random within the limits on their number."""
        count = len(self._present)
        dying = int(self._draw.integers(0, 3)) if count > LEAST else 0
        if count >= 2 * LEARNERS:
            dying = 2
        for _ in range(min(dying, count - LEAST)):
            self._present.pop(int(self._draw.integers(len(self._present)))).cancel()
            self.changes["leaves"] += 1
        if not dying:
            self.join()
            self.changes["joins"] += 1

    async def dismiss(self) -> None:
        """End all learners."""
        for task in self._present:
            task.cancel()
        await asyncio.gather(*self._present, return_exceptions=True)


async def churned(settings: Resolved, run_dir: Path, *, changes: int, seed: int) -> Counter[str]:
    """Run to the end while learners come and go; return the number of changes."""
    launch = Launch(resolved=settings, run_dir=run_dir)
    stop = asyncio.Event()
    services = [
        asyncio.create_task(serving)
        for serving in (serve_replay(launch, stop), serve_controller(launch, run_dir, stop))
    ]
    crowd = Crowd(launch, seed=seed)
    for _ in range(LEARNERS):
        crowd.join()
    every = max(1, settings.config.iterations // changes)
    while crowd.changes.total() < changes:
        await _committed(services, run_dir, every * (crowd.changes.total() + 1))
        crowd.change()
    await _committed(services, run_dir, settings.config.iterations)
    stop.set()
    await asyncio.gather(*services)
    await crowd.dismiss()
    return crowd.changes


async def _committed(services: "list[asyncio.Task[None]]", run_dir: Path, iterations: int) -> None:
    """Wait until so many iterations are committed; raise the error of a failed service."""
    client: ControllerClient | None = None
    while True:
        for service in services:
            if service.done():
                service.result()
        try:
            client = client or ControllerClient(resolve("127.0.0.1:0", run_dir, "controller"))
            status = await client.status()
        except ServiceLost:
            await asyncio.sleep(0.05)
            continue
        if status.iterations_committed >= iterations:
            await client.close()
            return
        await asyncio.sleep(0.002)


def report(records: list[IterationRecord], changes: Counter[str], *, reference: list[str]) -> bool:
    """Print the outcome; return whether the claim holds."""
    equal = [record.update_digest for record in records] == reference
    whole = [record.iteration for record in records] == list(range(len(reference)))
    print("| | |\n|---|---|")
    print(f"| leaves, joins | {changes['leaves']}, {changes['joins']} |")
    print(f"| iterations committed, of | {len(records)}, {len(reference)} |")
    print(f"| terms | {len({record.term for record in records})} |")
    print(f"| epochs | {len({record.epoch for record in records})} |")
    print(f"| iterations to which rows were added | {sum(r.attempt > 0 for r in records)} |")
    print(f"| exact | {sum(record.exact for record in records)} |")
    print(f"| digests equal those of the fault-free run | {'all' if equal else 'NOT all'} |")
    holds = equal and whole
    print("\nno iteration lost, no bit differs" if holds else "\nlost iterations or other bits")
    return holds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--iterations", type=int, default=500)
    parser.add_argument("--changes", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    overrides = [f"iterations={options.iterations}", *SETTINGS]
    settings = load(None, environ={}, overrides=overrides).check()
    reference = [iteration.update_digest for iteration in LocalRun(settings.config).train()]
    with tempfile.TemporaryDirectory() as scratch:
        run_dir = Path(scratch) / "run"
        run_dir.mkdir()
        run = churned(settings, run_dir, changes=options.changes, seed=options.seed)
        changes = asyncio.run(run)
        records = list(read_records(run_dir / "metrics.jsonl"))
    return int(not report(records, changes, reference=reference))


if __name__ == "__main__":
    sys.exit(main())
