"""Composition root of a run in one process: configuration and run directory to a driven run."""

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

from fullrank.algorithms.roles import Divided
from fullrank.common.errors import ConfigError, FullrankError
from fullrank.config import RunConfig
from fullrank.host.certificates import Role
from fullrank.host.process import Launch, run, stop_event, tune_process, usable_cores
from fullrank.net.channel import Security
from fullrank.net.server import Health
from fullrank.wiring.training import Training, refuse_free
from fullrank_controller.driver import Driver
from fullrank_controller.epilogue import record_failure
from fullrank_controller.local.computation import Computation, LocalTable
from fullrank_controller.local.ranks import Group, ranks_of
from fullrank_controller.local.rounds import LocalRounds
from fullrank_controller.persistence.restore import restore
from fullrank_controller.persistence.run_directory import RunDirectory
from fullrank_controller.ports import ControllerPorts
from fullrank_controller.serving import drive, finish, held, open_term, term_raised
from fullrank_controller.term import Term, make_driver, make_pipeline, own_playback
from fullrank_controller.watchdog import Watchdog

STOPPED = 130
"""Exit code of a run that was told to stop, as of a command that Ctrl-C ended."""


def main(launch: Launch) -> int:
    """Start or resume the configured run in this process; returns the exit code.

    Without ``launch.until_finished`` it serves the finished run until told to stop; with it, a run
    that is told to stop before its end returns ``STOPPED``.
    """
    if launch.run_dir is None:
        raise ConfigError("a run in one process is kept on disk; give --run-dir")
    import torch

    tune_process(launch)
    torch.set_num_threads(launch.config.compute.threads)
    finished = run(serve(launch, launch.run_dir))
    return 0 if finished or not launch.until_finished else STOPPED


async def serve(launch: Launch, run_dir: Path, stop: asyncio.Event | None = None) -> bool:
    """Run until ``stop`` is set, by default until the process is told to stop.

    Returns:
        True if the run is finished.

    Raises:
        FullrankError: The run cannot begin, or it failed.
    """
    stop = stop or stop_event(launch)
    try:
        async with Health(launch.config.health.address) as health:
            return await _hold_and_serve(launch, run_dir, stop=stop, health=health)
    except FullrankError as error:
        record_failure(error, launch.config, run_dir)
        raise


async def _hold_and_serve(
    launch: Launch, run_dir: Path, *, stop: asyncio.Event, health: Health
) -> bool:
    config = launch.resolved.check().config
    refuse_free(config)
    if config.store.url:
        raise ConfigError(
            "store.url lets a controller with a replay service go on anywhere, and a run in one "
            "process has its transitions here: use `fullrank checkpoint export`"
        )
    with (
        held(config, run_dir) as (directory, training),
        ranks_of(config, training) as group,
    ):
        return await _serve(launch, config, directory, training, group, stop=stop, health=health)


async def _serve(
    launch: Launch,
    config: RunConfig,
    directory: RunDirectory,
    training: Training,
    group: Group | None,
    *,
    stop: asyncio.Event,
    health: Health,
) -> bool:
    restored = restore(directory, training)
    security = Security.configured(config.tls, Role.CONTROLLER)
    async with AsyncExitStack() as stack:
        table = LocalTable(directory.path, sync=config.replay.acknowledge == "fsync")
        stack.enter_context(closing(table))
        term = stack.enter_context(
            open_term(
                config,
                directory,
                training,
                restored,
                replay_address="",
                observers=launch.observers,
            )
        )
        spare = _has_spare_core(config, training)
        if spare and group is None:
            stack.enter_context(_second_thread(training))
        foresees = spare and _foresees(config, training)
        driver = _make_driver(term, table, group, foresees=foresees, report=launch.report)
        ports = ControllerPorts(term=term, driver=driver, security=security)
        await stack.enter_async_context(ports.open_observation())
        await health.at_work(True)
        stack.push_async_callback(health.at_work, False)
        heartbeat_s = config.controller.heartbeat_s
        endings: list[Coroutine[Any, Any, object]] = [
            stop.wait(),
            term_raised(directory, every_s=heartbeat_s),
        ]
        await drive(
            driver,
            term.run,
            restored,
            endings,
            liveness=_watch_loop(term.watchdog, every_s=heartbeat_s),
            on_finished=partial(finish, launch.config, directory),
            until_finished=launch.until_finished,
        )
        return term.run.progress.finished


def _make_driver(
    term: Term,
    table: LocalTable,
    group: Group | None,
    *,
    foresees: bool,
    report: Callable[[str], None] | None,
) -> Driver:
    """Make the driver of a run over a table and units in this process, or a group of ranks.

    Args:
        term: The open parts of the term.
        table: The run's table.
        group: Computes the targets in several processes; None: this one computes them.
        foresees: True to play beside computing where the minibatch holds none of these rows.
        report: Takes the progress of the warm-up.
    """
    config, training = term.config, term.training
    pipeline = make_pipeline(
        term,
        table,
        own_playback(term, table),
        holds=table.holds if foresees else None,
        report=report,
    )
    rounds = LocalRounds(
        config,
        term.run,
        training,
        Computation(config, training, table, group),
        pipeline=pipeline,
        watchdog=term.watchdog,
    )
    return make_driver(term, pipeline, rounds)


def _has_spare_core(config: RunConfig, training: Training) -> bool:
    """Tell if a core is left beside those of the ranks, and gradients allow other threads."""
    busy = config.ranks.count * config.compute.threads
    concurrent = isinstance(training.algorithm.gradients, Divided)
    return concurrent and usable_cores() >= busy + config.compute.threads


def _second_thread(training: Training) -> ThreadPoolExecutor:
    """Let a second thread compute beside the caller; returns its executor."""
    executor, gradients = ThreadPoolExecutor(1), training.algorithm.gradients
    assert isinstance(gradients, Divided)  # there is a spare core
    gradients.run_beside(executor)
    return executor


def _foresees(config: RunConfig, training: Training) -> bool:
    """Tell if every iteration collects equally many rows, with its own parameters."""
    every = training.collector.collection.rows and training.trainer.updates == 1
    return bool(every) and not config.collect.lag


async def _watch_loop(watchdog: Watchdog, *, every_s: float) -> None:
    """Watch the event loop itself, until cancelled."""
    while True:
        with watchdog.phase("the event loop"):
            await asyncio.sleep(every_s)
