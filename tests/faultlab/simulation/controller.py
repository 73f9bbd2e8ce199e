"""A simulated controller: the service's own code, without a server."""

import asyncio
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.faultlab.simulation.collector import CollectorStream
from tests.faultlab.simulation.learner import LearnerStream
from tests.faultlab.simulation.link import LinkFaults, SimulatedStream
from tests.faultlab.simulation.replay import SimulatedReplay

from fullrank.config.tree import RunConfig
from fullrank.host.process import end_process
from fullrank.runs.record import METRICS, IterationRecord
from fullrank.sinks import JsonLines
from fullrank.v1 import controller_pb2 as pb
from fullrank.wiring.training import lag_of, training_of
from fullrank_controller.collectors.keyed_pool import KeyedPool
from fullrank_controller.learners.servicer import ControllerServicer
from fullrank_controller.membership.roster import expel_silent
from fullrank_controller.persistence.restore import restore
from fullrank_controller.persistence.run_directory import hold
from fullrank_controller.persistence.store import RunStore
from fullrank_controller.prometheus import Totals
from fullrank_controller.server import make_network_driver
from fullrank_controller.term import Term, begin, open_journal
from fullrank_controller.watchdog import Watchdog


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
        run = begin(config, directory, self.training, restored, replay_address="")
        client: Any = replay.client()
        self._journal = open_journal(directory, restored)
        self._metrics = JsonLines(run_dir / METRICS)
        self._term = Term(
            config=config,
            directory=directory,
            training=self.training,
            run=run,
            store=RunStore(
                directory,
                self.training,
                journal=self._journal,
                event_log=run.event_log,
                metrics=self._metrics,
                publish=publish,
                keep=config.checkpoint.keep,
                lag_s=lag_of(config, self.training),
            ),
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
        self._servicer = ControllerServicer(self._term, self._driver, asyncio.Event())

    async def serve(self) -> None:
        """Drive the run until it is finished.

        Raises:
            FullrankError: The run failed, or another controller has a later term.
            Condemned: Wrong iterations do not stand; another term follows.
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

    def heard(self, lease: bytes) -> None:
        """Renew the lease of a learner."""
        now = asyncio.get_running_loop().time()
        for roster in self._term.run.rosters:
            roster.heard(lease, now=now)

    def connect_collector(self, faults: LinkFaults) -> tuple[CollectorStream, KeyedPool]:
        """A stream of a collector to this controller, and the collectors of its term."""
        pool = self._term.run.collectors
        assert isinstance(pool, KeyedPool)
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
        self._journal.close()
        self._metrics.close()
        self.release_lock()
        self.training.collector.close()
        for opened in self._streams:
            opened.cut()

    @property
    def position(self) -> str:
        """Progress of the run, for messages."""
        run = self._term.run
        return f"term {run.identity.term}, {run.position()}, {run.progress.message}"
