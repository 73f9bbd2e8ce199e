"""A run in virtual time on machines that come and go: the service's controller, simulated learners.

Controller, rounds, membership, hedging, journal and checkpoints are the services' own code; a
unit's computing time is given, and its update is a toy whose bits change with any input.
"""

import asyncio
import logging
import math
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tests.faultlab.capacity import Capacity
from tests.faultlab.simulation import toy_algorithm  # noqa: F401  registers the algorithm
from tests.faultlab.simulation.controller import SimulatedController
from tests.faultlab.simulation.learner import LearnerBehaviour, LearnerStream, SimulatedLearner
from tests.faultlab.simulation.link import LinkFaults
from tests.faultlab.simulation.machines import Machines
from tests.faultlab.simulation.peers import numerics_of
from tests.faultlab.simulation.replay import SimulatedReplay
from tests.faultlab.simulation.virtual_loop import VirtualLoop

from fullrank.common.seeding import stream
from fullrank.config.layers import load
from fullrank.config.plugins import spec_of
from fullrank.config.tree import RunConfig
from fullrank.local import LocalRun
from fullrank.runs.events import EventLog
from fullrank.runs.record import IterationRecord
from fullrank.v1 import controller_pb2 as pb
from fullrank.wiring.plugins import algorithm_of

HEDGED = ("code.name=uncoded", "controller.undecodable=hedge")
"""No code, and idle learners compute the units of those that went."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """An iteration, and what a machine needs."""

    units: int
    """M, computed in every iteration."""
    unit_s: float
    start_s: float
    """From a machine's coming until its learner dials."""


@dataclass(slots=True, kw_only=True)
class Played:
    """A simulated run."""

    digests: list[str] = field(default_factory=list)
    """Digest of each committed update."""
    committed_s: list[float] = field(default_factory=list)
    """Virtual time of each commit."""


def configuration(work: Work, learners: int, settings: Sequence[str], iterations: int) -> RunConfig:
    overrides = [
        f"iterations={iterations}",
        f"learners={learners}",
        f"environment.agents={work.units}",
        "algorithm.name=toy",
        "collect.lag=1",
        "collect.steps=1",
        "collect.warmup=8",
        "collect.warmup_copies=2",
        "environment.copies=1",
        "replay.capacity=64",
        "checkpoint.every=1000",
        "checkpoint.keep=1",
        *settings,
    ]
    return load(None, environ={}, overrides=overrides).check().config


class Learner(SimulatedLearner):
    """Computes its rows one after the other, and takes its time for each unit."""

    unit_s = 0.0

    async def _work(self, stream: LearnerStream, learner: int, assignment: pb.Assignment) -> None:
        for row in assignment.rows:
            alone = pb.Assignment()
            alone.CopyFrom(assignment)
            del alone.rows[:]
            alone.rows.append(row)
            await super()._work(stream, learner, alone)

    def computing_s(self, assignment: pb.Assignment, behaviour: LearnerBehaviour) -> float:
        """Return the units' computing time."""
        return self.unit_s * sum(len(row.units) for row in assignment.rows)

    def _contribution(
        self, learner: int, assignment: pb.Assignment, behaviour: LearnerBehaviour
    ) -> list[pb.LearnerMessage]:
        *reports, header, vector = super()._contribution(learner, assignment, behaviour)
        header.coded.compute_s = self.computing_s(assignment, behaviour)
        return [*reports, header, vector]


class Fleet:
    """The learners of a run, one a machine."""

    def __init__(
        self,
        config: RunConfig,
        work: Work,
        *,
        controller: SimulatedController,
        replay: SimulatedReplay,
        scratch: Path,
    ) -> None:
        self._config, self._work, self._controller = config, work, controller
        self._replay, self._scratch = replay, scratch
        self._environment = spec_of(config)
        self._ready = numerics_of(config, self._environment)
        self._running: dict[int, asyncio.Task[None]] = {}
        self._made = 0

    async def follow(self, capacity: Capacity) -> None:
        """Start and lose learners as their machines come and go."""
        clock = asyncio.get_running_loop().time
        for machine in range(capacity.machines):
            self._begin(machine, after_s=0.0)
        for change in capacity.changes:
            await asyncio.sleep(change.at_s - clock())
            if change.present:
                self._begin(change.machine, after_s=self._work.start_s)
            else:
                self._running.pop(change.machine).cancel()

    def _begin(self, machine: int, *, after_s: float) -> None:
        self._running[machine] = asyncio.create_task(self._live(after_s))

    async def _live(self, after_s: float) -> None:
        """A machine's life. Where it ends, nothing more is heard of it, no end of its stream."""
        await asyncio.sleep(after_s)
        number, self._made = self._made, self._made + 1
        faults = LinkFaults(draws=stream(self._config.seed, "line", number), delay_s=0.001)
        learner = Learner(
            connect=partial(self._connect, faults),
            algorithm=algorithm_of(self._config, self._environment),
            seed=self._config.seed,
            replay=self._replay,
            behaviour=lambda iteration: LearnerBehaviour.OK,
            draws=stream(self._config.seed, "learner", number),
            ready=self._ready,
            event_log=EventLog(self._scratch, f"learner-{number}"),
        )
        learner.unit_s = self._work.unit_s
        try:
            async with asyncio.TaskGroup() as life:
                life.create_task(learner.run())
                life.create_task(self._beat(learner))
        finally:
            faults.partitioned_until = math.inf
            learner.event_log.close()

    def _connect(self, faults: LinkFaults) -> LearnerStream:
        return self._controller.connect(faults)

    async def _beat(self, learner: SimulatedLearner) -> None:
        while True:
            await asyncio.sleep(self._config.controller.heartbeat_s)
            self._controller.heard(learner.lease)


def play(capacity: Capacity, work: Work, *, settings: Sequence[str] = HEDGED) -> Played:
    """Train on the machines until their end.

    Args:
        capacity: The machines.
        work: What an iteration needs.
        settings: Code, and the answer to late learners.
    """
    most = 10 + int(capacity.end_s * capacity.machines / (work.units * work.unit_s))
    config, played = configuration(work, capacity.machines, settings, most), Played()

    async def train(scratch: Path) -> None:
        loop = asyncio.get_running_loop()

        def publish(record: IterationRecord) -> None:
            if loop.time() <= capacity.end_s:
                played.digests.append(record.update_digest)
                played.committed_s.append(loop.time())

        run_dir = Machines(scratch, config, stream(0, "machines")).next()
        replay = SimulatedReplay(stream(0, "replay"), 0.0, EventLog(scratch, "replay"))
        controller = SimulatedController(config, run_dir, replay, publish=publish)
        fleet = Fleet(config, work, controller=controller, replay=replay, scratch=scratch)
        lives = [asyncio.create_task(each) for each in (controller.serve(), fleet.follow(capacity))]
        await asyncio.wait(lives, timeout=capacity.end_s, return_when=asyncio.FIRST_EXCEPTION)

        for life in lives:
            if life.done():
                life.result()

    memory = Path("/dev/shm")
    with (
        silent(),
        tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as scratch,
        asyncio.Runner(loop_factory=VirtualLoop) as runner,
    ):
        runner.run(train(Path(scratch)))
    return played


def undisturbed(work: Work, learners: int, iterations: int) -> list[str]:
    """Update digests of the run in one process, without learners or a code."""
    config = configuration(work, learners, HEDGED, iterations)
    return [each.update_digest for each in LocalRun(config, coded=False)]


@contextmanager
def silent() -> Iterator[None]:
    """Leave out the log, which would tell of every machine that goes."""
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)
