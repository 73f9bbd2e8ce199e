"""A simulated controller: the service's own code without its network."""

import asyncio
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fullrank.config.tree import RunConfig
from fullrank.runs.record import IterationRecord
from fullrank.wiring import training_of
from fullrank_controller.learners.servicer import ControllerServicer
from fullrank_controller.membership.roster import Roster, expel_silent
from fullrank_controller.persistence.restore import restore
from fullrank_controller.persistence.run_directory import hold
from fullrank_controller.term import begin, make_driver, open_journal
from fullrank_controller.watchdog import Watchdog
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
        self._streams: list[SimulatedStream] = []
        self._directory = hold(run_dir, config)
        self.training = training_of(config)
        self._restored = restored = restore(self._directory, self.training)
        self._run = run = begin(
            config, self._directory, self.training, restored, replay_address="", roster=Roster()
        )
        self._journal = open_journal(self._directory, restored)
        client: Any = replay.client()
        self._config = config
        self._watchdog = Watchdog(  # never entered: virtual time has no clock to watch
            run_dir / "stacks.txt", where=run.position, least_s=math.inf, most_s=math.inf
        )
        self._driver = make_driver(
            config,
            self._directory,
            self.training,
            run,
            client,
            journal=self._journal,
            publish=publish,
            watchdog=self._watchdog,
        )
        self._servicer = ControllerServicer(run)

    async def serve(self) -> None:
        """Drive the run until it is finished.

        Raises:
            FullrankError: The run failed, or another controller has a later term.
            RolledBack: Wrong iterations are rolled back; another term follows.
            Killed: The process reached the armed failpoint.
        """
        liveness = asyncio.create_task(
            expel_silent(self._run.roster, self._config.controller, self._watchdog)
        )
        try:
            restored = self._restored
            await self._driver.drive(head=restored.head, journalled=restored.journalled)
        finally:
            liveness.cancel()

    def connect(self, faults: LinkFaults) -> SimulatedStream:
        """A stream of a learner to this controller."""
        stream = SimulatedStream(self._servicer, faults)
        self._streams.append(stream)
        return stream

    def release_lock(self) -> None:
        """Release the lock of the run directory, as a faulty disk would; another may begin."""
        self._directory.lock.close()

    def kill(self) -> None:
        """Close all files and break all streams, as ``kill -9`` does."""
        self._run.event_log.close()
        self._journal.close()
        self.release_lock()
        self.training.collector.close()
        for stream in self._streams:
            stream.cut()

    @property
    def position(self) -> str:
        """Progress of the run, for messages."""
        run = self._run
        return f"term {run.identity.term}, {run.position()}, {run.progress.message}"
