"""A standby controller: it waits for the loss of a run's controller and takes the run over."""

import asyncio
import logging
from pathlib import Path

from fullrank.common.errors import ConfigError, FullrankError, NotFound, ServiceLost
from fullrank.config.tree import RunConfig
from fullrank.rpc.addresses import is_announced
from fullrank.rpc.controller_client import ControllerClient
from fullrank.rpc.identity import Role
from fullrank.rpc.security import Security
from fullrank.runs.mirror import take_over
from fullrank.runs.recovery import IDENTITY

log = logging.getLogger(__name__)


async def stand_by(config: RunConfig, run_dir: Path, stop: asyncio.Event) -> bool:
    """Return once the directory holds the run of the lost controller.

    A controller is lost once ``controller.address`` has not answered for ``lost_after_s``.
    Where that is wrong, as beyond a partition, the claim of a term decides: one controller goes on.
    A directory that holds the run already is that of a standby that had taken it over.

    Returns:
        False if it was told to stop before.

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
        return True
    clock = asyncio.get_running_loop().time
    answered_at = clock()
    log.info("standing_by controller=%s mirror=%s", settings.address, place)
    while not stop.is_set():
        if await _answers(config):
            answered_at = clock()
        elif clock() - answered_at > settings.lost_after_s:
            try:
                term = await asyncio.to_thread(take_over, place, run_dir)
            except NotFound as error:
                log.info("nothing_to_take_over reason=%s", error)
            else:
                log.warning("took_over run_dir=%s mirror=%s term=%d", run_dir, place, term)
                return True
        await _pause(stop, settings.heartbeat_s)
    return False


async def _answers(config: RunConfig) -> bool:
    settings = config.controller
    security = Security.of(config.tls, Role.CONTROLLER)
    client = ControllerClient(settings.address, security=security)
    try:
        await client.status(timeout_s=settings.lost_after_s)
    except ServiceLost:
        return False
    except FullrankError:
        return True  # it refuses, and so it lives
    else:
        return True
    finally:
        await client.close()


async def _pause(stop: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await stop.wait()
    except TimeoutError:
        return
