"""Composition root of the controller: configuration and run directory to a serving run.

A standby waits for the loss of a run's controller, and takes the run over.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from enum import Enum, auto
from functools import partial
from pathlib import Path

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_fixed

from fullrank.common.errors import ConfigError, FullrankError, NotFound, ServiceLost
from fullrank.common.imports import collecting_later
from fullrank.config.toml import settings_digest
from fullrank.config.tree import RunConfig
from fullrank.host.certificates import Role
from fullrank.host.process import STOPPED, Launch, run, stop_event, tune_process
from fullrank.host.run_directory import is_announced, resolve
from fullrank.net.channel import Security
from fullrank.net.controller_client import ControllerClient
from fullrank.net.limits import Silence
from fullrank.net.replay_client import ReplayClient
from fullrank.net.server import Health
from fullrank.net.tracing import tracing
from fullrank.runs.ending import read_ending
from fullrank.runs.identity import IDENTITY
from fullrank.runs.mirror import take_over
from fullrank.v1 import controller_pb2 as pb
from fullrank.wiring.training import Training
from fullrank_controller.epilogue import record_failure, tell
from fullrank_controller.membership.roster import expel_silent
from fullrank_controller.persistence.restore import Restored, restore
from fullrank_controller.persistence.run_directory import RunDirectory
from fullrank_controller.ports import ControllerPorts
from fullrank_controller.progress import RunProgress
from fullrank_controller.rounds.disputes import Condemned
from fullrank_controller.serving import drive, finish, held, open_term, term_raised
from fullrank_controller.term import make_network_driver

log = logging.getLogger(__name__)


class WatchOutcome(Enum):
    """The end of a standby's watch."""

    LOST = auto()
    """The controller is lost, and the directory holds its run."""
    ENDED = auto()
    """The run has ended."""
    STOPPED = auto()
    """The standby was told to stop."""


async def stand_by(
    config: RunConfig, run_dir: Path, stop: asyncio.Event, *, until_finished: bool
) -> WatchOutcome:
    """Watch the run's controller until it is lost or, ``until_finished``, reports the run's end.

    A controller is lost once ``controller.address`` has not answered for ``lost_after_s``.
    Where that is wrong, as beyond a partition, the claim of a term decides: one controller goes on.
    A directory that holds the run already is that of a standby that had taken it over.

    Raises:
        ConfigError: There is no mirror, or no address that a standby can know.
        StaleTerm: Another standby takes the run over now.
        StorageFailed: The mirror cannot be reached.
    """
    settings, place = config.controller, config.checkpoint.mirror
    if not place:
        raise ConfigError("a standby continues from checkpoint.mirror, which is empty")
    if is_announced(settings.address):
        raise ConfigError(
            f"a standby watches controller.address = {settings.address}: give it a host:port "
            "whose port is not 0"
        )
    if (run_dir / IDENTITY).exists():
        return WatchOutcome.LOST
    clock = asyncio.get_running_loop().time
    answered_at = clock()
    silence = Silence(settings, now=answered_at, unmeasured_s=settings.lost_after_s)
    log.info("standing_by controller=%s mirror=%s", settings.address, place)
    while not stop.is_set():
        state = await _state(config, within_s=silence.limit_s)
        if until_finished and state in (pb.RUN_STATE_FINISHED, pb.RUN_STATE_FAILED):
            log.info("run_ended state=%s", pb.RunState.Name(state))
            return WatchOutcome.ENDED
        if state is not None:
            answered_at = clock()
            silence.heard(now=answered_at)
        elif clock() - answered_at > silence.limit_s:
            try:
                term = await asyncio.to_thread(take_over, place, run_dir)
            except NotFound as error:
                log.info("nothing_to_take_over reason=%s", error)
            else:
                log.warning("took_over run_dir=%s mirror=%s term=%d", run_dir, place, term)
                return WatchOutcome.LOST
        await _pause(stop, settings.heartbeat_s)
    return WatchOutcome.STOPPED


async def _state(config: RunConfig, *, within_s: float) -> pb.RunState.ValueType | None:
    """The state of the run; unspecified if its controller refuses, None if it does not answer."""
    settings = config.controller
    security = Security.configured(config.tls, Role.CONTROLLER)
    client = ControllerClient(settings.address, security=security)
    try:
        return (await client.status(timeout_s=within_s)).state
    except ServiceLost:
        return None
    except FullrankError:
        return pb.RUN_STATE_UNSPECIFIED
    finally:
        await client.close()


async def _pause(stop: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await stop.wait()
    except TimeoutError:
        return


REMEDY = "; remove the cause, then `fullrank resume %s` or start without --until-finished"
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
            ended_elsewhere = await _serve_terms(launch, run_dir, stop=stop, health=health)
        except FullrankError as error:
            ending = record_failure(error, config, run_dir)
            heard = health.has_worked and not launch.stop_with_stdin  # a parent sees its exit code
            if ending is not None and (launch.until_finished or heard):
                await tell(ending, config, run_dir, stop, health=health)
            raise
        if not launch.until_finished or ended_elsewhere:
            return
        if (ending := read_ending(run_dir)) is None:
            raise ServiceLost(STOPPED)
        await tell(ending, config, run_dir, stop, health=health)


async def _serve_terms(
    launch: Launch, run_dir: Path, *, stop: asyncio.Event, health: Health
) -> bool:
    """Serve one term after the other; True if the run has ended elsewhere.

    Raises:
        FullrankError: The run cannot begin, or it failed.
    """
    config = launch.resolved.check().config
    if launch.standby:
        watched = await stand_by(config, run_dir, stop, until_finished=launch.until_finished)
        if watched is not WatchOutcome.LOST:
            return watched is WatchOutcome.ENDED
    while True:
        try:
            await _hold_and_serve(launch, config, run_dir, stop=stop, health=health)
        except Condemned as error:
            log.error("condemned reason=%s", error)
        else:
            return False


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
        endings = [stop.wait(), term.run.term_guard.superseded(), superseded]
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
