"""Train a team while one learner is killed, one is late and one lies; end with the right bits.

Four learner processes compute the run, with the replay service and the controller, beside the
centralised run of the same seed in this process. Learner 0 is killed, and another takes its place;
learner 1 is 0.4 s late in every iteration; from some iteration on learner 2 turns its gradients
round, and reports digests that match. Two learners must agree on a unit before it is committed.

    make demo
"""

import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
import webbrowser
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from statistics import fmean, median
from typing import Any

from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from fullrank.cli.terminal import Terminal
from fullrank.client import IterationRecord, Monitor, RunState, RunStatus
from fullrank.common.errors import ServiceLost
from fullrank.config import load
from fullrank.config.toml import to_toml
from fullrank.config.tree import RunConfig
from fullrank.host.process import Launch, find_service, interrupting
from fullrank.host.run_directory import resolve
from fullrank.local import LocalRun
from fullrank.runs.checkpoint import newest
from fullrank.runs.identity import CHECKPOINTS
from fullrank.runs.record import METRICS, follow
from fullrank.training.worker import Worker
from fullrank.wiring.training import training_of

KILLED, LATE, LIAR, LEARNERS = 0, 1, 2, 4
ITERATIONS, KILLED_AT, REPLACED_AT, LIES_FROM = 500, 100, 200, 300
LATE_S = 0.4
OPTIONS = {
    "iterations": ITERATIONS,
    "learners": LEARNERS,
    "code.name": "cyclic",
    "code.tolerance": 1,
    "audit.byzantine": 1,
    "controller.undecodable": "hedge",
    "stragglers.name": "trace",
    "stragglers.rows": [[0, LATE, LATE_S]],
}


class Wrong:
    """Gradients of a learner that begins to lie."""

    def __init__(self, gradients: Any) -> None:
        self._gradients = gradients

    def compute(self, *batch: Any, iteration: int, **others: Any) -> Iterator[tuple[int, Any]]:
        """Yield every unit with its update, from ``LIES_FROM`` on with the wrong sign."""
        for unit, update in self._gradients.compute(*batch, iteration=iteration, **others):
            yield unit, -update if iteration >= LIES_FROM else update


def serve(name: str, run_dir: Path, log: str, parent: Connection, lies: bool = False) -> None:
    """Run one service until the run has ended, or the process that started it."""
    with (run_dir / f"{log}.log").open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    if lies:
        from fullrank_learner import run_context

        honest: Any = run_context.LearnerContext.__init__

        def wrong(context: Any, *words: Any, **others: Any) -> None:
            honest(context, *words, **others)
            gradients: Any = Wrong(context.algorithm.gradients)
            context.worker = Worker(context.problem, gradients, seed=context.config.seed)

        run_context.LearnerContext.__init__ = wrong  # type: ignore[assignment,method-assign]
    resolved = load(run_dir / "config.toml")
    launch = Launch(resolved=resolved, run_dir=run_dir, supervisor=parent.fileno())
    raise SystemExit(find_service(name)(launch))


class Demonstration:
    """The processes of a run, and what happens to them.

    Args:
        run_dir: An empty directory.
        config: Configuration of the run.
    """

    def __init__(self, run_dir: Path, config: RunConfig) -> None:
        self.run_dir, self.config = run_dir, config
        (run_dir / "config.toml").write_text(to_toml(config))
        self.events: list[str] = []
        self.learners: dict[int, BaseProcess] = {}
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["fullrank_learner.server"])
        self._parent, self._alive = self._context.Pipe(duplex=False)
        self._services = [self._start(name, name) for name in ("replay", "controller")]

    def _start(self, name: str, log: str, *, lies: bool = False) -> BaseProcess:
        arguments = (name, self.run_dir, log, self._parent, lies)
        process = self._context.Process(target=serve, args=arguments, daemon=True)
        process.start()
        return process

    def start_learner(self, number: int) -> None:
        """Start a learner, which is given the lowest vacant number."""
        log = f"learner-{number}"
        self.learners[number] = self._start("learner", log, lies=number == LIAR)

    def ensure_alive(self) -> None:
        """End the demonstration if a process has ended that was not killed."""
        logs = dict(zip(("replay", "controller"), self._services, strict=True))
        logs |= {f"learner-{number}": process for number, process in self.learners.items()}
        for log, process in logs.items():
            if process.exitcode not in (None, 0, -signal.SIGKILL):
                *_, last = (self.run_dir / f"{log}.log").read_text().splitlines() or [""]
                raise SystemExit(f"{log} has ended: {last}")

    def monitor(self) -> Monitor:
        """Dial the controller, once it listens."""
        while True:
            with suppress(ServiceLost):
                return Monitor(resolve("127.0.0.1:0", self.run_dir, "monitor"))
            self.ensure_alive()
            time.sleep(0.05)

    def stop(self) -> None:
        """End every process."""
        processes = [*reversed(self._services), *self.learners.values()]
        for process in processes:
            process.terminate()
        for process in processes:
            process.join()


class Beside:
    """The centralised run of the same seed, as far as the other one is.

    Args:
        config: Configuration of both.
    """

    def __init__(self, config: RunConfig) -> None:
        self._run = LocalRun(config, coded=False)
        self._iterations = iter(self._run)
        self._returns: deque[float] = deque(maxlen=20)
        self.records: list[IterationRecord] = []
        self.equal = 0
        self.digests = ("", "")

    def advance(self, record: IterationRecord) -> None:
        """Do the iteration that the other run has done."""
        own = next(self._iterations)
        self.records.append(record)
        self.digests = (record.update_digest, own.update_digest)
        self.equal += record.update_digest == own.update_digest
        if own.return_mean is not None:
            self._returns.append(own.return_mean)

    @property
    def mean_return(self) -> str:
        """Mean return of recent episodes."""
        return f"{fmean(self._returns):.1f}" if self._returns else "-"

    @property
    def without_late(self) -> int:
        """Number of rounds that did without the late learner."""
        return sum(LATE in record.late for record in self.records)

    @property
    def round_ms(self) -> float:
        """Median time of a round, milliseconds."""
        return 1e3 * median([record.round_s for record in self.records] or [0.0])

    def parameters(self) -> str:
        """Hash parameters, targets and optimiser state."""
        return self._run.parameter_digest()


@contextmanager
def page(run_dir: Path) -> Iterator[None]:
    """Show the run on its page, too, where there is a screen for a browser."""
    if not {"DISPLAY", "WAYLAND_DISPLAY"} & {*os.environ} and sys.platform != "darwin":
        yield
        return
    command = [sys.executable, "-m", "fullrank", "dashboard", str(run_dir), "--port", "0"]
    dashboard = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert dashboard.stderr is not None
    try:
        line = dashboard.stderr.readline()  # "the dashboard is at ..."
        webbrowser.open(line.split()[-1])
        yield
    finally:
        dashboard.terminate()
        dashboard.communicate()


def drawn(demonstration: Demonstration, beside: Beside, status: RunStatus) -> Group:
    """Draw both runs, the learners, and what has happened."""
    done = len(beside.records)
    runs = Table(box=None, pad_edge=False)
    for heading in (f"iteration {done} of {ITERATIONS}", "return", "newest update"):
        runs.add_column(heading)
    names = ("coded, four learner processes", "centralised, this process")
    for name, digest in zip(names, beside.digests, strict=True):
        runs.add_row(name, beside.mean_return, digest[:16])
    equal = Text(f"{beside.equal} of {done} updates are equal, bit for bit", "bold")
    learners = Table("learner", "process", "", box=None, pad_edge=False)
    without = f"{beside.without_late} of {done}"
    attached = {learner.learner: learner for learner in status.learners}
    for number, process in demonstration.learners.items():
        state, style = "computes", "green"
        if number not in attached:
            state, style = ("joins", "dim") if process.is_alive() else ("killed", "red")
        elif attached[number].quarantined:
            state, style = "caught lying, barred", "magenta"
        elif number == LATE:
            state, style = f"{1e3 * LATE_S:.0f} ms late, {without} rounds did without it", "yellow"
        learners.add_row(str(number), str(process.pid), Text(state, style))
    rounds = f"median round {beside.round_ms:.0f} ms"
    return Group(runs, equal, "", learners, rounds, "", *demonstration.events)


def happen(demonstration: Demonstration, status: RunStatus) -> None:
    """Kill a learner, start another one, and note who is caught, each when its time has come."""
    now, events = status.committed, demonstration.events
    if now >= KILLED_AT and len(events) == 0:
        demonstration.learners[KILLED].kill()
        events.append(f"iteration {now}: learner {KILLED} is killed")
    elif now >= REPLACED_AT and len(events) == 1:
        demonstration.start_learner(KILLED)
        events.append(f"iteration {now}: a new process takes its place")
    elif len(events) == 2 and (caught := [each for each in status.learners if each.quarantined]):
        events.append(f"learner {caught[0].learner} is caught: {caught[0].quarantined}")


def watch(demonstration: Demonstration, beside: Beside, console: Terminal) -> None:
    """Follow the run to its end, live in a terminal, else by a line for each event."""
    records, said = follow(demonstration.run_dir / METRICS), 0
    with demonstration.monitor() as monitor, Live(console=console, auto_refresh=False) as live:
        for number in range(LEARNERS):
            demonstration.start_learner(number)
            while number not in {each.learner for each in monitor.status().learners}:
                demonstration.ensure_alive()
                time.sleep(0.05)
        while len(beside.records) < ITERATIONS:
            status = monitor.status()
            if status.state is RunState.FAILED:
                raise SystemExit(f"the run failed: {status.message}")
            demonstration.ensure_alive()
            happen(demonstration, status)
            for record in next(records):
                beside.advance(record)
            if console.is_terminal:
                live.update(drawn(demonstration, beside, status), refresh=True)
            for event in demonstration.events[said:]:
                said += 1
                if not console.is_terminal:
                    console.print(event)
            time.sleep(0.1)
        while monitor.status().state is not RunState.FINISHED:  # its last checkpoint
            time.sleep(0.05)


def main() -> int:
    console = Terminal(highlight=False, soft_wrap=True)
    config = load(options=OPTIONS).check().config
    with tempfile.TemporaryDirectory(prefix="fullrank-demo-") as scratch, interrupting():
        run_dir = Path(scratch) / "run"
        run_dir.mkdir()
        demonstration = Demonstration(run_dir, config)
        try:
            beside = Beside(config)
            with page(run_dir):
                watch(demonstration, beside, console)
        finally:
            demonstration.stop()
        coded = training_of(config)
        coded.trainer.load(newest(run_dir / CHECKPOINTS).arrays)
        coded.collector.close()
        digests = (coded.trainer.digest(), beside.parameters())
    rounds = f"median round {beside.round_ms:.0f} ms"
    caught = f"learner {LIAR}, lying from iteration {LIES_FROM}"
    console.print(f"killed: learner {KILLED}; late: learner {LATE}, {rounds}; caught: {caught}")
    console.print(f"coded {digests[0][:32]}, centralised {digests[1][:32]}")
    equal = digests[0] == digests[1] and beside.equal == ITERATIONS
    console.print("EQUAL" if equal else "DIFFERENT", style="bold green" if equal else "bold red")
    return int(not equal)


if __name__ == "__main__":
    sys.exit(main())
