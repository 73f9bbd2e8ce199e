"""Composition root of the controller: configuration and run directory to a serving run."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_fixed

from fullrank.common.errors import ConfigError, FullrankError, ServiceLost
from fullrank.common.imports import collecting_later
from fullrank.config.toml import read_config, settings_digest
from fullrank.config.tree import RunConfig
from fullrank.host.certificates import Role
from fullrank.host.process import STOPPED, Launch, run, stop_event, tune_process
from fullrank.host.run_directory import resolve
from fullrank.net.channel import Security
from fullrank.net.replay_client import ReplayClient
from fullrank.net.server import Health
from fullrank.net.tracing import tracing
from fullrank.replay.pace import DrawWindow
from fullrank.replay.staging import Grant
from fullrank.runs.ending import read_ending
from fullrank.training.blocks import BlockPlan
from fullrank.wiring.training import (
    Training,
    block_player_of,
    capacity_of,
    drawn_rows,
    pace_of,
    spare_rows,
)
from fullrank_controller.collectors.blocks_in import most_rows
from fullrank_controller.driver import Driver
from fullrank_controller.epilogue import record_failure, tell
from fullrank_controller.learners.servicer import obeyed
from fullrank_controller.membership.roster import expel_silent
from fullrank_controller.persistence.restore import Restored, restore
from fullrank_controller.persistence.rows import StoredRows
from fullrank_controller.persistence.run_directory import RunDirectory
from fullrank_controller.persistence.run_numerics import own_numerics
from fullrank_controller.ports import ControllerPorts
from fullrank_controller.progress import RunProgress
from fullrank_controller.rounds.block_audit import BlockAudit
from fullrank_controller.rounds.disputes import Condemned
from fullrank_controller.rounds.free_playback import FreePlayback
from fullrank_controller.rounds.network import NetworkRounds
from fullrank_controller.rounds.playback import KeyedPlayback, OwnPlayback, Playback
from fullrank_controller.rounds.replay_pipeline import ReplayPipeline
from fullrank_controller.serving import drive, finish, held, open_term, term_raised
from fullrank_controller.term import Term

log = logging.getLogger(__name__)


REMEDY = "; remove the cause, then `fullrank run resume %s` or start without --until-finished"
"""Clause that follows the reason for which a run has failed."""


def main(launch: Launch) -> int:
    """Start or resume the configured run and serve until told to stop; returns the exit code.

    A finished run stays up as FINISHED, unless ``launch.until_finished`` is set; starting it again
    never retrains.
    """
    if launch.run_dir is None:
        raise ConfigError("the controller keeps its run on disk; give --run-dir")
    with collecting_later():
        import torch

    tune_process(launch)
    torch.set_num_threads(launch.config.compute.threads)
    with tracing("controller"):
        run(serve(launch, launch.run_dir))
    return 0


async def serve(launch: Launch, run_dir: Path, stop: asyncio.Event | None = None) -> None:
    """Serve until ``stop`` is set, by default until the process is told to stop.

    With ``launch.until_finished`` it serves until the run has ended, and has told so. It does not
    begin a run again that has ended under the same settings.

    Raises:
        FullrankError: The run cannot begin, or it failed.
        ServiceLost: It was told to stop before the end of the run that it was to serve.
    """
    stop, config = stop or stop_event(launch), launch.config
    async with Health(config.health.address) as health:
        ending = read_ending(run_dir) if launch.until_finished else None
        if ending is not None and ending.settings == settings_digest(config):
            log.warning("%s%s", ending, REMEDY % run_dir if ending.state == "failed" else "")
            await tell(ending, config, run_dir, stop, health=health)
            return
        try:
            await _serve_terms(launch, run_dir, stop=stop, health=health)
        except FullrankError as error:
            ending = record_failure(error, config, run_dir)
            heard = health.has_worked and not launch.stop_with_stdin  # a parent sees its exit code
            if ending is not None and (launch.until_finished or heard):
                await tell(ending, config, run_dir, stop, health=health)
            raise
        if not launch.until_finished:
            return
        if (ending := read_ending(run_dir)) is None:
            raise ServiceLost(STOPPED)
        await tell(ending, config, run_dir, stop, health=health)


async def _serve_terms(
    launch: Launch, run_dir: Path, *, stop: asyncio.Event, health: Health
) -> None:
    """Serve one term after the other.

    Raises:
        FullrankError: The run cannot begin, or it failed.
    """
    config = launch.resolved.check().config
    while True:
        try:
            with held(config, run_dir) as (directory, training):
                await _serve(launch, config, directory, training, stop=stop, health=health)
            return
        except Condemned as error:
            log.error("condemned reason=%s", error)
            # An order may have changed their number.
            config = replace(config, iterations=read_config(run_dir).iterations)


async def _serve(
    launch: Launch,
    config: RunConfig,
    directory: RunDirectory,
    training: Training,
    *,
    stop: asyncio.Event,
    health: Health,
) -> None:
    restored = restore(directory, training)
    address = await _replay_address(config, directory, restored, stop)
    security = Security.configured(config.tls, Role.CONTROLLER)
    async with AsyncExitStack() as stack:
        term = stack.enter_context(
            open_term(config, directory, training, restored, replay_address=address)
        )
        replay = ReplayClient(
            address,
            deadline_s=config.replay.deadline_s,
            security=security,
            away=_outage(config, directory, term.run.progress, dialled=address),
        )
        stack.push_async_callback(replay.close)
        driver = make_network_driver(term, replay)
        ports = ControllerPorts(term=term, driver=driver, security=security)
        await stack.enter_async_context(ports.open())
        await health.at_work(True)
        stack.push_async_callback(health.at_work, False)
        term.run.term_guard.witnesses.append(replay.confirm)
        superseded = term_raised(directory, every_s=config.controller.heartbeat_s)
        ordered = obeyed(ports.stop, term.run)
        endings = [stop.wait(), term.run.term_guard.superseded(), superseded, ordered]
        liveness = expel_silent(term.run.rosters, config.controller, term.watchdog)
        await drive(
            driver,
            term.run,
            restored,
            endings,
            liveness=liveness,
            on_finished=partial(finish, launch.config, directory),
            until_finished=launch.until_finished,
        )


def make_network_driver(term: Term, replay: ReplayClient) -> Driver:
    """Make the driver of a run by learners, with its replay pipeline, auditor and planner."""
    if term.directory.store is not None:
        term.store.rows = StoredRows(
            term.directory.store,
            replay,
            drawn=drawn_rows(term.config, term.training),
            row_size=term.training.collector.layout.row_size,
            each=term.config.collect.mode == "free",
        )
    pipeline = ReplayPipeline(term, replay, _playback(term, replay))
    return Driver(term, pipeline, NetworkRounds(term, replay, pipeline))


def _playback(term: Term, replay: ReplayClient) -> Playback:
    """Let the collectors of a run play; without any, this process."""
    config, training, pool = term.config, term.training, term.run.collectors
    if pool is None:
        return OwnPlayback(term, replay)
    audit = BlockAudit(
        pool,
        share=config.audit.blocks,
        secret=term.directory.secret,
        make_player=partial(block_player_of, config, training.environment),
        own_numerics=partial(own_numerics, config, training),
        watchdog=term.watchdog,
    )
    playbacks: dict[str, Callable[..., Playback]] = {
        "keyed": KeyedPlayback,
        "free": partial(FreePlayback, window=partial(_draw_window, term)),
    }
    playback, grant = playbacks[config.collect.mode], _grant(term, pool.plan)
    return playback(training.collector.collection, replay, pool, grant, audit=audit)


def _grant(term: Term, plan: BlockPlan) -> Grant:
    """Return what a collector may stage in a block."""
    collector, problem = term.training.collector, term.training.problem
    most = most_rows(problem.row_size)
    if collector.horizon:
        most = min(most, len(plan.copies_of(0)) * (collector.horizon + 1))
    return Grant(most_rows=most, episodes=problem.episodes)


def _draw_window(term: Term, iteration: int, head: int, episodes: int | None) -> DrawWindow:
    """Make the window of draws that begins with an iteration."""
    newest = capacity_of(term.config, term.training)
    return DrawWindow(
        pace_of(term.config),
        capacity=newest + spare_rows(term.config, term.training),
        newest=newest,
        following=iteration,
        head=head,
        episodes=episodes,
    )


def _outage(
    config: RunConfig, directory: RunDirectory, progress: RunProgress, *, dialled: str
) -> Callable[[str], None]:
    """Report an outage of replay as the state of the run, which goes on once replay is back."""

    def report(reason: str) -> None:
        if progress.interrupt(f"waiting for replay: {reason}" if reason else ""):
            log.warning("stalled reason=%s", progress.message)
        elif not reason:
            log.info("wait_for_replay_ended")
        if reason:
            ensure_in_place(config.replay.address, directory.path, dialled)

    return report


def ensure_in_place(configured: str, run_dir: Path, dialled: str) -> None:
    """Raise ``ServiceLost`` if replay has announced another address than the one dialled."""
    try:
        found = resolve(configured, run_dir, "replay")
    except ServiceLost:
        return
    if found != dialled:
        raise ServiceLost(
            f"replay listens on {found} now, and not on {dialled} any more; start this controller "
            "again, or give replay.address a port that stays"
        )


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
