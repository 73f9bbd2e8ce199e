"""Follower of a run: polls its monitor, redials patiently, and plays episodes on demand."""

import asyncio
import logging
import os
import sys
import tempfile
from asyncio.subprocess import DEVNULL, PIPE
from contextlib import aclosing, suppress
from math import ceil
from pathlib import Path
from typing import NoReturn

from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception_type,
    wait_random_exponential,
)

from fullrank.common.errors import (
    CheckpointUnusable,
    ConfigError,
    FullrankError,
    NotFound,
    ServiceLost,
    of_exit_code,
)
from fullrank.common.foreign import brief, read_regular
from fullrank.config.plugins import complete_stragglers
from fullrank.config.toml import read_config
from fullrank.config.tree import PluginSettings, RunConfig, TlsSettings
from fullrank.environments.base import is_adapted
from fullrank.host.run_directory import is_address
from fullrank.net.monitor import AsyncMonitor, monitor_of
from fullrank.net.status import CodeInUse, RunStatus, ended_status
from fullrank.runs.evaluations import EVALUATIONS, read_evaluations
from fullrank.runs.identity import CHECKPOINTS, run_of
from fullrank.runs.record import METRICS, IterationRecord, read_records
from fullrank.stragglers import DelayModel, delay_models
from fullrank.stragglers.additive import NoDelay
from fullrank_dashboard.view import RunView

log = logging.getLogger(__name__)

PAUSE_S = 20.0
"""Shortest pause between two episodes of a run, seconds."""
LONGEST_S = 300.0
"""Time after which a process that plays is ended, seconds."""
MOST_BYTES = 2**23
"""Largest episode."""
NICE = 5
"""Niceness of the processes that play."""


class Stage:
    """Plays what a page asks for.

    Args:
        run: The run, as given to the dashboard.
        view: Told of the episode.
        turn: Held while a process plays.

    Attributes:
        episode: The newest episode, as ``fullrank render`` writes it; empty before the first.
    """

    def __init__(self, run: str, view: RunView, turn: asyncio.Lock) -> None:
        self._run, self._view, self._turn = run, view, turn
        self._asked = asyncio.Event()
        self.forget()

    def forget(self) -> None:
        """Begin anew: another run takes the place of the one played."""
        self._played, self.episode = -1, b""

    def ask(self) -> None:
        """Ask for an episode of the newest policies, unless the last one was of these."""
        self._asked.set()

    async def keep(self) -> NoReturn:
        """Play whenever that is asked for; the view is told why it is not possible."""
        while True:
            await self._asked.wait()
            self._asked.clear()
            try:
                async with self._turn:
                    await self._play()
            except Exception as error:  # it ends neither this run's curve nor another's
                if not isinstance(error, FullrankError | ImportError):
                    log.exception("cannot_be_played run=%s", self._run)
                self._view.staged(problem=brief(str(error), limit=400))
            self._view.staged(busy=False)
            await asyncio.sleep(PAUSE_S)

    async def _play(self) -> None:
        iteration = await asyncio.to_thread(self._newest)
        if iteration == self._played:
            return
        self._view.staged(busy=True, problem="")
        with tempfile.TemporaryDirectory(prefix="fullrank-") as scratch:
            drawn = Path(scratch, "episode.json")
            await fullrank("render", "--output", str(drawn), "--", self._run)
            self.episode = read_regular(drawn, MOST_BYTES)
        self._played = iteration
        self._view.staged(played=iteration)

    def _newest(self) -> int:
        """Iteration of the newest policies that this machine may play.

        Raises:
            FullrankError: There are none.
            ImportError: Here is no more than pages need.
        """
        from fullrank.runs.checkpoint import read_manifest, saved  # safetensors, for arrays

        if is_address(self._run):
            raise NotFound("episodes are played where the run's directory is: name the directory")
        config = read_config(Path(self._run))
        if is_adapted(config.environment.name):
            raise NotFound("environments of other packages cannot be drawn")
        for path in saved(Path(self._run) / CHECKPOINTS)[:1]:
            return int(read_manifest(path)["iteration"])
        raise NotFound(f"the first policies are saved after {config.checkpoint.every} iterations")


async def fullrank(*arguments: str) -> None:
    """Run a command of ``fullrank`` to its end.

    Raises:
        FullrankError: It failed, or took too long.
    """
    # -P: no module of the working directory, which may be a stranger's, takes the place of another.
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",
        "-m",
        "fullrank",
        *arguments,
        stdin=DEVNULL,
        stdout=DEVNULL,
        stderr=PIPE,
    )
    try:
        with suppress(ProcessLookupError):  # it has ended, and says why below
            os.setpriority(os.PRIO_PROCESS, process.pid, NICE)
        async with asyncio.timeout(LONGEST_S):
            _, errors = await process.communicate()
    except TimeoutError:
        raise ServiceLost(f"fullrank {arguments[0]} took more than {LONGEST_S:g} s") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        lines = errors.decode(errors="replace").splitlines()
        said = [line for line in lines if line.startswith("fullrank: ")] or ["it failed"]
        raise of_exit_code(process.returncode, said[-1].removeprefix("fullrank: "))


PERIOD_S = 1.0
"""Time between two polls, seconds."""
LINE = 1000
"""Most characters of the line about a run that cannot be shown."""
LONGEST_PAUSE_S = 10.0
"""Longest pause between two attempts to reach a controller, and period of polls of a run that has
ended, seconds."""
BATCH = 50
"""Iterations that are drawn without a pause."""
AT_ONCE = 2000
"""Most iterations of one poll, so that a page shows the progress of a long curve."""


class Following:
    """Keeps a view up to date.

    Args:
        run: The run's directory, or ``host:port`` of its monitor.
        tls: Certificates to present.
        turn: Held while a process plays an episode; None: by this run alone.
    """

    def __init__(self, run: str, tls: TlsSettings, turn: asyncio.Lock | None = None) -> None:
        self._run, self._tls = run, tls
        self._id = ""
        self._monitor: AsyncMonitor | None = None
        self._evaluations_bytes = self._metrics_bytes = 0
        self._period_s = PERIOD_S
        self.view = RunView(run if is_address(run) else Path(run).name)
        self.stage = Stage(run, self.view, turn or asyncio.Lock())

    async def follow(self) -> NoReturn:
        """Keep the view up to date for ever; an error stands in its card, and ends no other run."""
        patient = AsyncRetrying(
            retry=retry_if_exception_type(Exception),
            wait=wait_random_exponential(multiplier=PERIOD_S, max=LONGEST_PAUSE_S),
            before_sleep=self._away,
        )
        try:
            while True:
                whole: bool = await patient(self.look)
                await asyncio.sleep(self._period_s if whole else 0)
        finally:
            await self._hang_up()

    async def look(self) -> bool:
        """Poll once; returns whether the view has all committed iterations.

        Raises:
            FullrankError: The controller is away, or there is no such run.
        """
        await self._look_at_evaluations()
        try:
            monitor = self._monitor or await self._dial()
            new = await self._new(monitor)
            now = await monitor.status()
            if self._id not in ("", now.run):
                raise ServiceLost(f"run {now.run} answers in place of {self._id}")
            code = self.view.code
            if code is None or not _is_current(code, now):
                code = await _code(monitor)
        except FullrankError as error:
            await self._hang_up()
            if not isinstance(error, ServiceLost) or not await self._has_ended():
                raise
            self._period_s = LONGEST_PAUSE_S
            return True
        self._period_s = PERIOD_S
        for start in range(0, len(new), BATCH):
            self.view.committed(new[start : start + BATCH])
            await asyncio.sleep(0)  # other runs and the page go on meanwhile
        self.view.stands(now, code)
        return len(new) < AT_ONCE

    async def _look_at_evaluations(self) -> None:
        """Read new evaluations from the run's directory; a damaged file is reported once."""
        path = Path(self._run) / EVALUATIONS
        size = path.stat().st_size if path.exists() else 0
        if size != self._evaluations_bytes:
            self._evaluations_bytes = size
            self.view.evaluated(await asyncio.to_thread(read_evaluations, path.parent))

    async def _dial(self) -> AsyncMonitor:
        if not is_address(self._run):
            await self._read_directory()
        address, security = monitor_of(self._run, self._tls)
        self._monitor = AsyncMonitor(address, security=security)
        setup = await self._monitor.setup()
        if is_address(self._run):  # a directory's own settings may say more
            self._is_run(setup.run)
            self._is_of(setup.config)
        return self._monitor

    async def _has_ended(self) -> bool:
        """Show the run as its directory does, if that tells its end."""
        if is_address(self._run):
            return False
        ended = await asyncio.to_thread(ended_status, Path(self._run))
        if ended is not None:
            await self._read_directory()
            self.view.stands(ended, None)
        return ended is not None

    async def _read_directory(self) -> None:
        """Read the run's files, in case its controller is gone."""
        directory = Path(self._run)
        with suppress(CheckpointUnusable):  # it has none yet
            self._is_run(run_of(directory))
        self._is_of(await asyncio.to_thread(read_config, directory))
        metrics = directory / METRICS
        size = metrics.stat().st_size if metrics.exists() else 0
        if size != self._metrics_bytes:
            self._metrics_bytes = size
            self.view.committed(await asyncio.to_thread(read_records, metrics))

    def _is_run(self, run: str) -> None:
        """Take the id of the run; one that takes the place of another is shown from its start."""
        if self._id not in ("", run):
            self._evaluations_bytes = self._metrics_bytes = 0
            self.view.forget()
            self.stage.forget()
        self._id = run

    def _is_of(self, config: RunConfig) -> None:
        self.view.is_of(config, _delay_model(config.stragglers))

    async def _new(self, monitor: AsyncMonitor) -> list[IterationRecord]:
        first, term = 0, 0
        if (last := self.view.last) is not None:
            first, term = last.iteration + 1, last.term
        new: list[IterationRecord] = []
        async with aclosing(monitor.watch(first, seen_term=term, until_now=True)) as records:
            async for record in records:
                new.append(record)
                if len(new) == AT_ONCE:
                    break
        return new

    async def find(self, iteration: int) -> IterationRecord:
        """An iteration, even if the view does not keep it.

        Raises:
            NotFound: It is not committed, or no controller can be asked.
            ServiceLost: The controller is away.
        """
        if (kept := self.view.find(iteration)) is not None:
            return kept
        if self._monitor is not None:
            async with aclosing(self._monitor.watch(iteration, until_now=True)) as records:
                async for record in records:
                    return record
        raise NotFound(f"iteration {iteration} of {self.view.name} is not available now")

    async def _away(self, attempt: RetryCallState) -> None:
        assert attempt.outcome is not None
        assert attempt.next_action is not None
        error, pause_s = attempt.outcome.exception(), ceil(attempt.next_action.sleep)
        await self._hang_up()
        if not isinstance(error, FullrankError):
            log.error("cannot_be_shown run=%s", self._run, exc_info=error)
            error = FullrankError(
                f"it cannot be shown: {type(error).__name__}: {brief(str(error))}"
            )
        self.view.away(f"{brief(str(error), limit=LINE)} (trying again in {pause_s} s)")

    async def _hang_up(self) -> None:
        if self._monitor is not None:
            await self._monitor.close()
        self._monitor = None


async def _code(monitor: AsyncMonitor) -> CodeInUse | None:
    try:
        return await monitor.code()
    except NotFound:
        return None  # the first learners have not come


def _is_current(code: CodeInUse, now: RunStatus) -> bool:
    """True if the rows of a code are held as a status says; extra rows of a round do not count."""
    rows = range(len(code.matrix))
    held = {row: each.learner for each in now.learners for row in each.rows if row in rows}
    known = {row: learner for row, learner in code.holders.items() if row in rows}
    return (code.epoch, known) == (now.epoch, held)


def _delay_model(settings: PluginSettings) -> DelayModel:
    try:
        return delay_models.build(settings.name, **complete_stragglers(settings).params)
    except ConfigError:
        return NoDelay()  # a plug-in of the run that is not installed here, or impossible
