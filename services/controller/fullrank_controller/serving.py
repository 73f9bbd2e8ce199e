"""One term of a run as it is served: the parts that services and one process share."""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from fullrank.algorithms.devices import left_out
from fullrank.common.errors import FullrankError, StaleTerm, StorageFailed, Unsound
from fullrank.config import RunConfig
from fullrank.config.code import code_of
from fullrank.config.elsewhere import remember_run
from fullrank.config.toml import settings_digest
from fullrank.config.tree import as_tables
from fullrank.config.trust import remember
from fullrank.host.process import end_process
from fullrank.runs.ending import finished
from fullrank.runs.progress import Lines
from fullrank.runs.record import METRICS, IterationRecord, published
from fullrank.sinks import Fanout, JsonLines, MetricsSink, open_sinks
from fullrank.wiring.training import Training, capacity_of, lag_of, training_of
from fullrank_controller.driver import Driver
from fullrank_controller.persistence.restore import Restored
from fullrank_controller.persistence.run_directory import RunDirectory, hold
from fullrank_controller.persistence.store import GATHER_S, RunStore
from fullrank_controller.prometheus import Totals
from fullrank_controller.rounds.disputes import Condemned, Unsettled
from fullrank_controller.run import Run
from fullrank_controller.term import Term, begin, open_journal
from fullrank_controller.watchdog import Watchdog

log = logging.getLogger(__name__)

VOID = (StaleTerm, Condemned, Unsettled, Unsound)
"""Failures after which the state is not checkpointed."""


@contextmanager
def held(config: RunConfig, run_dir: Path) -> Iterator[tuple[RunDirectory, Training]]:
    """Build the run's training, and hold its directory under a term of its own.

    Raises:
        ConfigError: The configuration is inconsistent.
        RunDirectoryInUse: Another controller holds the directory, or it belongs to another run.
    """
    training = training_of(config)
    problem = training.problem  # refuse a code that does not exist, or recovers something else
    code_of(config, units=len(problem.units), target=problem.target)
    capacity_of(config, training)  # refuse transitions that replay can never hold
    if why := left_out(config.compute.device, accelerated=problem.accelerated):
        log.warning("no_card reason=%s", why)
    directory = hold(run_dir, config)
    remember(config.environment)
    remember_run(directory.path, directory.run)
    try:
        yield directory, training
    finally:
        training.collector.close()
        directory.lock.close()


@contextmanager
def open_term(
    config: RunConfig,
    directory: RunDirectory,
    training: Training,
    restored: Restored,
    *,
    replay_address: str,
    observers: Sequence[MetricsSink] = (),
) -> Iterator[Term]:
    """Open the files of a term and make its parts.

    Args:
        config: The resolved configuration.
        directory: The held directory.
        training: Parameters, optimiser and collector.
        restored: The state from which the term resumes.
        replay_address: The replay service, for learners; empty without one.
        observers: Further receivers of committed records.
    """
    totals = Totals(len(training.problem.units))
    with ExitStack() as stack:
        run = begin(config, directory, training, restored, replay_address=replay_address)
        stack.callback(run.event_log.close)
        sinks = stack.enter_context(closing(_sinks(config, directory, run, totals, *observers)))
        metrics = stack.enter_context(closing(JsonLines(directory.path / METRICS)))
        journal = stack.enter_context(closing(open_journal(directory, restored)))
        watchdog = stack.enter_context(_watchdog(config, directory, run, training))
        yield Term(
            config=config,
            directory=directory,
            training=training,
            run=run,
            store=RunStore(
                directory,
                training,
                journal=journal,
                event_log=run.event_log,
                metrics=metrics,
                publish=sinks.write,
                keep=config.checkpoint.keep,
                lag_s=lag_of(config, training),
                gather_s=GATHER_S if training.trainer.updates > 1 else 0.0,
            ),
            totals=totals,
            watchdog=watchdog,
        )


def _sinks(
    config: RunConfig, directory: RunDirectory, run: Run, *further: MetricsSink
) -> Fanout[IterationRecord]:
    """Receivers of each record: the configured sinks, the log and further ones."""
    configured = open_sinks(
        directory.path,
        config.metrics.sinks,
        first_iteration=run.progress.committed,
        config=as_tables(config),
    )
    iterations, clock = run.progress.iterations, time.monotonic
    lines = Lines(log.info, iterations=iterations, clock=clock, coding=True)
    return Fanout[IterationRecord]([configured, lines, *further])


def _watchdog(config: RunConfig, directory: RunDirectory, run: Run, training: Training) -> Watchdog:
    settings, collector = config.controller, training.collector
    return Watchdog(
        directory.path / f"stacks-{run.identity.term}.txt",
        where=lambda: "; ".join(filter(None, [collector.doing(), run.position()])),
        least_s=settings.deadline_s,
        most_s=settings.stuck_after_s + settings.heartbeat_s,
        end=end_process,
    )


def finish(config: RunConfig, directory: RunDirectory) -> None:
    """Record on disk that the run is finished, under the settings of its launch."""
    directory.end(finished(committed=published(directory.path), settings=settings_digest(config)))


async def term_raised(directory: RunDirectory, *, every_s: float) -> None:
    """Raise ``StaleTerm`` once another controller has taken the run directory, or the store.

    Verdicts and caveats are stored meanwhile, which wait for no iteration.
    """
    while True:
        await asyncio.sleep(every_s)
        await asyncio.to_thread(directory.confirm)
        if directory.store is not None:
            with suppress(StorageFailed):  # the next write says so
                await asyncio.to_thread(directory.store.keep)
                await asyncio.to_thread(directory.store.log.confirm)


async def drive(
    driver: Driver,
    run: Run,
    restored: Restored,
    endings: Sequence[Coroutine[Any, Any, object]],
    *,
    liveness: Coroutine[Any, Any, None],
    on_finished: Callable[[], None],
    until_finished: bool = False,
) -> None:
    """Run, and serve the finished run, until one of ``endings``; then checkpoint it.

    Args:
        driver: Drives the run.
        run: The parts of the run.
        restored: The state from which it resumes.
        endings: Each ends the serving by returning or raising.
        liveness: Runs beside.
        on_finished: Makes the end of the run durable, in a thread.
        until_finished: True to end once the run is finished.

    Raises:
        StaleTerm: A later controller runs; this one writes no more.
        Condemned: Committed iterations do not stand, and are not checkpointed.
        Unsettled: The same, or what is committed is disputed.
        Unsound: The parameters may be those of no iteration, and are not checkpointed.
        FullrankError: The run failed.
    """
    driving = asyncio.create_task(
        driver.drive(head=restored.head, journalled=restored.journalled, known=restored.known)
    )
    liveness_task = asyncio.create_task(liveness)
    ending = [asyncio.create_task(coroutine) for coroutine in endings]
    tasks = [driving, liveness_task, *ending]
    try:
        await asyncio.wait({driving, *ending}, return_when=asyncio.FIRST_COMPLETED)
        done = driving.done() and driving.exception() is None
        if done:
            await asyncio.to_thread(on_finished)
        if not driving.done() or (done and not until_finished):
            await asyncio.wait(ending, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        failures = [outcome for outcome in outcomes if isinstance(outcome, Exception)]
        void = any(isinstance(failure, VOID) for failure in failures)
        closing = await asyncio.gather(driver.close(void=void), return_exceptions=True)
    failures += [outcome for outcome in closing if isinstance(outcome, Exception)]
    for failure in failures:
        if isinstance(failure, FullrankError) and failure.final:
            run.progress.fail(failure)
        elif isinstance(failure, Condemned):
            run.progress.leaving = str(failure)
        raise failure
