"""One controller of a rehearsed run, from its start to its end: the service without its network."""

import asyncio
import math
from pathlib import Path
from typing import Any

from fullrank.config import RunConfig
from fullrank.history import Began
from fullrank.journal import Journal
from fullrank.wiring import training_of
from fullrank_controller.auditing import Auditing
from fullrank_controller.driver import Driver
from fullrank_controller.rehearsal.replay import RehearsedReplay
from fullrank_controller.rehearsal.wire import Line, Weather
from fullrank_controller.roster import Roster
from fullrank_controller.run_directory import hold
from fullrank_controller.server import journalled_in, new_run, repeatable, restore, save_run
from fullrank_controller.servicer import ControllerServicer
from fullrank_controller.watchdog import Watchdog


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
        checkpoint = restore(self._directory, self.training)
        committed = checkpoint.iteration + 1 if checkpoint else 0
        self._head = checkpoint.facts["replay_head"] if checkpoint else 0
        entries = journalled_in(self._directory, committed)
        self._repeated = repeatable(entries)
        self._run = run = new_run(config, self._directory, self.training, "", Roster())
        run.committed = committed
        resumes_at = committed + len(self._repeated)
        known = committed + len(entries)
        run.notebook.note(Began(run=run.name, term=run.term, known=known, resumes_at=resumes_at))
        self._journal = Journal(
            self._directory.journal,
            term=self._directory.term,
            first=resumes_at,
            confirm=self._directory.confirm,
        )
        client: Any = replay.client()
        watchdog = Watchdog(  # never entered: no clock runs here that could show what is stuck
            run_dir / "stacks.txt", where=run.whereabouts, least_s=math.inf, most_s=math.inf
        )
        self._driver = Driver(
            config,
            run,
            self.training,
            client,
            journal=self._journal,
            auditing=Auditing(config, run, self.training, client, self._directory),
            publish=lambda record: None,
            checkpoint=lambda head: save_run(
                self._directory, config, run, self.training, journal=self._journal, head=head
            ),
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
            await self._driver.drive(head=self._head, journalled=self._repeated)
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
        self._run.notebook.close()
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
