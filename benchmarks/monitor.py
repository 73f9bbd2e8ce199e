"""Claim: fifty monitors and the dashboard, or one that never reads, slow a run by at most 2 %.

The default task on real services, whose learners stand for dedicated machines by 50 ms a unit: with
no monitor; with fifty clients in one process that read all commits; with these and a dashboard, a
process that shows the run on a page; and with a client that asks for the whole run and never reads.
One run alternates between the four, forwards and backwards, so that all see the same machine; each
turn counts by its median of collecting and round together. Clients and page do not decode what they
read, to keep their own computing small. Memory is the controller's, at both ends of the turns with
the client that never reads. With ``--unit 0`` learners compute for a few milliseconds, and share
this machine with the monitors.

    python benchmarks/monitor.py
"""

import argparse
import asyncio
import json
import multiprocessing
import sys
import tempfile
import threading
import time
from collections import defaultdict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.synchronize import Event
from pathlib import Path
from statistics import median
from urllib.request import urlopen

import grpc
import psutil

from fullrank.config import load
from fullrank.runs.record import METRICS, IterationRecord, follow
from fullrank.v1 import monitor_pb2 as pb
from local_services import announced, start

CLIENTS = 50
CLAIM = 1.02
GROWTH_BYTES = 8 * 2**20
"""Memory that a client that never reads may add."""
SETTLED = 10
"""Iterations at the start of each turn that do not count."""
WATCH = "/fullrank.v1.MonitorService/Watch"
SETTINGS = (
    "iterations=1000000",
    "collect.warmup=2000",
    "checkpoint.every=1000",
    "metrics.sinks=[]",
)


async def read(address: str, first: int, watching: Event) -> None:
    """Read all commits with all clients, from iteration ``first`` on."""
    async with grpc.aio.insecure_channel(address) as channel:
        request = pb.WatchRequest(from_iteration=first).SerializeToString()
        watch: grpc.aio.UnaryStreamMultiCallable[bytes, bytes] = channel.unary_stream(WATCH)
        calls = [watch(request) for _ in range(CLIENTS)]
        for call in calls:
            await call.read()
        watching.set()
        await asyncio.gather(*(_read_on(call) for call in calls))


async def _read_on(call: "grpc.aio.UnaryStreamCall[bytes, bytes]") -> None:
    while await call.read() is not grpc.aio.EOF:
        pass


def clients(address: str, first: int, watching: Event) -> None:
    """Run a process of clients."""
    asyncio.run(read(address, first, watching))


class Run:
    """A run that continues until it is stopped.

    Args:
        scratch: Parent of its directory.
        unit_s: Least seconds of a unit.
    """

    def __init__(self, scratch: Path, unit_s: float) -> None:
        self.directory = scratch / "run"
        resolved = load(overrides=[*SETTINGS, f"compute.emulate_unit_s={unit_s}"])
        names = ("controller", "learner", "replay")
        self.processes = [start(name, resolved, self.directory) for name in names]
        self.controller = psutil.Process(self.processes[0].pid)
        self._records = follow(self.directory / METRICS)
        self.last = -1

    def iterations(self, count: int) -> list[IterationRecord]:
        """Wait for the next ``count`` iterations, or some more."""
        next(self._records)
        records: list[IterationRecord] = []
        while len(records) < count:
            time.sleep(0.05)
            records += next(self._records)
        self.last = records[-1].iteration
        return records

    def stop(self) -> None:
        for process in self.processes:
            process.terminate()
            process.join()


@contextmanager
def unwatched(run: Run, address: str) -> Iterator[None]:
    yield


@contextmanager
def fifty(run: Run, address: str) -> Iterator[None]:
    context = multiprocessing.get_context("spawn")
    watching = context.Event()
    process = context.Process(target=clients, args=(address, run.last, watching))
    process.start()
    watching.wait()
    yield
    process.terminate()
    process.join()


@contextmanager
def page(run: Run) -> Iterator[None]:
    """Run a dashboard, with a page open that already shows the run."""
    shown = json.dumps([str(run.directory)])
    resolved = load(overrides=[f"dashboard.runs={shown}", "dashboard.address=127.0.0.1:0"])
    with tempfile.TemporaryDirectory() as scratch:
        process = start("dashboard", resolved, Path(scratch))
        events = urlopen(f"http://{announced(Path(scratch), 'dashboard')}/events")
        updates = (json.loads(line[6:]) for line in events if line.startswith(b"data: "))
        while not ((status := next(updates)["status"]) and status["committed"] > run.last):
            pass
        reading = threading.Thread(target=deque, args=(events, 0))
        reading.start()
        yield
        process.terminate()
        process.join()
        reading.join()


@contextmanager
def fifty_and_page(run: Run, address: str) -> Iterator[None]:
    with fifty(run, address), page(run):
        yield


@contextmanager
def unread(run: Run, address: str) -> Iterator[None]:
    with grpc.insecure_channel(address) as channel:
        watch: grpc.UnaryStreamMultiCallable[bytes, bytes] = channel.unary_stream(WATCH)
        call = watch(pb.WatchRequest().SerializeToString())
        yield
        call.cancel()


TURNS = {
    "no monitor": unwatched,
    "fifty clients": fifty,
    "fifty clients and the dashboard": fifty_and_page,
    "one that never reads": unread,
}


def measure(turns: int, iterations: int, unit_s: float) -> tuple[dict[str, list[float]], int]:
    """Measure medians of each turn by monitors, and growth beside the one that never reads."""
    medians: dict[str, list[float]] = defaultdict(list)
    grown = 0
    with tempfile.TemporaryDirectory() as scratch:
        run = Run(Path(scratch), unit_s)
        try:
            address = announced(run.directory, "monitor")
            run.iterations(10 * SETTLED)
            for turn in range(turns):
                for name, attached in list(TURNS.items())[:: (-1) ** turn]:
                    with attached(run, address):
                        run.iterations(SETTLED)
                        before = run.controller.memory_info().rss
                        records = run.iterations(iterations)
                        medians[name].append(median(r.collect_s + r.round_s for r in records))
                        if attached is unread:
                            grown += run.controller.memory_info().rss - before
        finally:
            run.stop()
    return medians, grown


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=6)
    parser.add_argument("--iterations", type=int, default=40)
    parser.add_argument("--unit", type=float, default=0.05)
    arguments = parser.parse_args()
    medians, grown = measure(arguments.turns, arguments.iterations, arguments.unit)
    ratios = {}
    print("| monitors | iteration, ms | ratio to none in the same turn: median (least, most) |")
    print("|---|---|---|")
    for name in TURNS:
        pairs = zip(medians[name], medians["no monitor"], strict=True)
        by_turn = [watched / alone for watched, alone in pairs]
        ratios[name] = median(by_turn)
        spread = f"{ratios[name]:.3f} ({min(by_turn):.3f}, {max(by_turn):.3f}), <= {CLAIM}"
        print(f"| {name} | {1e3 * median(medians[name]):.2f} | {spread} |")
    print(
        f"\nThe controller grew by {grown / 2**20:.1f} MiB in all beside the one that never reads."
    )
    return int(max(ratios.values()) > CLAIM or grown > GROWTH_BYTES)


if __name__ == "__main__":
    sys.exit(main())
