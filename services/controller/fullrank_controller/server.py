"""Composition root of the controller: configuration and run directory to a serving run."""

import asyncio
import logging
import time
from collections.abc import Coroutine, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_fixed

from fullrank.common.errors import ConfigError, ServiceLost, StaleTerm
from fullrank.config import RunConfig, as_tables
from fullrank.rpc.addresses import resolve
from fullrank.rpc.clients import ReplayClient
from fullrank.rpc.health import Health
from fullrank.rpc.identity import Role
from fullrank.rpc.launch import Launch, run, stop_event, tune_process
from fullrank.rpc.security import Security
from fullrank.runs.progress import Lines
from fullrank.runs.record import IterationRecord
from fullrank.sinks import Fanout, open_sinks
from fullrank.training.trainer import Training
from fullrank.wiring import capacity_of, code_of, training_of
from fullrank_controller.driver import Driver
from fullrank_controller.membership.roster import Roster
from fullrank_controller.monitor.prometheus import Tally
from fullrank_controller.persistence.restore import Restored, restore
from fullrank_controller.persistence.run_directory import RunDirectory, hold
from fullrank_controller.ports import open_ports
from fullrank_controller.rounds.auditor import RolledBack
from fullrank_controller.run_state import Run
from fullrank_controller.term import begin, driver_of, open_journal
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
        RolledBack: What is wrong is taken back on disk; go on for another term.
    """
    training = training_of(config)
    code_of(config, units=training.algorithm.units)  # refuse a code that does not exist
    capacity_of(config, training)  # refuse transitions that replay can never hold
    directory = hold(run_dir, config)
    try:
        await _serve(config, directory, training, barred, stop=stop, health=health)
    finally:
        training.close()
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
    restored = restore(directory, training)
    address = await _replay_address(config, directory, restored, stop)
    security, tally = Security.of(config.tls, Role.CONTROLLER), Tally()
    async with AsyncExitStack() as stack:
        run = begin(
            config, directory, training, restored, replay_address=address, roster=Roster(barred)
        )
        stack.callback(run.event_log.close)
        sinks = _sinks(config, directory, run, tally)
        stack.callback(sinks.close)
        ports = open_ports(config, run, directory, tally=tally, security=security)
        await stack.enter_async_context(ports)
        replay = ReplayClient(address, deadline_s=config.replay.deadline_s, security=security)
        stack.push_async_callback(replay.close)
        journal = open_journal(directory, restored)
        stack.callback(journal.close)
        driver = driver_of(
            config,
            directory,
            training,
            run,
            replay,
            journal=journal,
            publish=sinks.write,
            watchdog=stack.enter_context(_watchdog(config, directory, run)),
        )
        await health.at_work(True)
        stack.push_async_callback(health.at_work, False)
        deposed = [run.deposed(), _term_raised(directory, every_s=config.controller.heartbeat_s)]
        await _drive(driver, run, restored, [stop.wait(), *deposed])


def _sinks(
    config: RunConfig, directory: RunDirectory, run: Run, tally: Tally
) -> Fanout[IterationRecord]:
    """What is told of each iteration: the configured sinks, the tally and the log."""
    kept = open_sinks(
        directory.path,
        config.metrics.sinks,
        first_iteration=run.committed,
        config=as_tables(config),
    )
    lines = Lines(log.info, iterations=run.iterations, clock=time.monotonic)
    return Fanout[IterationRecord]([kept, tally, lines])


def _watchdog(config: RunConfig, directory: RunDirectory, run: Run) -> Watchdog:
    settings = config.controller
    return Watchdog(
        directory.path / f"stacks-{run.term}.txt",
        where=run.whereabouts,
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
) -> None:
    """Run until one of ``endings``, also when the run is finished; then checkpoint it.

    Raises:
        StaleTerm: Another controller is in office; nothing more is written.
        RolledBack: What is committed is taken back, and not checkpointed.
        FullrankError: The run failed.
    """
    resumed = run.committed
    driving = asyncio.create_task(driver.drive(head=restored.head, journalled=restored.journalled))
    watching = asyncio.create_task(driver.watch())
    ending = [asyncio.create_task(each) for each in endings]
    await asyncio.wait({driving, *ending}, return_when=asyncio.FIRST_COMPLETED)
    if not (driving.done() and driving.exception()):
        await asyncio.wait(ending, return_when=asyncio.FIRST_COMPLETED)
    tasks = [driving, watching, *ending]
    for task in tasks:
        task.cancel()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    await driver.settled()
    failures = [each for each in outcomes if isinstance(each, Exception)]
    void = any(isinstance(each, StaleTerm | RolledBack) for each in failures)
    if resumed < run.committed < run.iterations and not void:
        await driver.save()
    for failure in failures:
        raise failure


async def _replay_address(
    config: RunConfig, directory: RunDirectory, restored: Restored, stop: asyncio.Event
) -> str:
    """Where the replay service listens, once it has announced itself."""
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
