"""Real runs under faults drawn from a seed: processes die and freeze, connections fail.

Replay, controller and learners are processes of this machine, and what they say to one another
passes through fault proxies and a straggler sidecar. One fault follows the other, each in the midst
of the run, and who ended is started again; at the end the run is judged by what it committed and by
the histories of its services.
"""

import signal
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from types import MappingProxyType

import numpy as np
import psutil

from fullrank.cli.processes import Service, start, stop
from fullrank.common.errors import FullrankError
from fullrank.common.seeding import stream
from fullrank.config import Corrupt, RunConfig, load, to_toml
from fullrank.local import LocalRun
from fullrank.rpc.addresses import resolve
from fullrank.rpc.straggler import set_injection
from fullrank.runs.checkpoint import newest
from fullrank.runs.event_log import read_history
from fullrank.runs.record import METRICS, follow
from fullrank.runs.recovery import CHECKPOINTS
from fullrank.wiring import training_of
from fullrank_faultlab.fault_proxy import Fault, FaultProxy, in_thread
from fullrank_faultlab.invariants import violations

ITERATIONS, LEARNERS, FAULTS = 30, 4, 4
ANYWHERE = "127.0.0.1:0"
SETTINGS = (
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
LOOK_S = 0.05
"""Between two looks at what is committed."""
STILL_LOOKS = 1800
"""A run that commits nothing between so many, 90 s, has stopped. They are counted, not timed: who
is frozen together with the run does not look."""
DEAD = psutil.STATUS_ZOMBIE

SIGNALS: Mapping[str, signal.Signals] = MappingProxyType(
    {"killed": signal.SIGKILL, "told to stop": signal.SIGTERM, "frozen": signal.SIGSTOP}
)
"""What may befall a service: who ends is started again, as a supervisor would."""
LINES: Mapping[str, Fault] = MappingProxyType(
    {
        "line cut": FaultProxy.cut,
        "line silent": FaultProxy.hold,
        "line silent towards it": lambda proxy: proxy.up.hold(),
        "line silent from it": lambda proxy: proxy.down.hold(),
        "line slow": lambda proxy: proxy.delay(0.05, jitter_s=0.02),
        "line down to a byte a second": lambda proxy: proxy.throttle(1.0),
    }
)
"""What may befall the line to controller or replay."""
ENDED = "ended by itself"
"""What nobody did to a service."""
CHANGED = "vectors changed"
"""What may befall a learner: a byte of all that it sends is another one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Misfortune:
    """A fault, from its beginning to its end."""

    after: int
    """Iterations that were committed before."""
    service: str
    kind: str
    lasts_s: float

    reason: str = ""
    """Of who ended by itself."""

    def __str__(self) -> str:
        if self.reason:
            return f"after {self.after:2} iterations: {self.service}: {self.kind}: {self.reason}"
        return (
            f"after {self.after:2} iterations: {self.service}: {self.kind} for {self.lasts_s:.1f} s"
        )


@dataclass(slots=True)
class Outcome:
    """How a run went."""

    seed: int
    injected: list[Misfortune] = field(default_factory=list)
    """What was done to it, in order."""
    wrong: list[str] = field(default_factory=list)
    """Violations; none is well."""


def disturb(seed: int) -> Outcome:
    """Train under the faults of one seed, and judge the run."""
    outcome = Outcome(seed)
    with tempfile.TemporaryDirectory() as scratch:
        run_dir = Path(scratch)
        try:
            for misfortune in disturbed(run_dir, seed=seed):
                outcome.injected.append(misfortune)
                outcome.wrong += [str(misfortune)] if misfortune.kind == ENDED else []
        except FullrankError as error:
            outcome.wrong.append(str(error))
        reference = undisturbed(ITERATIONS)
        outcome.wrong += violations(read_history(run_dir), reference=reference.digests)
        outcome.wrong += reference.unlike(run_dir)
    return outcome


def disturbed(
    run_dir: Path, *, seed: int, iterations: int = ITERATIONS, faults: int = FAULTS
) -> Generator[Misfortune, None, None]:
    """Train under faults, to the end; yields each fault when it is over, and who ended by itself.

    Args:
        run_dir: An empty directory.
        seed: Draws the faults and the iterations in which they begin.
        iterations: Of the run.
        faults: So many, one after the other.

    Raises:
        FullrankError: Nothing is committed any more, or the controller failed at its end.
    """
    draws = stream(seed, "disturbances")
    with _stage(run_dir, iterations) as stage:
        for iteration in sorted(draws.integers(1, iterations - 1, faults).tolist()):
            yield from stage.play_until(iteration)
            yield stage.befall(draws)
        yield from stage.play_until(iterations)
        stage.end()


@contextmanager
def _stage(run_dir: Path, iterations: int) -> Iterator["Stage"]:
    """A run's services, started; none is left at the end."""
    with ExitStack() as stack:
        proxies = {
            name: FaultProxy(partial(resolve, ANYWHERE, run_dir, behind))
            for name, behind in (("controller", "straggler"), ("replay", "replay"))
        }
        lines = {name: stack.enter_context(in_thread(each)) for name, each in proxies.items()}
        addresses = [f"{name}.address={each.address}" for name, each in proxies.items()]
        config = _config(iterations, *addresses)
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
        self._records, self._committed = follow(run_dir / METRICS), 0
        self._started = 0
        self._alone = {name: self._start(name) for name in ("controller", "replay", "straggler")}
        self._learners = [self._start("learner", "--replicas", str(LEARNERS))]

    def _start(self, name: str, *extra: str) -> Service:
        self._started += 1
        if name == "straggler":
            extra = ("--set", f"controller.address={ANYWHERE}")
        return start(name, self._run_dir, extra, log_name=f"{self._started}-{name}")

    def committed(self) -> int:
        """Iterations that everybody may see."""
        for record in next(self._records):
            self._committed = record.iteration + 1
        return self._committed

    def play_until(self, iterations: int) -> Iterator[Misfortune]:
        """Until so many iterations are committed; who ends by itself is told and started again.

        Raises:
            FullrankError: Nothing is committed any more.
        """
        before, looks = -1, 0
        while (now := self.committed()) < iterations:
            before, looks = now, looks + 1 if now == before else 0
            if looks > STILL_LOOKS:
                raise FullrankError(f"live: {now} iterations are committed, and no more")
            for name, service in self._alone.items():
                if (failure := service.failure()) is not None:
                    stop([service])
                    self._alone[name] = self._start(name)
                    yield Misfortune(
                        after=now, service=name, kind=ENDED, lasts_s=0.0, reason=str(failure)
                    )
            time.sleep(LOOK_S)

    def befall(self, draws: np.random.Generator) -> Misfortune:
        """One fault, from its beginning to its end."""
        after, lasts_s = self.committed(), float(draws.uniform(SHORTEST_S, LONGEST_S))
        name = str(draws.choice(["controller", "replay", "learner"]))
        kind = str(draws.choice([*SIGNALS, *(LINES if name in self._lines else [CHANGED])]))
        if kind in LINES:
            self._lines[name](LINES[kind])
            time.sleep(lasts_s)
            self._lines[name](FaultProxy.mend)
        elif kind == CHANGED:
            learner, byte = (int(draws.integers(high)) for high in (LEARNERS, 2**20))
            self._inject(Corrupt(learners=(learner,), byte=byte))
            time.sleep(lasts_s)
            self._inject()
        else:
            self._harm(name, kind, lasts_s, draws)
        return Misfortune(after=after, service=name, kind=kind, lasts_s=lasts_s)

    def _inject(self, *faults: Corrupt) -> None:
        set_injection(resolve(ANYWHERE, self._run_dir, "straggler-control"), faults=faults)

    def _harm(self, name: str, kind: str, lasts_s: float, draws: np.random.Generator) -> None:
        alone = self._alone.get(name)
        process = psutil.Process(alone.process.pid) if alone else self._some_learner(draws)
        process.send_signal(SIGNALS[kind])
        time.sleep(lasts_s)
        if kind == "frozen":
            process.send_signal(signal.SIGCONT)
        elif alone:
            stop([alone])
            self._alone[name] = self._start(name)
        else:
            self._learners.append(self._start("learner"))

    def _some_learner(self, draws: np.random.Generator) -> psutil.Process:
        stop([each for each in self._learners if each.process.poll() is not None])
        self._learners = [each for each in self._learners if each.process.poll() is None]
        started = [psutil.Process(each.process.pid) for each in self._learners]
        found = [each for process in started for each in process.children() or [process]]
        living = [each for each in found if each.status() != DEAD]
        return living[int(draws.integers(len(living)))]

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A run in one process, without learners or a network."""

    digests: Sequence[str]
    """What each iteration committed."""
    parameters: str
    """Digest of those that it ended with."""

    def unlike(self, run_dir: Path) -> list[str]:
        """What is wrong with the parameters that the run in a directory has checkpointed last."""
        training = training_of(_config(len(self.digests)))
        try:
            training.load_algorithm(newest(run_dir / CHECKPOINTS).arrays)
        except FullrankError as error:
            return [f"durable: {error}"]
        finally:
            training.close()
        if training.digest() != self.parameters:
            return ["exact: the parameters are not those of the undisturbed run"]
        return []


@cache
def undisturbed(iterations: int) -> Reference:
    """The run that nothing befell."""
    run = LocalRun(_config(iterations), coded=False)
    digests = [each.update_digest for each in run]
    return Reference(digests=digests, parameters=run.parameter_digest())


def _config(iterations: int, *settings: str) -> RunConfig:
    overrides = [f"iterations={iterations}", *SETTINGS, *settings]
    return load(None, environ={}, overrides=overrides).check().config
