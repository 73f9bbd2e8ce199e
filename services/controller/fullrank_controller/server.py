"""Composition root of the controller: configuration and run directory to a serving run."""

import asyncio
import logging
import time
from collections.abc import Coroutine, Sequence
from itertools import chain, takewhile
from pathlib import Path
from typing import Any

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_fixed

from fullrank.algorithms import IndependentAlgorithm
from fullrank.checkpoint import Checkpoint, newest, save, saved
from fullrank.config import RunConfig, as_tables, to_toml
from fullrank.errors import CheckpointUnusable, CodeError, ConfigError, Deposed, ServiceLost
from fullrank.history import Began, Notebook
from fullrank.journal import Entry, Journal, read, survey
from fullrank.metrics import Fanout, IterationRecord
from fullrank.progress import Lines
from fullrank.recovery import checkpoints_lost, drop_superseded
from fullrank.rpc.addresses import announce, resolve
from fullrank.rpc.clients import ReplayClient
from fullrank.rpc.codec import encode_agent
from fullrank.rpc.exposition import Exposition
from fullrank.rpc.health import Health
from fullrank.rpc.identity import Role
from fullrank.rpc.launch import Launch, stop_event, tune_process
from fullrank.rpc.security import Security
from fullrank.rpc.server import Server
from fullrank.sinks import open_sinks
from fullrank.training import Training
from fullrank.v1 import controller_pb2 as pb
from fullrank.wiring import code_of, training_of
from fullrank_controller.auditing import Auditing, RolledBack
from fullrank_controller.driver import Driver
from fullrank_controller.monitoring import Monitoring
from fullrank_controller.roster import Roster
from fullrank_controller.run import Run
from fullrank_controller.run_directory import RunDirectory, hold
from fullrank_controller.servicer import ControllerServicer
from fullrank_controller.tally import Tally, present
from fullrank_controller.watchdog import Watchdog

log = logging.getLogger(__name__)

OWN_SAMPLES = (
    "no iteration is exact: learners draw samples of their own (algorithm.data = independent), and "
    "the bits depend on who answered; no digest, audit or residual would show a wrong update; a "
    "resumed run repeats the updates in its journal"
)
"""What a run in that data mode does not promise."""


def main(launch: Launch) -> int:
    """Start or resume the configured run and serve until told to stop; returns the exit code.

    A finished run stays up as FINISHED; starting it again never retrains.
    """
    if launch.run_dir is None:
        raise ConfigError("the controller keeps its run on disk; give --run-dir")
    import torch

    tune_process(launch)
    torch.set_num_threads(launch.config.compute.threads)
    asyncio.run(serve(launch, launch.run_dir))
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
                await _hold_and_serve(launch, config, run_dir, barred, stop=stop, health=health)
            except RolledBack as error:
                log.error("rolled_back reason=%s", error)
            else:
                return


async def _hold_and_serve(
    launch: Launch,
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
    _check_code(config, training)
    directory = hold(run_dir, config)
    try:
        await _serve(launch, config, directory, training, barred, stop=stop, health=health)
    finally:
        training.close()
        directory.lock.close()


def _check_code(config: RunConfig, training: Training) -> None:
    """The configured code must exist for the configured learners and give every unit."""
    code = code_of(config, units=training.algorithm.units)
    if code.target != "units":
        raise CodeError(
            f"{config.code.name} decodes only the sum of the updates, but "
            f"{config.algorithm.name} needs every one; choose cyclic, mds, ldpc or replication"
        )


def restore(directory: RunDirectory, training: Training) -> Checkpoint | None:
    """The newest usable checkpoint, loaded; None for a run that has none yet.

    Raises:
        CheckpointUnusable: There are or were checkpoints and none can be used: never a silent fresh
            start.
    """
    for path in drop_superseded(directory.path):
        log.warning("checkpoint_taken_back path=%s", path)
    if not saved(directory.checkpoints):
        if checkpoints_lost(directory.path):
            raise CheckpointUnusable(
                f"{directory.checkpoints}: there were checkpoints, and all are gone; restore them "
                "from a copy, or start anew in another directory"
            )
        return None
    checkpoint = newest(directory.checkpoints)
    for reason in checkpoint.passed_over:
        log.warning("checkpoint_passed_over reason=%s", reason)
    training.load(checkpoint.arrays, resume_at=checkpoint.iteration + 1)
    log.info("resumed path=%s iterations=%d", checkpoint.path, checkpoint.iteration + 1)
    return checkpoint


async def _serve(
    launch: Launch,
    config: RunConfig,
    directory: RunDirectory,
    training: Training,
    barred: dict[bytes, str],
    *,
    stop: asyncio.Event,
    health: Health,
) -> None:
    checkpoint = restore(directory, training)
    committed = checkpoint.iteration + 1 if checkpoint else 0
    entries = journalled_in(directory, committed)
    journalled = repeatable(entries)
    replay_address = config.replay.address  # a finished run needs no replay
    if committed < config.iterations:
        replay_address = await _replay_address(launch, stop)
    run = new_run(config, directory, training, replay_address, Roster(barred))
    run.committed = committed
    _own_up(run, journalled)
    run.notebook.note(
        Began(
            run=run.name,
            term=run.term,
            known=committed + len(entries),
            resumes_at=committed + len(journalled),
        )
    )
    kept = open_sinks(
        directory.path,
        config.metrics.sinks,
        first_iteration=run.committed,
        config=as_tables(config),
    )
    tally = Tally()
    lines = Lines(log.info, iterations=run.iterations, clock=time.monotonic)
    sinks = Fanout[IterationRecord]([kept, tally, lines])
    security = Security.of(config.tls, Role.CONTROLLER)
    server = Server(
        pb.DESCRIPTOR.services_by_name["ControllerService"],
        ControllerServicer(run),
        security=security,
        prebuilt=frozenset({"Work"}),
    )
    address = await server.start(config.controller.listen or config.controller.address)
    announce(directory.path, "controller", address)
    exposition = Exposition(
        config.metrics.prometheus,
        lambda: chain(present(run), tally.families()),
        run_dir=directory.path,
        name="controller",
    )
    await exposition.start()
    monitoring = Monitoring(config.monitor, run, directory, security=security)
    await monitoring.start()
    replay = ReplayClient(replay_address, deadline_s=config.replay.deadline_s, security=security)
    journal = Journal(
        directory.journal,
        term=directory.term,
        first=committed + len(journalled),
        confirm=directory.confirm,
    )
    watchdog = Watchdog(
        directory.path / f"stacks-{run.term}.txt",
        where=run.whereabouts,
        least_s=config.controller.deadline_s,
        most_s=config.controller.stuck_after_s + config.controller.heartbeat_s,
    )
    driver = Driver(
        config,
        run,
        training,
        replay,
        journal=journal,
        auditing=Auditing(config, run, training, replay, directory),
        publish=sinks.write,
        checkpoint=lambda head: save_run(
            directory, config, run, training, journal=journal, head=head
        ),
        watchdog=watchdog,
    )
    await health.at_work(True)
    try:
        head = checkpoint.facts["replay_head"] if checkpoint else 0
        deposed = [run.deposed(), _term_raised(directory, every_s=config.controller.heartbeat_s)]
        with watchdog:
            await _drive(driver, run, [stop.wait(), *deposed], head=head, journalled=journalled)
    finally:
        await health.at_work(False)
        directory.withdraw("controller")
        for member in run.roster.members:
            member.expel(ServiceLost("the controller is stopping"))
        await monitoring.stop()
        await exposition.stop()
        await server.stop()
        sinks.close()
        journal.close()
        run.notebook.close()
        await replay.close()


def journalled_in(directory: RunDirectory, committed: int) -> list[Entry]:
    """What was committed after the checkpoint."""
    for segment in survey(directory.journal):
        if segment.fault:
            log.warning(
                "journal_ends_early path=%s reason=%s records=%d",
                segment.path,
                segment.fault,
                segment.records,
            )
    return read(directory.journal, first=committed)


def repeatable(entries: Sequence[Entry]) -> list[Entry]:
    """Those before the first update that is not stored.

    From there on learners compute again what the journal only knows by its digest.
    """
    return list(takewhile(lambda entry: entry.updates is not None, entries))


def _own_up(run: Run, journalled: Sequence[Entry]) -> None:
    """Say which iterations are repeated with the J that they had; another would give other bits."""
    pinned = [each.iteration for each in journalled if not each.facts["record"]["exact"]]
    if pinned:
        run.caveats["exact"] = (
            f"iterations {pinned} are not exact: J is pinned, their updates are repeated from the "
            "journal"
        )
        log.warning("inexact %s", run.caveats["exact"])


async def _term_raised(directory: RunDirectory, *, every_s: float) -> None:
    """Wait, maybe for ever, until the directory is another controller's; then raise ``Deposed``."""
    while True:
        await asyncio.sleep(every_s)
        await asyncio.to_thread(directory.confirm)


async def _drive(
    driver: Driver,
    run: Run,
    endings: Sequence[Coroutine[Any, Any, object]],
    *,
    head: int,
    journalled: Sequence[Entry],
) -> None:
    """Run until one of ``endings``, also when the run is finished; then checkpoint it.

    Raises:
        Deposed: Another controller is in office; nothing more is written.
        RolledBack: What is committed is taken back, and not checkpointed.
        FullrankError: The run failed.
    """
    resumed = run.committed
    driving = asyncio.create_task(driver.drive(head=head, journalled=journalled))
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
    void = any(isinstance(each, Deposed | RolledBack) for each in failures)
    if resumed < run.committed < run.iterations and not void:
        await driver.save()
    for failure in failures:
        raise failure


async def _replay_address(launch: Launch, stop: asyncio.Event) -> str:
    """Where the replay service listens, once it has announced itself."""
    settings = launch.config.replay

    def give_up(state: RetryCallState) -> bool:
        return stop.is_set() or (state.seconds_since_start or 0.0) > settings.deadline_s

    retries = AsyncRetrying(
        retry=retry_if_exception_type(ServiceLost),
        wait=wait_fixed(0.05),
        stop=give_up,
        reraise=True,
    )
    return await retries(_resolved, settings.address, launch.run_dir)


async def _resolved(configured: str, run_dir: Path | None) -> str:
    return resolve(configured, run_dir, "replay")


def new_run(
    config: RunConfig,
    directory: RunDirectory,
    training: Training,
    replay_address: str,
    roster: Roster,
) -> Run:
    """What the driver and the servicer of this term share."""
    algorithm = training.algorithm
    return Run(
        roster=roster,
        name=directory.run,
        term=directory.term,
        iterations=config.iterations,
        notebook=Notebook(directory.path, "controller"),
        units=algorithm.units,
        vector_size=max(algorithm.unit_sizes),
        caveats={"data": OWN_SAMPLES} if isinstance(algorithm, IndependentAlgorithm) else {},
        welcome=pb.Welcome(
            run=directory.run,
            term=directory.term,
            configuration=to_toml(config),
            agents=[encode_agent(agent) for agent in training.agents],
            replay_address=replay_address,
        ),
    )


def save_run(
    directory: RunDirectory,
    config: RunConfig,
    run: Run,
    training: Training,
    *,
    journal: Journal,
    head: int,
) -> None:
    """Checkpoint what is committed, and let go of what the journal no longer needs."""
    directory.confirm()
    save(
        directory.checkpoints,
        iteration=run.committed - 1,
        arrays=training.state(resume_at=run.committed),
        facts={"run": directory.run, "term": directory.term, "replay_head": head},
        keep=config.checkpoint.keep,
    )
    oldest = saved(directory.checkpoints)[-1]
    journal.begin_segment(run.committed, keep_from=int(oldest.name) + 1)
