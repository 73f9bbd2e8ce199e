"""Composition root of the controller: configuration and run directory to a serving run."""

import asyncio
import logging
from contextlib import AsyncExitStack
from pathlib import Path

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_fixed

from fullrank.common.errors import ConfigError, ServiceLost
from fullrank.common.imports import collecting_later
from fullrank.config.tree import RunConfig
from fullrank.rpc.addresses import resolve
from fullrank.rpc.health import Health
from fullrank.rpc.identity import Role
from fullrank.rpc.process import Launch, run, stop_event, tune_process
from fullrank.rpc.replay_client import ReplayClient
from fullrank.rpc.security import Security
from fullrank.wiring import Training
from fullrank_controller.membership.roster import Roster, expel_silent
from fullrank_controller.membership.verdicts import Verdicts
from fullrank_controller.persistence.restore import Restored, restore
from fullrank_controller.persistence.run_directory import RunDirectory
from fullrank_controller.ports import ControllerPorts
from fullrank_controller.rounds.disputes import RolledBack
from fullrank_controller.serving import drive, held, open_term, term_raised
from fullrank_controller.standby import stand_by
from fullrank_controller.term import make_network_driver

log = logging.getLogger(__name__)


def main(launch: Launch) -> int:
    """Start or resume the configured run and serve until told to stop; returns the exit code.

    A finished run stays up as FINISHED; starting it again never retrains.
    """
    if launch.run_dir is None:
        raise ConfigError("the controller keeps its run on disk; give --run-dir")
    with collecting_later():
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
    async with Health(config.health.address) as health:
        if launch.standby and not await stand_by(config, run_dir, stop):
            return
        while True:
            try:
                await _hold_and_serve(config, run_dir, stop=stop, health=health)
            except RolledBack as error:
                log.error("rolled_back reason=%s", error)
            else:
                return


async def _hold_and_serve(
    config: RunConfig,
    run_dir: Path,
    *,
    stop: asyncio.Event,
    health: Health,
) -> None:
    """Serve for one term.

    Raises:
        RolledBack: Wrong iterations are withdrawn on disk; continue with another term.
    """
    with held(config, run_dir) as (directory, training):
        await _serve(config, directory, training, stop=stop, health=health)


async def _serve(
    config: RunConfig,
    directory: RunDirectory,
    training: Training,
    *,
    stop: asyncio.Event,
    health: Health,
) -> None:
    restored = restore(directory, training)
    address = await _replay_address(config, directory, restored, stop)
    security = Security.of(config.tls, Role.CONTROLLER)
    async with AsyncExitStack() as stack:
        term = stack.enter_context(
            open_term(
                config,
                directory,
                training,
                restored,
                replay_address=address,
                roster=Roster(
                    Verdicts.of(directory, resumes_at=restored.resumes_at), config.controller
                ),
            )
        )
        replay = ReplayClient(address, deadline_s=config.replay.deadline_s, security=security)
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
        await drive(driver, term.run, restored, endings, liveness=liveness)


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
