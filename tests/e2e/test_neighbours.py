"""Two runs share a host and a replay service: a fault that strikes one is no fault of the other."""

import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import psutil
import pytest
from tests.addresses import free_address
from tests.e2e.commands import ENDLESS, committed, config_of, records, settings, start
from tests.e2e.forked import Forked
from tests.e2e.test_clocks import Clock, ahead_s
from tests.e2e.test_full_disk import Disk, small_disk
from tests.faultlab.history import read_history
from tests.faultlab.invariants import violations
from tests.waiting import WAIT_S, wait_until

from fullrank.local import LocalRun
from fullrank.net.controller_client import StatusPoller
from fullrank.net.status import RunState
from fullrank.runs.ending import lasting_caveats

pytestmark = pytest.mark.e2e

SETTINGS = (
    ENDLESS,
    "learners=1",
    "code.name=uncoded",
    "collectors.count=1",
    "checkpoint.every=2",
    "controller.heartbeat_s=0.2",
    "compute.emulate_unit_s=0.1",
)
PARTS = ("controller", "learner", "collector")
"""Services of each run; ``replay`` is shared."""
ENDS = {
    ("controller", "disk"): 1,
    ("controller", "descriptors"): 1,
}
"""Exit code of the struck run's controller, where the fault ends it."""
STRUCK = [
    ("controller", "disk"),
    pytest.param("controller", "descriptors", marks=pytest.mark.thorough),
    ("learner", "stop"),
    ("collector", "kill"),
    pytest.param("replay", "stop", marks=pytest.mark.thorough),
    ("replay", "clock"),
]
"""Each service and each fault once, those that take longest in `make test-all` alone."""


@dataclass(slots=True)
class Service:
    """A service that is started again, with the same words, whenever it has ended.

    Attributes:
        clock: Time of day of its next process, if that is wrong.
        codes: Its exit codes so far.
    """

    name: str
    words: Sequence[str]
    home: Path
    clock: Clock | None = None
    codes: list[int] = field(default_factory=list)
    process: "Forked | subprocess.Popen[str]" = field(init=False)

    def __post_init__(self) -> None:
        self.home.mkdir(exist_ok=True)
        self.start()

    def start(self) -> None:
        env, log = {"TMPDIR": str(self.home)}, self.home / f"{self.name}.log"
        if self.clock is None:
            self.process = Forked(self.name, *self.words, log=log, env=env)
            return
        with log.open("a") as output:  # a library is loaded at the start alone
            words = ("serve", self.name, *self.words)
            self.process = start(*words, env={**env, **self.clock.env}, output=output)

    def supervise(self) -> None:
        """Start it again if it has ended."""
        if (code := self.process.poll()) is not None:
            self.codes.append(code)
            self.start()

    def kill(self) -> None:
        """Kill it alone: its children see that it is gone."""
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait(WAIT_S)

    def end(self) -> None:
        """Kill it with its children."""
        self.process.kill()


class Run:
    """The controller, the learner and the collector of a run.

    Args:
        homes: Folder of each of them, for all its files.
        overrides: Further settings.
    """

    def __init__(self, homes: Mapping[str, Path], *overrides: str) -> None:
        self.run_dir = homes["controller"] / "run"
        self.run_dir.mkdir(parents=True)
        words = [*settings(*SETTINGS, *overrides), "--run-dir", str(self.run_dir)]
        self.parts = {name: Service(name, words, homes[name]) for name in PARTS}

    @property
    def codes(self) -> dict[str, list[int]]:
        """Exit codes so far by service."""
        return {name: part.codes for name, part in self.parts.items()}

    def end(self) -> None:
        for part in self.parts.values():
            part.end()

    def goes_on(self) -> None:
        """Wait for two further iterations, starting again each service that has ended."""
        goal = committed(self.run_dir) + 2

        def reached() -> bool:
            for part in self.parts.values():
                part.supervise()
            return committed(self.run_dir) >= goal

        wait_until(reached, what=f"{self.run_dir} commits {goal} iterations")

    def stalls(self) -> None:
        """Wait until it says that it waits."""
        with StatusPoller(self.run_dir, config_of(self.run_dir)) as watch:
            wait_until(lambda: watch.status().state is RunState.STALLED, what="it says so")


class Alone:
    """The digests of a run that shares its host with no other, computed as far as needed."""

    def __init__(self, run_dir: Path) -> None:
        self._run = iter(LocalRun(config_of(run_dir), coded=False))
        self._digests: list[str] = []

    def assert_like(self, run_dir: Path) -> None:
        """A run has the same bits, is exact throughout, and has no caveat."""
        told = records(run_dir)
        missing = max(0, len(told) - len(self._digests))
        self._digests += [each.update_digest for each in islice(self._run, missing)]
        assert [each.iteration for each in told] == list(range(len(told)))
        assert [each.update_digest for each in told] == self._digests[: len(told)]
        assert all(each.exact and not each.caveats for each in told)
        assert lasting_caveats(run_dir) == []
        assert violations(read_history(run_dir)) == []


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A replay service, and the run that no fault strikes.

    It lives on beside all struck runs, which differ in nothing but their addresses.
    """

    replay: Service
    neighbour: Run
    clock: Clock
    address: str
    alone: dict[str, Alone] = field(default_factory=dict)

    def assert_right(self, **runs: Run) -> None:
        for name, run in runs.items():
            self.alone.setdefault(name, Alone(run.run_dir)).assert_like(run.run_dir)


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    home = tmp_path_factory.mktemp("host")
    address = f"replay.address={free_address()}"
    with ExitStack() as stack:
        words = [*settings(address), "--run-dir", str(home / "replay")]
        replay = Service("replay", words, home / "replay")
        stack.callback(replay.end)
        neighbour = Run(dict.fromkeys(PARTS, home), "seed=7", address, patience(WAIT_S))
        stack.callback(neighbour.end)
        clock = Clock(home / "clock")
        yield Host(replay=replay, neighbour=neighbour, clock=clock, address=address)


def patience(seconds: float) -> str:
    """Time after which a run says that replay is away, or ends as it refuses rows."""
    return f"replay.deadline_s={seconds}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """A run, and the service of it that a fault strikes."""

    run: Run
    struck: Service
    disk: Disk | None
    clock: Clock

    def processes(self) -> list[psutil.Process]:
        """The struck service's process, and those that it has started: a collector's player."""
        own = psutil.Process(self.struck.process.pid)
        return [own, *own.children(recursive=True)]

    @contextmanager
    def kill(self) -> Iterator[None]:
        self.struck.kill()
        yield

    @contextmanager
    def stop(self) -> Iterator[None]:
        processes = self.processes()
        for process in processes:
            process.suspend()
        try:
            yield
        finally:
            for process in processes:
                process.resume()

    @contextmanager
    def full_disk(self) -> Iterator[None]:
        assert self.disk is not None
        self.disk.fill()
        try:
            yield
        finally:
            self.disk.empty()

    @contextmanager
    def wrong_clock(self) -> Iterator[None]:
        """It is started again an hour ahead; then its clock jumps back by two."""
        self.struck.clock = self.clock
        self.struck.kill()
        self.struck.supervise()
        self.struck.clock = None
        self.run.goes_on()
        self.clock.set("-1h")
        yield

    @contextmanager
    def no_descriptors(self) -> Iterator[None]:
        """It has none left, not even between those that it holds."""
        before = {}
        for process in self.processes():
            held = {int(path.name) for path in Path(f"/proc/{process.pid}/fd").iterdir()}
            before[process] = process.rlimit(psutil.RLIMIT_NOFILE)
            lowest = min(set(range(len(held) + 1)) - held)
            process.rlimit(psutil.RLIMIT_NOFILE, (lowest, before[process][1]))
        try:
            yield
        finally:
            for process, limits in before.items():
                with suppress(psutil.NoSuchProcess):
                    process.rlimit(psutil.RLIMIT_NOFILE, limits)

    def fault(self, name: str) -> AbstractContextManager[None]:
        faults: dict[str, Callable[[], AbstractContextManager[None]]] = {
            "kill": self.kill,
            "stop": self.stop,
            "disk": self.full_disk,
            "clock": self.wrong_clock,
            "descriptors": self.no_descriptors,
        }
        return faults[name]()


def codes_of(service: str, fault: str) -> dict[str, list[int]]:
    """Exit codes of the struck run's services, and of replay, by the end of a fault."""
    codes: dict[str, list[int]] = {name: [] for name in (*PARTS, "replay")}
    if fault in ("kill", "clock"):
        codes[service] = [-signal.SIGKILL]
    if code := ENDS.get((service, fault)):
        codes["controller"].append(code)
    return codes


@pytest.mark.parametrize(("service", "fault"), STRUCK)
def test_a_struck_run_goes_on_with_its_bits_and_its_neighbour_notices_nothing(
    host: Host, tmp_path: Path, service: str, fault: str
) -> None:
    if fault == "disk" and os.geteuid():
        pytest.skip("needs root, to mount a small disk")
    if fault == "clock":
        host.clock.set("+1h")
        if ahead_s(host.clock) < 3000.0:
            pytest.skip("needs libfaketime, to change the time of day of one process")
    host.replay.codes.clear()
    with ExitStack() as stack:
        homes = {name: tmp_path / name for name in PARTS}
        disk = None
        if fault == "disk":
            homes[service].mkdir()
            disk = stack.enter_context(small_disk(homes[service]))
        brief = (service, fault) in ENDS or (service, fault) == ("replay", "stop")
        run = Run(homes, host.address, patience(1.0 if brief else WAIT_S))
        stack.callback(run.end)
        run.goes_on()
        struck = {**run.parts, "replay": host.replay}[service]
        scene = Scene(run=run, struck=struck, disk=disk, clock=host.clock)
        with scene.fault(fault):
            controller = run.parts["controller"].process
            if (service, fault) in ENDS:
                wait_until(lambda: controller.poll() is not None, what="the controller ends")
            if (service, fault) == ("replay", "stop"):
                run.stalls()  # as the neighbour does
            else:
                host.neighbour.goes_on()
        host.replay.supervise()
        for each in (run, host.neighbour):
            each.goes_on()
        assert {**run.codes, "replay": host.replay.codes} == codes_of(service, fault)
        assert not any(host.neighbour.codes.values())
        host.assert_right(struck=run, neighbour=host.neighbour)
