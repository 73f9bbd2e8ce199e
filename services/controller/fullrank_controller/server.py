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
from fullrank.runs.ending import read_ending
from fullrank.wiring.training import Training
from fullrank_controller.epilogue import record_failure, tell
from fullrank_controller.learners.orders import obeyed
from fullrank_controller.membership.roster import expel_silent
from fullrank_controller.persistence.restore import Restored, restore
from fullrank_controller.persistence.run_directory import RunDirectory
from fullrank_controller.ports import ControllerPorts
from fullrank_controller.progress import RunProgress
from fullrank_controller.rounds.disputes import Condemned
from fullrank_controller.serving import drive, finish, held, open_term, term_raised
from fullrank_controller.term import make_network_driver

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
            await _hold_and_serve(launch, config, run_dir, stop=stop, health=health)
        except Condemned as error:
            log.error("condemned reason=%s", error)
            # An order may have changed their number.
            config = replace(config, iterations=read_config(run_dir).iterations)
        else:
            return


async def _hold_and_serve(
    launch: Launch,
    config: RunConfig,
    run_dir: Path,
    *,
    stop: asyncio.Event,
    health: Health,
) -> None:
    """Serve for one term.

    Raises:
        Condemned: Wrong iterations are condemned on disk; continue with another term.
    """
    with held(config, run_dir) as (directory, training):
        await _serve(launch, config, directory, training, stop=stop, health=health)


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
            open_term(
                config,
                directory,
                training,
                restored,
                replay_address=address,
            )
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
