"""A simulated run under faults drawn from a seed, in virtual time.

Controllers, rounds, membership, journal and checkpoints are the service's own code; learners,
replay and links are simulated. A failure is reproduced by its seed.
"""

import asyncio
from pathlib import Path

from tests.faultlab.outcome import FaultOutcome
from tests.faultlab.simulation.controller import SimulatedController
from tests.faultlab.simulation.drawn_faults import DrawnFaults
from tests.faultlab.simulation.machines import Machines
from tests.faultlab.simulation.peers import Peers
from tests.faultlab.simulation.replay import SimulatedReplay

from fullrank.common.errors import FullrankError, RunDirectoryInUse
from fullrank.common.failpoints import Killed, arm
from fullrank.common.seeding import stream
from fullrank.config.tree import RunConfig
from fullrank.runs.events import EventLog
from fullrank_controller.persistence.run_directory import hold
from fullrank_controller.rounds.disputes import Condemned

FAULTS_END_S = 6.0
"""End of the faults in virtual time; the run must finish after it."""
HANG_S = 300.0
"""A run that has not finished so many virtual seconds later hangs."""


class SimulatedRun:
    """A run and its injected faults.

    Args:
        config: Configuration of the run.
        scratch: An empty directory.
        outcome: Its seed keys every draw; faults and violations are added to it.
    """

    def __init__(self, config: RunConfig, scratch: Path, outcome: FaultOutcome) -> None:
        self._config, self._scratch, self._outcome = config, scratch, outcome
        self._faults = DrawnFaults(outcome, config)
        self._machines = Machines(scratch, config, stream(outcome.seed, "machines"))
        self._replay = SimulatedReplay(
            stream(outcome.seed, "replay"),
            0.2 * self._faults.intensity,
            EventLog(scratch, "replay"),
        )
        self._controller: SimulatedController | None = None
        self._serving: asyncio.Task[None] | None = None
        self._superseded = asyncio.Event()
        self._controllers: list[SimulatedController] = []
        self._permanent: set[asyncio.Task[None]] = set()

    async def play(self) -> str:
        """Simulate until the run is finished; returns the digest of its parameters."""
        peers = Peers(
            self._config,
            self._scratch,
            seed=self._outcome.seed,
            faults=self._faults,
            replay=self._replay,
            controller=lambda: self._controller,
        )
        lives = (*peers.lives(), self._inject(peers), self._try_second_controllers())
        self._permanent.update([asyncio.create_task(life) for life in lives])
        try:
            async with asyncio.timeout(FAULTS_END_S + HANG_S):
                while True:
                    if finished := await self._serve_term():
                        return finished
                    await asyncio.sleep(self._faults.draws.exponential(0.3))
        except TimeoutError:
            where = self._controller.position if self._controller else "no controller"
            self._outcome.violations.append(f"live: the run does not end: {where}")
            return ""
        finally:
            arm("", 0)  # a run that ends before its faults has not reached the last failpoint

    async def _serve_term(self) -> str:
        """One controller's term; returns the digest of the parameters of a finished run, or ''."""
        self._faults.arm()
        try:
            run_dir = self._machines.next()
            self._controller = controller = SimulatedController(self._config, run_dir, self._replay)
            self._controllers.append(controller)
            self._machines.present = run_dir
            self._serving = asyncio.create_task(controller.serve())
            self._superseded.clear()
            superseded = asyncio.create_task(self._superseded.wait())
            await asyncio.wait({self._serving, superseded}, return_when=asyncio.FIRST_COMPLETED)
            if self._superseded.is_set() and not self._serving.done():
                self._serving.add_done_callback(_retrieve_result)
                if not self._machines.moving:
                    controller.release_lock()
                return ""
            if not self._serving.cancelled():
                self._serving.result()
                return controller.training.trainer.digest()
            self._faults.record("controller killed")
            self._faults.damage(self._machines.present, "")
        except Killed as point:
            self._faults.record(f"controller killed at {point}")
            self._faults.damage(self._machines.present, str(point))
        except (FullrankError, Condemned) as error:
            self._faults.record(f"controller ended: {error}")
        finally:
            self._controller = None
        await self._cleanup()
        self._machines.remove_lost()
        return ""

    async def _cleanup(self) -> None:
        """Remove all traces of killed controllers but their files, as ``kill -9`` does."""
        for controller in self._controllers:
            controller.kill()
        self._controllers.clear()
        this = asyncio.current_task()
        tasks = [task for task in asyncio.all_tasks() - self._permanent if task is not this]
        for task in sorted(tasks, key=_age):  # sets have no stable order
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _inject(self, peers: Peers) -> None:
        """Inject faults at random times, then end them all."""
        kinds = [self._kill, self._supersede, *[peers.cut, self._faults.partition] * 2]
        if self._config.store.url:
            kinds += [self._lose_machine, self._follow, self._return] * 2
        while True:
            await asyncio.sleep(self._faults.draws.exponential(0.8))
            if asyncio.get_running_loop().time() > FAULTS_END_S:
                break
            kinds[int(self._faults.draws.integers(len(kinds)))]()
        self._faults.end()
        peers.disconnect()

    def _kill(self) -> None:
        if self._serving is not None:
            self._serving.cancel()

    def _supersede(self) -> None:
        """Start another controller while the present one goes on."""
        self._faults.record("controller superseded")
        self._superseded.set()

    def _lose_machine(self) -> None:
        if self._controller is not None:
            self._faults.record("the controller's machine is lost")
            self._machines.lose()
            self._kill()

    def _follow(self) -> None:
        """Let a controller on another machine begin while the present one goes on."""
        self._faults.record("another machine goes on")
        self._machines.fail_over()
        self._superseded.set()

    def _return(self) -> None:
        """Let the controller begin next on a machine that the run may have left."""
        self._faults.record("a machine returns")
        self._machines.go_back()
        self._kill()

    async def _try_second_controllers(self) -> None:
        """Begin controllers on the directory of the one that serves, which must be refused."""
        draws = stream(self._outcome.seed, "second")
        while asyncio.get_running_loop().time() < FAULTS_END_S:
            await asyncio.sleep(draws.exponential(3.0))
            if self._controller is None:
                continue
            self._faults.record("a second controller begins")
            try:
                hold(self._machines.present, self._config).lock.close()
            except RunDirectoryInUse:
                continue
            self._outcome.violations.append("once: a second controller holds the run directory")


def _age(task: "asyncio.Task[object]") -> int:
    return int(task.get_name().removeprefix("Task-"))


def _retrieve_result(serving: "asyncio.Task[None]") -> None:
    """Retrieve the result of a superseded controller, which may fail in any way."""
    if not serving.cancelled():
        serving.exception()
