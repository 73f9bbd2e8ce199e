"""Follower of a run: polls its monitor, and redials with growing pauses."""

import asyncio
from contextlib import aclosing
from math import ceil
from pathlib import Path
from typing import NoReturn

from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception_type,
    wait_random_exponential,
)

from fullrank.common.errors import ConfigError, FullrankError, NotFound
from fullrank.config.toml import read_config
from fullrank.config.tree import PluginSettings, RunConfig, TlsSettings
from fullrank.rpc.monitor import AsyncMonitor
from fullrank.rpc.monitor_address import is_address, monitor_of
from fullrank.rpc.run_status import CodeInUse
from fullrank.runs.evaluations import EVALUATIONS, read_evaluations
from fullrank.runs.record import METRICS, IterationRecord, read_records
from fullrank.stragglers import DelayModel, NoDelay, delay_models
from fullrank_dashboard.view import RunView

PERIOD_S = 1.0
"""Time between two polls, seconds."""
LONGEST_PAUSE_S = 10.0
"""Longest pause between two attempts to reach a controller, seconds."""
AT_ONCE = 2000
"""Most iterations of one poll, so that a page shows the progress of a long curve."""


class Following:
    """Keeps a view up to date.

    Args:
        run: The run's directory, or ``host:port`` of its monitor.
        tls: Certificates to present.
    """

    def __init__(self, run: str, tls: TlsSettings) -> None:
        self._run, self._tls = run, tls
        self._monitor: AsyncMonitor | None = None
        self._evaluations_bytes = 0
        self.view = RunView(run if is_address(run) else Path(run).name)

    async def follow(self) -> NoReturn:
        """Keep the view up to date for ever."""
        patient = AsyncRetrying(
            retry=retry_if_exception_type(FullrankError),
            wait=wait_random_exponential(multiplier=PERIOD_S, max=LONGEST_PAUSE_S),
            before_sleep=self._away,
        )
        try:
            while True:
                whole: bool = await patient(self.look)
                await asyncio.sleep(PERIOD_S if whole else 0)
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
            code = self.view.code
            if code is None or code.epoch != now.epoch:
                code = await _code(monitor)
        except FullrankError:
            await self._hang_up()
            raise
        self.view.committed(new)
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
            self._is_of(setup.config)
        return self._monitor

    async def _read_directory(self) -> None:
        """Read the run's files, in case its controller is gone."""
        directory = Path(self._run)
        self._is_of(await asyncio.to_thread(read_config, directory))
        if self.view.last is None and (directory / METRICS).exists():
            self.view.committed(await asyncio.to_thread(read_records, directory / METRICS))

    def _is_of(self, config: RunConfig) -> None:
        model = _delay_model(config.stragglers)
        self.view.is_of(config.environment.name, model, seed=config.seed, learners=config.learners)

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

    def _away(self, attempt: RetryCallState) -> None:
        assert attempt.outcome is not None
        assert attempt.next_action is not None
        pause_s = ceil(attempt.next_action.sleep)
        self.view.away(f"{attempt.outcome.exception()} (trying again in {pause_s} s)")

    async def _hang_up(self) -> None:
        if self._monitor is not None:
            await self._monitor.close()
        self._monitor = None


async def _code(monitor: AsyncMonitor) -> CodeInUse | None:
    try:
        return await monitor.code()
    except NotFound:
        return None  # the first learners have not come


def _delay_model(settings: PluginSettings) -> DelayModel:
    try:
        return delay_models.build(settings.name, **settings.params)
    except ConfigError:
        return NoDelay()  # a plug-in of the run that is not installed here
