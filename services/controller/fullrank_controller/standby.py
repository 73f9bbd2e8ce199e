"""A standby controller: it waits for the loss of a run's controller and takes the run over."""

import asyncio
import logging
from enum import Enum, auto
from pathlib import Path

from fullrank.common.errors import ConfigError, FullrankError, NotFound, ServiceLost
from fullrank.config.tree import RunConfig
from fullrank.host.certificates import Role
from fullrank.host.run_directory import is_announced
from fullrank.net.channel import Security
from fullrank.net.controller_client import ControllerClient
from fullrank.net.limits import Silence
from fullrank.runs.identity import IDENTITY
from fullrank.runs.mirror import take_over
from fullrank.v1 import controller_pb2 as pb

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
