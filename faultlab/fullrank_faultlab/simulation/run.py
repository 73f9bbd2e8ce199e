"""A simulated run under faults drawn from a seed, in virtual time.

Controllers, rounds, membership, journal and checkpoints are the service's own code; learners,
replay and links are simulated. A failure is reproduced by its seed.
"""

import asyncio
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from fullrank.algorithms.base import layout_of
from fullrank.audit.draws import KEY_BYTES
from fullrank.common.durable import replace_text
from fullrank.common.errors import FullrankError
from fullrank.common.failpoints import Killed, arm
from fullrank.common.seeding import stream
from fullrank.config.tree import RunConfig
from fullrank.environments import AgentSpec
from fullrank.rpc.process import end_process
from fullrank.runs.event_log import EventLog
from fullrank.runs.record import IterationRecord
from fullrank.training.worker import probe, probe_batch
from fullrank.v1 import controller_pb2 as pb
from fullrank.wiring import algorithm_of, block_player_of, environment_of, training_of
from fullrank_controller.collectors.pool import CollectorPool
from fullrank_controller.learners.servicer import ControllerServicer
from fullrank_controller.membership.roster import Roster, expel_silent
from fullrank_controller.persistence.restore import restore
from fullrank_controller.persistence.run_directory import SECRET, hold
from fullrank_controller.prometheus import Totals
from fullrank_controller.rounds.disputes import RolledBack
from fullrank_controller.term import Term, begin, make_network_driver, open_journal
from fullrank_controller.watchdog import Watchdog
from fullrank_faultlab.outcome import FaultOutcome
from fullrank_faultlab.simulation.collector import CollectorStream, SimulatedCollector
from fullrank_faultlab.simulation.drawn_faults import DrawnFaults
from fullrank_faultlab.simulation.learner import LearnerStream, SimulatedLearner
from fullrank_faultlab.simulation.link import LinkFaults, SimulatedStream
from fullrank_faultlab.simulation.replay import SimulatedReplay


class SimulatedController:
    """Locks the run directory and drives the run until it finishes, fails or is killed.

    Args:
        config: Configuration of the run.
        run_dir: Directory of the run.
        replay: The replay service.
        publish: Gets the record of each committed iteration.

    Attributes:
        training: Environments, parameters, optimiser.
    """

    def __init__(
        self,
        config: RunConfig,
        run_dir: Path,
        replay: SimulatedReplay,
        *,
        publish: Callable[[IterationRecord], None] = lambda record: None,
    ) -> None:
        self._streams: list[LearnerStream | CollectorStream] = []
        directory = hold(run_dir, config)
        self.training = training_of(config)
        self._restored = restored = restore(directory, self.training)
        run = begin(config, directory, self.training, restored, replay_address="", roster=Roster())
        client: Any = replay.client()
        self._term = Term(
            config=config,
            directory=directory,
            training=self.training,
            run=run,
            journal=open_journal(directory, restored),
            publish=publish,
            totals=Totals(),
            watchdog=Watchdog(  # never entered: virtual time has no clock to watch
                run_dir / "stacks.txt",
                where=run.position,
                least_s=math.inf,
                most_s=math.inf,
                end=end_process,
            ),
        )
        self._driver = make_network_driver(self._term, client)
        self._servicer = ControllerServicer(run)

    async def serve(self) -> None:
        """Drive the run until it is finished.

        Raises:
            FullrankError: The run failed, or another controller has a later term.
            RolledBack: Wrong iterations are rolled back; another term follows.
            Killed: The process reached the armed failpoint.
        """
        liveness = asyncio.create_task(
            expel_silent(self._term.run.rosters, self._term.config.controller, self._term.watchdog)
        )
        try:
            restored = self._restored
            await self._driver.drive(head=restored.head, journalled=restored.journalled)
        finally:
            liveness.cancel()

    def connect(self, faults: LinkFaults) -> LearnerStream:
        """A stream of a learner to this controller."""
        opened = SimulatedStream(
            self._servicer.Work,
            sent=pb.LearnerMessage,
            received=pb.ControllerMessage,
            faults=faults,
        )
        self._streams.append(opened)
        return opened

    def connect_collector(self, faults: LinkFaults) -> tuple[CollectorStream, CollectorPool]:
        """A stream of a collector to this controller, and the collectors of its term."""
        pool = self._term.run.pool
        assert pool is not None  # the run has collectors
        opened = SimulatedStream(
            self._servicer.Collect,
            sent=pb.CollectorMessage,
            received=pb.CollectorOrder,
            faults=faults,
        )
        self._streams.append(opened)
        return opened, pool

    def release_lock(self) -> None:
        """Release the lock of the run directory, as a faulty disk would; another may begin."""
        self._term.directory.lock.close()

    def kill(self) -> None:
        """Close all files and break all streams, as ``kill -9`` does."""
        self._term.run.event_log.close()
        self._term.journal.close()
        self.release_lock()
        self.training.collector.close()
        for opened in self._streams:
            opened.cut()

    @property
    def position(self) -> str:
        """Progress of the run, for messages."""
        run = self._term.run
        return f"term {run.identity.term}, {run.position()}, {run.progress.message}"


FAULTS_END_S = 6.0
"""End of the faults in virtual time; the run must finish after it."""
HANG_S = 300.0
"""A run that has not finished so many virtual seconds later hangs."""


class SimulatedRun:
    """A run and its injected faults.

    Args:
        config: Configuration of the run.
        run_dir: An empty directory.
        outcome: Its seed keys every draw; faults and violations are added to it.
    """

    def __init__(self, config: RunConfig, run_dir: Path, outcome: FaultOutcome) -> None:
        self._config, self._run_dir, self._outcome = config, run_dir, outcome
        self._faults = DrawnFaults(
            outcome, run_dir, learners=config.learners, collectors=config.collectors.count
        )
        self._replay = SimulatedReplay(
            stream(outcome.seed, "replay"),
            0.2 * self._faults.intensity,
            EventLog(run_dir, "replay"),
        )
        self._peers: list[SimulatedLearner | SimulatedCollector] = []  # learners come first
        self._controller: SimulatedController | None = None
        self._serving: asyncio.Task[None] | None = None
        self._superseded = asyncio.Event()
        self._controllers: list[SimulatedController] = []
        self._permanent: set[asyncio.Task[None]] = set()
        replace_text(run_dir / "run.json", json.dumps({"run": "simulation"}))
        draws = stream(config.seed, "audit_key")  # a schedule is its seed, audits included
        replace_text(run_dir / SECRET, f"{draws.bytes(KEY_BYTES).hex()}\n")

    async def play(self) -> str:
        """Simulate until the run is finished; returns the digest of its parameters."""
        self._start_learners()
        self._start_collectors()
        self._permanent.add(asyncio.create_task(self._inject()))
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

    def _start_learners(self) -> None:
        agents = environment_of(self._config, copies=1).agents
        honest = numerics_of(self._config, agents)
        forged = pb.Ready(fingerprint="forged", probe=honest.probe, stable=True)
        if self._faults.sybils:
            self._faults.record(f"{self._faults.sybils} sybils claim another numeric fingerprint")
        for number in range(self._config.learners + self._faults.sybils):
            sybil = number >= self._config.learners
            config = replace(self._config, seed=self._config.seed + sybil)  # other updates
            learner = SimulatedLearner(
                connect=partial(self._connect, number),
                algorithm=algorithm_of(config, agents),
                seed=config.seed,
                replay=self._replay,
                behaviour=partial(self._faults.behaviour, number),
                draws=stream(self._outcome.seed, "learner", number),
                ready=forged if sybil else honest,
                event_log=EventLog(self._run_dir, f"learner-{number}"),
            )
            self._peers.append(learner)
            self._permanent.add(asyncio.create_task(learner.run()))

    def _start_collectors(self) -> None:
        agents = environment_of(self._config, copies=1).agents
        sections = algorithm_of(self._config, agents).problem.sections
        for number in range(self._config.collectors.count):
            collector = SimulatedCollector(
                connect=partial(self._connect_collector, number),
                player=block_player_of(self._config, agents, state_size=0, masked=False),
                sections=sections,
                conduct=partial(self._faults.conduct, number),
                draws=stream(self._outcome.seed, "collector", number),
                ready=numerics_of(self._config, agents),
            )
            self._peers.append(collector)
            self._permanent.add(asyncio.create_task(collector.run()))

    def _connect(self, learner: int) -> LearnerStream | None:
        controller = self._controller
        return controller.connect(self._faults.links[learner]) if controller else None

    def _connect_collector(self, collector: int) -> tuple[CollectorStream, CollectorPool] | None:
        controller, faults = self._controller, self._faults.collector_links[collector]
        return controller.connect_collector(faults) if controller else None

    async def _serve_term(self) -> str:
        """One controller's term; returns the digest of the parameters of a finished run, or ''."""
        self._faults.arm()
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
            self._faults.record("controller killed")
            self._faults.damage("")
        except Killed as point:
            self._faults.record(f"controller killed at {point}")
            self._faults.damage(str(point))
        except (FullrankError, RolledBack) as error:
            self._faults.record(f"controller ended: {error}")
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

    async def _inject(self) -> None:
        """Inject faults at random times, then end them all."""
        kinds = (self._kill, self._supersede, *(self._cut, self._faults.partition) * 2)
        while True:
            await asyncio.sleep(self._faults.draws.exponential(0.8))
            if asyncio.get_running_loop().time() > FAULTS_END_S:
                break
            kinds[int(self._faults.draws.integers(len(kinds)))]()
        self._faults.end()
        for peer in self._peers:
            peer.disconnect()

    def _kill(self) -> None:
        if self._serving is not None:
            self._serving.cancel()

    def _supersede(self) -> None:
        """Start another controller while the present one goes on."""
        self._faults.record("controller superseded")
        self._superseded.set()

    def _cut(self) -> None:
        peers = self._peers
        number = int(self._faults.draws.integers(len(peers)))
        collector = number - self._config.learners - self._faults.sybils
        name = f"learner {number}" if collector < 0 else f"collector {collector}"
        self._faults.record(f"{name} disconnected")
        peers[number].disconnect()


def numerics_of(config: RunConfig, agents: Sequence[AgentSpec]) -> pb.Ready:
    """Return the numerics that an honest learner of this process reports."""
    algorithm = algorithm_of(config, agents)
    problem, gradients = algorithm.problem, algorithm.gradients
    batch = probe_batch(problem, layout_of(agents, masked=problem.masked), seed=config.seed)
    digests = probe(problem, gradients, batch).digests
    return pb.Ready(fingerprint=gradients.fingerprint(), probe=digests, stable=True)


def _age(task: "asyncio.Task[object]") -> int:
    return int(task.get_name().removeprefix("Task-"))


def _retrieve_result(serving: "asyncio.Task[None]") -> None:
    """Retrieve the result of a superseded controller, which may fail in any way."""
    if not serving.cancelled():
        serving.exception()
