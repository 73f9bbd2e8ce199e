"""The simulated peers of a run's controllers: learners and collectors."""

from collections.abc import Callable, Coroutine
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from tests.faultlab.simulation.collector import CollectorStream, SimulatedCollector
from tests.faultlab.simulation.controller import SimulatedController
from tests.faultlab.simulation.drawn_faults import DrawnFaults
from tests.faultlab.simulation.learner import LearnerStream, SimulatedLearner
from tests.faultlab.simulation.replay import SimulatedReplay

from fullrank.algorithms import EnvironmentSpec
from fullrank.common.seeding import stream
from fullrank.config.plugins import spec_of
from fullrank.config.tree import RunConfig
from fullrank.runs.events import EventLog
from fullrank.training.worker import probe_of
from fullrank.v1 import controller_pb2 as pb
from fullrank.wiring.plugins import algorithm_of
from fullrank.wiring.training import block_player_of
from fullrank_controller.collectors.keyed_pool import KeyedPool


class Peers:
    """Learners, and after them sybils and collectors.

    Args:
        config: Configuration of the run.
        scratch: Gets the event logs of the learners.
        seed: Key of their draws.
        faults: Faults of their behaviour and of their links.
        replay: Source of the minibatches.
        controller: The present controller, or None.
    """

    def __init__(
        self,
        config: RunConfig,
        scratch: Path,
        *,
        seed: int,
        faults: DrawnFaults,
        replay: SimulatedReplay,
        controller: Callable[[], SimulatedController | None],
    ) -> None:
        self._config, self._scratch, self._seed = config, scratch, seed
        self._faults, self._replay, self._controller = faults, replay, controller
        self._all: list[SimulatedLearner | SimulatedCollector] = []
        self._start_learners()
        self._start_collectors()

    def lives(self) -> list[Coroutine[Any, Any, None]]:
        """What each of them does, for ever."""
        return [peer.run() for peer in self._all]

    def cut(self) -> None:
        """Break the stream of one of them."""
        number = int(self._faults.draws.integers(len(self._all)))
        collector = number - self._config.learners - self._faults.sybils
        name = f"learner {number}" if collector < 0 else f"collector {collector}"
        self._faults.record(f"{name} disconnected")
        self._all[number].disconnect()

    def disconnect(self) -> None:
        """Break all streams."""
        for peer in self._all:
            peer.disconnect()

    def _start_learners(self) -> None:
        environment = spec_of(self._config)
        honest = numerics_of(self._config, environment)
        forged = pb.Ready(fingerprint="forged", probe=honest.probe, stable=True)
        if self._faults.sybils:
            self._faults.record(f"{self._faults.sybils} sybils claim another numeric fingerprint")
        for number in range(self._config.learners + self._faults.sybils):
            sybil = number >= self._config.learners
            config = replace(self._config, seed=self._config.seed + sybil)  # other updates
            learner = SimulatedLearner(
                connect=partial(self._connect, number),
                algorithm=algorithm_of(config, environment),
                seed=config.seed,
                replay=self._replay,
                behaviour=partial(self._faults.learner_behaviour, number),
                draws=stream(self._seed, "learner", number),
                ready=forged if sybil else honest,
                event_log=EventLog(self._scratch, f"learner-{number}"),
                domain=f"host-{number}" if self._config.audit.byzantine else "",
            )
            self._all.append(learner)

    def _start_collectors(self) -> None:
        environment = spec_of(self._config)
        sections = algorithm_of(self._config, environment).problem.sections
        for number in range(self._config.collectors.count):
            collector = SimulatedCollector(
                connect=partial(self._connect_collector, number),
                player=block_player_of(self._config, environment),
                replay=self._replay,
                sections=sections,
                behaviour=partial(self._faults.collector_behaviour, number),
                draws=stream(self._seed, "collector", number),
                ready=numerics_of(self._config, environment),
            )
            self._all.append(collector)

    def _connect(self, learner: int) -> LearnerStream | None:
        controller = self._controller()
        return controller.connect(self._faults.links[learner]) if controller else None

    def _connect_collector(self, collector: int) -> tuple[CollectorStream, KeyedPool] | None:
        controller, faults = self._controller(), self._faults.collector_links[collector]
        return controller.connect_collector(faults) if controller else None


def numerics_of(config: RunConfig, environment: EnvironmentSpec) -> pb.Ready:
    """Return the numerics that an honest learner of this process reports."""
    algorithm = algorithm_of(config, environment)
    digests = probe_of(algorithm, environment.agents, seed=config.seed).digests
    return pb.Ready(fingerprint=algorithm.gradients.fingerprint(), probe=digests, stable=True)
