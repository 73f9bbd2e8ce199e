"""Composition root of the controller: configuration and run directory to a serving run."""

import asyncio
import logging
import time
from collections.abc import Coroutine, Sequence
from contextlib import AsyncExitStack, closing
from pathlib import Path
from typing import Any

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_fixed

from fullrank.common.errors import ConfigError, ServiceLost, StaleTerm
from fullrank.config import RunConfig, as_tables
from fullrank.rpc.addresses import resolve
from fullrank.rpc.clients import ReplayClient
from fullrank.rpc.health import Health
from fullrank.rpc.identity import Role
from fullrank.rpc.process import Launch, run, stop_event, tune_process
from fullrank.rpc.security import Security
from fullrank.runs.progress import Lines
from fullrank.runs.record import IterationRecord
from fullrank.sinks import Fanout, open_sinks
from fullrank.wiring import Training, capacity_of, code_of, training_of
from fullrank_controller.driver import Driver
from fullrank_controller.membership.roster import Roster, expel_silent
from fullrank_controller.persistence.restore import Restored, restore
from fullrank_controller.persistence.run_directory import RunDirectory, hold
from fullrank_controller.ports import open_ports
from fullrank_controller.prometheus import Totals
from fullrank_controller.rounds.disputes import RolledBack
from fullrank_controller.run import Run
from fullrank_controller.term import begin, make_driver, open_journal
from fullrank_controller.watchdog import Watchdog

log = logging.getLogger(__name__)


def main(launch: Launch) -> int:
    """Start or resume the configured run and serve until told to stop; returns the exit code.

    A finished run stays up as FINISHED; starting it again never retrains.
    """
    if launch.run_dir is None:
        raise ConfigError("the controller keeps its run on disk; give --run-dir")
    import torch

    tune_process(launch)
    torch.set_num_threads(launch.config.compute.threads)
    run(serve(launch, launch.run_dir))
    return 0


async def serve(launch: Launch, run_dir: Path, stop: asyncio.Event | None = None) -> None:
    """Serve until ``stop`` is set, by default until the process is told to stop.

    Raises:
        FullrankError: The run cannot begin, or it failed.
    """
    stop = stop or stop_event(launch)
    config = launch.resolved.check().config
    barred: dict[bytes, str] = {}
    async with Health(config.health.address) as health:
        while True:
            try:
                await _hold_and_serve(config, run_dir, barred, stop=stop, health=health)
            except RolledBack as error:
                log.error("rolled_back reason=%s", error)
            else:
                return


async def _hold_and_serve(
    config: RunConfig,
    run_dir: Path,
    barred: dict[bytes, str],
    *,
    stop: asyncio.Event,
    health: Health,
) -> None:
    """Serve for one term.

    Raises:
        RolledBack: Wrong iterations are withdrawn on disk; continue with another term.
    """
    training = training_of(config)
    problem = training.problem  # refuse a code that does not exist, or recovers something else
    code_of(config, units=len(problem.units), target=problem.target)
    capacity_of(config, training)  # refuse transitions that replay can never hold
    directory = hold(run_dir, config)
    try:
        await _serve(config, directory, training, barred, stop=stop, health=health)
    finally:
        training.collector.close()
        directory.lock.close()


async def _serve(
    config: RunConfig,
    directory: RunDirectory,
    training: Training,
    barred: dict[bytes, str],
    *,
    stop: asyncio.Event,
    health: Health,
) -> None:
    restored, totals = restore(directory, training), Totals()
    address = await _replay_address(config, directory, restored, stop)
    security = Security.of(config.tls, Role.CONTROLLER)
    async with AsyncExitStack() as stack:
        run = begin(
            config, directory, training, restored, replay_address=address, roster=Roster(barred)
        )
        stack.callback(run.event_log.close)
        sinks = stack.enter_context(closing(_sinks(config, directory, run, totals)))
        replay = ReplayClient(address, deadline_s=config.replay.deadline_s, security=security)
        stack.push_async_callback(replay.close)
        journal = stack.enter_context(closing(open_journal(directory, restored)))
        watchdog = stack.enter_context(_watchdog(config, directory, run))
        driver = make_driver(
            config,
            directory,
            training,
            run,
            replay,
            journal=journal,
            publish=sinks.write,
            watchdog=watchdog,
        )
        ports = open_ports(config, run, driver, directory, totals=totals, security=security)
        await stack.enter_async_context(ports)
        await health.at_work(True)
        stack.push_async_callback(health.at_work, False)
        superseded = _term_raised(directory, every_s=config.controller.heartbeat_s)
        endings = [stop.wait(), run.term_guard.superseded(), superseded]
        watching = expel_silent(run.roster, config.controller, watchdog)
        await _drive(driver, run, restored, endings, watching=watching)


def _sinks(
    config: RunConfig, directory: RunDirectory, run: Run, totals: Totals
) -> Fanout[IterationRecord]:
    """Receivers of each record: the configured sinks, the totals and the log."""
    configured = open_sinks(
        directory.path,
        config.metrics.sinks,
        first_iteration=run.status.committed,
        config=as_tables(config),
    )
    lines = Lines(log.info, iterations=run.identity.iterations, clock=time.monotonic)
    return Fanout[IterationRecord]([configured, totals, lines])


def _watchdog(config: RunConfig, directory: RunDirectory, run: Run) -> Watchdog:
    settings = config.controller
    return Watchdog(
        directory.path / f"stacks-{run.identity.term}.txt",
        where=run.position,
        least_s=settings.deadline_s,
        most_s=settings.stuck_after_s + settings.heartbeat_s,
    )


async def _term_raised(directory: RunDirectory, *, every_s: float) -> None:
    """Raise ``StaleTerm`` once another controller has taken the run directory."""
    while True:
        await asyncio.sleep(every_s)
        await asyncio.to_thread(directory.confirm)


async def _drive(
    driver: Driver,
    run: Run,
    restored: Restored,
    endings: Sequence[Coroutine[Any, Any, object]],
    *,
    watching: Coroutine[Any, Any, None],
) -> None:
    """Run, and serve the finished run, until one of ``endings``; then checkpoint it.

    Raises:
        StaleTerm: A later controller runs; nothing more is written.
        RolledBack: Committed iterations are withdrawn, and not checkpointed.
        FullrankError: The run failed.
    """
    resumed = run.status.committed
    driving = asyncio.create_task(driver.drive(head=restored.head, journalled=restored.journalled))
    watching_task = asyncio.create_task(watching)
    ending = [asyncio.create_task(coroutine) for coroutine in endings]
    await asyncio.wait({driving, *ending}, return_when=asyncio.FIRST_COMPLETED)
    if not (driving.done() and driving.exception()):
        await asyncio.wait(ending, return_when=asyncio.FIRST_COMPLETED)
    tasks = [driving, watching_task, *ending]
    for task in tasks:
        task.cancel()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    await driver.settled()
    failures = [outcome for outcome in outcomes if isinstance(outcome, Exception)]
    void = any(isinstance(failure, StaleTerm | RolledBack) for failure in failures)
    if resumed < run.status.committed < run.identity.iterations and not void:
        await driver.save()
    for failure in failures:
        raise failure


async def _replay_address(
    config: RunConfig, directory: RunDirectory, restored: Restored, stop: asyncio.Event
) -> str:
    """The address of the replay service, once it has announced itself."""
    settings = config.replay
    if restored.committed >= config.iterations:
        return settings.address  # a finished run needs no replay

    def give_up(state: RetryCallState) -> bool:
        return stop.is_set() or (state.seconds_since_start or 0.0) > settings.deadline_s

    retries = AsyncRetrying(
        retry=retry_if_exception_type(ServiceLost),
        wait=wait_fixed(0.05),
        stop=give_up,
        reraise=True,
    )
    return await retries(_resolved, settings.address, directory.path)


async def _resolved(configured: str, run_dir: Path) -> str:
    return resolve(configured, run_dir, "replay")
