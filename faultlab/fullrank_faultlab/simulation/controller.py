"""One controller of a rehearsed run, from its start to its end: the service without its network."""

import asyncio
import math
from pathlib import Path
from typing import Any

from fullrank.config import RunConfig
from fullrank.wiring import training_of
from fullrank_controller.learners.servicer import ControllerServicer
from fullrank_controller.membership.roster import Roster
from fullrank_controller.persistence.restore import restore
from fullrank_controller.persistence.run_directory import hold
from fullrank_controller.term import begin, driver_of, open_journal
from fullrank_controller.watchdog import Watchdog
from fullrank_faultlab.rehearsal.replay import RehearsedReplay
from fullrank_faultlab.rehearsal.wire import Line, Weather


class Office:
    """Holds the run directory and drives the run until it is finished, fails or is killed.

    Args:
        config: The run's.
        run_dir: Its directory.
        replay: The replay service.

    Attributes:
        training: Environments, parameters, optimiser.
    """

    def __init__(self, config: RunConfig, run_dir: Path, replay: RehearsedReplay) -> None:
        self._lines: list[Line] = []
        self._directory = hold(run_dir, config)
        self.training = training_of(config)
        self._restored = restored = restore(self._directory, self.training)
        self._run = run = begin(
            config, self._directory, self.training, restored, replay_address="", roster=Roster()
        )
        self._journal = open_journal(self._directory, restored)
        client: Any = replay.client()
        watchdog = Watchdog(  # never entered: no clock runs here that could show what is stuck
            run_dir / "stacks.txt", where=run.whereabouts, least_s=math.inf, most_s=math.inf
        )
        self._driver = driver_of(
            config,
            self._directory,
            self.training,
            run,
            client,
            journal=self._journal,
            publish=lambda record: None,
            watchdog=watchdog,
        )
        self._servicer = ControllerServicer(run)

    async def serve(self) -> None:
        """Until the run is finished.

        Raises:
            FullrankError: The run failed, or another controller followed.
            RolledBack: What was wrong is taken back; another term follows.
            Killed: At a failpoint.
        """
        watching = asyncio.create_task(self._driver.watch())
        try:
            restored = self._restored
            await self._driver.drive(head=restored.head, journalled=restored.journalled)
        finally:
            watching.cancel()

    def dial(self, weather: Weather) -> Line:
        """A learner's stream to this controller."""
        line = Line(self._servicer, weather)
        self._lines.append(line)
        return line

    def forget_lock(self) -> None:
        """As a disk does that forgets locks: another controller may begin."""
        self._directory.lock.close()

    def vanish(self) -> None:
        """Write nothing more, and lose every connection."""
        self._run.event_log.close()
        self._journal.close()
        self.forget_lock()
        self.training.close()
        for line in self._lines:
            line.cut()

    @property
    def position(self) -> str:
        """Where the run stands, for people."""
        run = self._run
        return f"term {run.term}, {run.committed} of {run.iterations} committed, {run.message}"
