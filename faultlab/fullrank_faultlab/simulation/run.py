"""A simulated run under faults drawn from a seed, in virtual time.

Controllers, rounds, membership, journal and checkpoints are the service's own code; learners,
replay and links are simulated. A failure is reproduced by its seed.
"""

import asyncio
import json
import os
from functools import partial
from pathlib import Path

from fullrank.common.durable import replace_text
from fullrank.common.errors import FullrankError
from fullrank.common.failpoints import Killed, arm
from fullrank.common.seeding import stream
from fullrank.config import RunConfig
from fullrank.runs.checkpoint import STATE, saved
from fullrank.runs.event_log import EventLog
from fullrank.wiring import algorithm_of, environment_of
from fullrank_controller.rounds.disputes import RolledBack
from fullrank_faultlab.outcome import Outcome
from fullrank_faultlab.simulation.controller import SimulatedController
from fullrank_faultlab.simulation.learner import Behaviour, SimulatedLearner
from fullrank_faultlab.simulation.link import LinkFaults, SimulatedStream
from fullrank_faultlab.simulation.replay import SimulatedReplay

FAULTS_END_S = 6.0
"""End of the faults in virtual time; the run must finish after it."""
HANG_S = 300.0
"""A run that has not finished so many virtual seconds later hangs."""
FAILPOINTS = (
    "term.raised",
    "warmup.played",
    "transitions.played",
    "transitions.appended",
    "rows.written",
    "row.assigned",
    "row.arrived",
    "round.decided",
    "journal.written",
    "journal.synced",
    "update.applied",
    "iteration.published",
    "iteration.repeated",
    "checkpoint.state_written",
    "checkpoint.complete",
    "checkpoint.renamed",
    "checkpoint.pruned",
    "journal.pruned",
)
FAULTY = 0
"""The one learner that may compute wrong vectors and whose messages may be corrupted."""
WRONG = (Behaviour.WRONG_VECTOR, Behaviour.WRONG_DIGEST)
HONEST = tuple(behaviour for behaviour in Behaviour if behaviour not in WRONG)


class SimulatedRun:
    """A run and its injected faults.

    Args:
        config: Configuration of the run.
        run_dir: An empty directory.
        outcome: Its seed keys every draw; faults and violations are added to it.
    """

    def __init__(self, config: RunConfig, run_dir: Path, outcome: Outcome) -> None:
        self._config, self._run_dir, self._outcome = config, run_dir, outcome
        self._draws = stream(outcome.seed, "misfortunes")
        self._intensity = self._draws.random()
        """Scale of all fault probabilities, in [0, 1)."""
        self._replay = SimulatedReplay(
            stream(outcome.seed, "replay"), 0.2 * self._intensity, EventLog(run_dir, "replay")
        )
        self._link_faults = [self._draw_link_faults(learner) for learner in range(config.learners)]
        self._learners: list[SimulatedLearner] = []
        self._controller: SimulatedController | None = None
        self._serving: asyncio.Task[None] | None = None
        self._superseded = asyncio.Event()
        self._controllers: list[SimulatedController] = []
        self._permanent: set[asyncio.Task[None]] = set()
        self._faults_ended = self._checkpoint_corrupted = False
        replace_text(run_dir / "run.json", json.dumps({"run": "simulation"}))

    def _draw_link_faults(self, learner: int) -> LinkFaults:
        draws = stream(self._outcome.seed, "weather", learner)
        intensity = self._intensity * draws.random(3) * (draws.random(3) < 0.5)
        return LinkFaults(
            draws=draws,
            duplicated=0.1 * intensity[0],
            reordered=0.1 * intensity[1],
            corrupted=0.1 * intensity[2] if learner == FAULTY else 0.0,
        )

    def _behaviour(self, learner: int) -> Behaviour:
        draws = self._link_faults[learner].draws
        if self._faults_ended or draws.random() > 0.5 * self._intensity:
            return Behaviour.OK
        choices = tuple(Behaviour) if learner == FAULTY else HONEST
        return choices[int(draws.integers(len(choices)))]

    async def play(self) -> str:
        """Simulate until the run is finished; returns the digest of its parameters."""
        self._start_learners()
        self._permanent.add(asyncio.create_task(self._inject()))
        try:
            async with asyncio.timeout(FAULTS_END_S + HANG_S):
                while True:
                    if finished := await self._serve_term():
                        return finished
                    await asyncio.sleep(self._draws.exponential(0.3))
        except TimeoutError:
            where = self._controller.position if self._controller else "no controller"
            self._outcome.violations.append(f"live: the run does not end: {where}")
            return ""

    def _start_learners(self) -> None:
        agents = environment_of(self._config, copies=1).agents
        for number in range(self._config.learners):
            learner = SimulatedLearner(
                connect=partial(self._connect, number),
                algorithm=algorithm_of(self._config, agents),
                seed=self._config.seed,
                replay=self._replay,
                behaviour=partial(self._behaviour, number),
                draws=stream(self._outcome.seed, "learner", number),
                event_log=EventLog(self._run_dir, f"learner-{number}"),
            )
            self._learners.append(learner)
            self._permanent.add(asyncio.create_task(learner.run()))

    def _connect(self, learner: int) -> SimulatedStream | None:
        return self._controller.connect(self._link_faults[learner]) if self._controller else None

    async def _serve_term(self) -> str:
        """One controller's term; returns the digest of the parameters of a finished run, or ''."""
        if not self._faults_ended and self._draws.random() < 0.8:
            arm(str(self._draws.choice(FAILPOINTS)), int(self._draws.integers(1, 5)))
        try:
            self._controller = controller = SimulatedController(
                self._config, self._run_dir, self._replay
            )
            self._controllers.append(controller)
            self._serving = asyncio.create_task(controller.serve())
            self._superseded.clear()
            superseded = asyncio.create_task(self._superseded.wait())
            await asyncio.wait({self._serving, superseded}, return_when=asyncio.FIRST_COMPLETED)
            if self._superseded.is_set() and not self._serving.done():
                self._serving.add_done_callback(_retrieve_result)
                controller.release_lock()
                return ""
            if not self._serving.cancelled():
                self._serving.result()
                return controller.training.trainer.digest()
            self._record("controller killed")
            self._damage("")
        except Killed as point:
            self._record(f"controller killed at {point}")
            self._damage(str(point))
        except (FullrankError, RolledBack) as error:
            self._record(f"controller ended: {error}")
        finally:
            self._controller = None
        await self._cleanup()
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

    def _damage(self, point: str) -> None:
        """Inject the file damage that a crash of the machine may cause."""
        if point == "journal.written":  # and not synced
            segments = (self._run_dir / "journal").iterdir()
            newest = max(segments, key=lambda path: path.stem.partition("-")[::-1])
            size = newest.stat().st_size - int(self._draws.integers(1, 40))
            os.truncate(newest, size)
            self._record(f"{newest.name} truncated")
        kept = saved(self._run_dir / "checkpoints")
        if len(kept) > 1 and not self._checkpoint_corrupted and self._draws.random() < 0.2:
            self._checkpoint_corrupted = True
            content = bytearray((kept[0] / STATE).read_bytes())
            content[int(self._draws.integers(len(content)))] ^= 1
            (kept[0] / STATE).write_bytes(content)
            self._record(f"checkpoint {kept[0].name} corrupted")

    async def _inject(self) -> None:
        """Inject faults at random times, then end them all."""
        kinds = (self._kill, self._supersede, *(self._cut, self._partition) * 2)
        while True:
            await asyncio.sleep(self._draws.exponential(0.8))
            if asyncio.get_running_loop().time() > FAULTS_END_S:
                break
            kinds[int(self._draws.integers(len(kinds)))]()
        self._record("faults end")
        self._faults_ended = True
        arm("", 0)
        for faults in self._link_faults:
            faults.clear()
        for learner in self._learners:
            learner.disconnect()

    def _kill(self) -> None:
        if self._serving is not None:
            self._serving.cancel()

    def _supersede(self) -> None:
        """Start another controller while the present one goes on."""
        self._record("controller superseded")
        self._superseded.set()

    def _cut(self) -> None:
        number = int(self._draws.integers(len(self._learners)))
        self._record(f"learner {number} disconnected")
        self._learners[number].disconnect()

    def _partition(self) -> None:
        """Partition some learners from the controller for a while."""
        until = asyncio.get_running_loop().time() + self._draws.exponential(3.0)
        for number, faults in enumerate(self._link_faults):
            if self._draws.random() < 0.5:
                self._record(f"learner {number} partitioned until {until:.1f}")
                faults.partitioned_until = until

    def _record(self, fault: str) -> None:
        now = asyncio.get_running_loop().time()
        self._outcome.faults.append(f"{now:7.3f} {fault}")


def _age(task: "asyncio.Task[object]") -> int:
    return int(task.get_name().removeprefix("Task-"))


def _retrieve_result(serving: "asyncio.Task[None]") -> None:
    """Retrieve the result of a superseded controller, which may fail in any way."""
    if not serving.cancelled():
        serving.exception()
