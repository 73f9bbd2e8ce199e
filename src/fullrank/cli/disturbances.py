"""Real runs under faults drawn from a seed: processes die and freeze, connections fail.

Replay, controller and learners are processes of this machine, and what they say to one another
passes through fault proxies. One fault follows the other, each in the midst of the run; at the end
the run is judged by what it committed and by the histories of its services.
"""

import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from types import MappingProxyType

import numpy as np
import psutil

from fullrank.checkpoint import newest
from fullrank.cli.processes import Service, ensure_alive, start, stop
from fullrank.config import RunConfig, load, to_toml
from fullrank.errors import FullrankError
from fullrank.history import read_history
from fullrank.invariants import violations
from fullrank.local import LocalRun
from fullrank.metrics import METRICS, read_records
from fullrank.recovery import CHECKPOINTS
from fullrank.rpc.addresses import resolve
from fullrank.rpc.fault_proxy import Fault, FaultProxy, in_thread
from fullrank.seeding import stream
from fullrank.wiring import training_of

ITERATIONS, LEARNERS, FAULTS = 30, 4, 4
ANYWHERE = "127.0.0.1:0"
SETTINGS = (
    f"iterations={ITERATIONS}",
    f"learners={LEARNERS}",
    "code.tolerance=1",
    "environment.copies=2",
    "collect.steps=9",  # episodes of 25 steps cross iterations
    "collect.warmup=128",
    "collect.warmup_copies=8",
    "algorithm.batch_size=32",
    "algorithm.hidden=16",
    "replay.capacity=20000",
    "checkpoint.every=7",
    "compute.emulate_unit_s=0.04",  # so that faults fall into every part of a round
    "controller.deadline_s=5.0",
    "controller.heartbeat_s=0.3",
    "controller.lost_after_s=1.5",
    "metrics.sinks=[]",
    f"controller.listen={ANYWHERE}",
    f"replay.listen={ANYWHERE}",
)
SHORTEST_S, LONGEST_S = 0.2, 2.5
"""How long a fault lasts: some longer than a learner may be silent, all shorter than what ends a
service that waits."""
STILL_S = 90.0
"""A run that commits nothing for so long has stopped."""
DEAD = psutil.STATUS_ZOMBIE
LOOK_S = 0.05
"""Between two looks at what is committed."""

LINES: Mapping[str, Fault] = MappingProxyType(
    {
        "cut": FaultProxy.cut,
        "silent": FaultProxy.hold,
        "silent towards it": lambda proxy: proxy.up.hold(),
        "silent from it": lambda proxy: proxy.down.hold(),
        "slow": lambda proxy: proxy.delay(0.05, jitter_s=0.02),
        "a byte a second": lambda proxy: proxy.throttle(1.0),
    }
)
"""What may befall the line to a service."""


@dataclass(slots=True)
class Outcome:
    """How a run went."""

    seed: int
    injected: list[str] = field(default_factory=list)
    """What was done to it, in order."""
    wrong: list[str] = field(default_factory=list)
    """Violations; none is well."""


def disturb(seed: int) -> Outcome:
    """Train under the faults of one seed, and judge the run."""
    outcome, draws = Outcome(seed), stream(seed, "disturbances")
    with tempfile.TemporaryDirectory() as scratch, _stage(Path(scratch)) as stage:
        try:
            for iteration in sorted(draws.integers(1, ITERATIONS - 1, FAULTS).tolist()):
                stage.play_until(iteration)
                outcome.injected.append(
                    f"after {stage.committed():2} iterations: {stage.befall(draws)}"
                )
            stage.play_until(ITERATIONS)
            stage.end()
        except FullrankError as error:
            outcome.wrong.append(str(error))
        outcome.wrong += _judged(Path(scratch))
    return outcome


@contextmanager
def _stage(run_dir: Path) -> Iterator["Stage"]:
    """A run's services, started; none is left at the end."""
    with ExitStack() as stack:
        proxies = {
            name: FaultProxy(partial(resolve, ANYWHERE, run_dir, name))
            for name in ("controller", "replay")
        }
        lines = {name: stack.enter_context(in_thread(each)) for name, each in proxies.items()}
        addresses = [f"{name}.address={each.address}" for name, each in proxies.items()]
        config = load(None, environ={}, overrides=[*SETTINGS, *addresses]).check().config
        (run_dir / "config.toml").write_text(to_toml(config))
        (run_dir / "logs").mkdir()
        stage = Stage(run_dir, lines)
        stack.callback(stage.clear)
        yield stage


class Stage:
    """The processes of one run and the lines between them.

    Args:
        run_dir: The run's.
        lines: What inflicts a fault on the line to a service, by its name.
    """

    def __init__(self, run_dir: Path, lines: Mapping[str, Callable[[Fault], None]]) -> None:
        self._run_dir, self._lines = run_dir, lines
        self._started = 0
        self._alone = {name: self._start(name) for name in ("controller", "replay")}
        self._learners = [self._start("learner", "--replicas", str(LEARNERS))]

    def _start(self, name: str, *extra: str) -> Service:
        self._started += 1
        return start(name, self._run_dir, extra, log_name=f"{self._started}-{name}")

    def committed(self) -> int:
        """Iterations that everybody may see."""
        metrics = self._run_dir / METRICS
        records = read_records(metrics) if metrics.exists() else []
        return records[-1].iteration + 1 if records else 0

    def play_until(self, iterations: int) -> None:
        """Return when so many iterations are committed.

        Raises:
            FullrankError: Nothing is committed any more, or a service ended by itself.
        """
        before, since = -1, time.monotonic()
        while (now := self.committed()) < iterations:
            if now != before:
                before, since = now, time.monotonic()
            if time.monotonic() - since > STILL_S:
                raise FullrankError(f"live: {now} of {ITERATIONS} iterations are committed")
            ensure_alive(self._alone.values())
            time.sleep(LOOK_S)

    def befall(self, draws: np.random.Generator) -> str:
        """One fault, from its beginning to its end; says what it was."""
        lasts_s = float(draws.uniform(SHORTEST_S, LONGEST_S))
        name = str(draws.choice(["controller", "replay", "learner"]))
        kinds = ["killed", "frozen", *(LINES if name in self._lines else ())]
        kind = str(draws.choice(kinds))
        if kind in LINES:
            self._lines[name](LINES[kind])
            time.sleep(lasts_s)
            self._lines[name](FaultProxy.mend)
        elif name in self._alone:
            self._harm(psutil.Process(self._alone[name].process.pid), kind, lasts_s)
            if kind == "killed":
                self._alone[name] = self._start(name)
        else:
            self._harm(self._some_learner(draws), kind, lasts_s)
            if kind == "killed":
                self._learners.append(self._start("learner"))
        place = f"the line to {name}" if kind in LINES else name
        return f"{place}: {kind} for {lasts_s:.1f} s"

    def _some_learner(self, draws: np.random.Generator) -> psutil.Process:
        first, *later = [psutil.Process(each.process.pid) for each in self._learners]
        living = [each for each in (*first.children(), *later) if each.status() != DEAD]
        return living[int(draws.integers(len(living)))]

    def _harm(self, process: psutil.Process, kind: str, lasts_s: float) -> None:
        process.send_signal(signal.SIGKILL if kind == "killed" else signal.SIGSTOP)
        time.sleep(lasts_s)
        if kind == "frozen":
            process.send_signal(signal.SIGCONT)

    def end(self) -> None:
        """Stop the controller as SIGTERM does: it checkpoints.

        Raises:
            FullrankError: It failed.
        """
        controller = self._alone["controller"]
        stop([controller])
        if controller.process.returncode:
            raise controller.failure() or FullrankError("the controller failed")

    def clear(self) -> None:
        """End all processes."""
        stop([*self._alone.values(), *self._learners])


def _judged(run_dir: Path) -> list[str]:
    """What is wrong with a run that has ended."""
    digests, parameters = _undisturbed()
    wrong = violations(read_history(run_dir), reference=digests)
    if _digest(run_dir) != parameters:
        wrong.append("exact: the parameters are not those of the undisturbed run")
    return wrong


def _digest(run_dir: Path) -> str:
    """Of the parameters that the run has checkpointed last."""
    training = training_of(_config())
    try:
        training.load_algorithm(newest(run_dir / CHECKPOINTS).arrays)
    except FullrankError as error:
        return str(error)
    finally:
        training.close()
    return training.digest()


def _config() -> RunConfig:
    return load(None, environ={}, overrides=SETTINGS).check().config


@cache
def _undisturbed() -> tuple[Sequence[str], str]:
    """What the run commits and ends with in one process, without learners or a network."""
    run = LocalRun(_config(), coded=False)
    return [each.update_digest for each in run.train()], run.parameter_digest()
