"""A process attached to a controller: it dials until told to stop, and dials again when cut off.

With ``launch.until_finished`` it ends with its run, too.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable
from math import inf
from typing import TypeAlias

import grpc
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_random_exponential

from fullrank.common.errors import Malformed, NotFound, ServiceLost, StaleTerm, of_exit_code
from fullrank.common.place import PLACE
from fullrank.common.text import plain
from fullrank.config.tree import ControllerSettings
from fullrank.host.certificates import Role
from fullrank.host.process import STOPPED, Launch, first, stop_event
from fullrank.host.run_directory import resolve
from fullrank.net.channel import Security, expiry_of
from fullrank.net.controller_client import ControllerClient, Order
from fullrank.net.errors import checked
from fullrank.net.limits import Silence
from fullrank.net.prometheus import Exporter, gauge
from fullrank.net.server import Health
from fullrank.v1 import controller_pb2 as pb

Say: TypeAlias = Callable[..., None]
"""Logs a line, as ``Logger.info``."""

WELCOME_S = 10.0
"""Maximum wait from dial to Welcome, in seconds; a silent controller may be frozen."""

FIRST_LINE_S, LONGEST_LINE_S = 1.0, 600.0
"""Intervals between two lines about a controller that is away: the first, and the longest."""

Leave: TypeAlias = Callable[[], Awaitable[None]]
"""Takes leave of a controller, within a time of its own."""

Dial: TypeAlias = Callable[[str, Security, Health], Awaitable[None]]
"""Dials an address and serves the stream to its end."""


async def no_leave() -> None:
    """Leave at once."""


async def attach_as(
    role: Role,
    launch: Launch,
    dial: Dial,
    *,
    say: Say,
    stop: asyncio.Event | None = None,
    leave: Leave = no_leave,
) -> None:
    """Dial until ``stop`` is set, by default until the process receives a stop signal.

    It dials a restarted controller again. With ``launch.until_finished`` it ends with the run.

    Args:
        role: Role of this process.
        launch: Arguments of the service.
        dial: Serves one stream.
        say: Logs the events between streams.
        stop: Ends it.
        leave: Called when ``stop`` is set; the stream is served meanwhile.

    Raises:
        FullrankError: The failure is permanent, so that redialling cannot help.
        ServiceLost: It was told to stop before the end of the run that it was to serve.
    """
    health, ended = Health(launch.config.health.address), asyncio.Event()
    at_work = f"{role}_at_work", "1 while the controller can give it work."
    exporter = Exporter(
        launch.config.metrics.prometheus,
        lambda: [gauge(*at_work, health.working)],
        run_dir=launch.run_dir,
        name=f"{role}-{os.getpid()}",
        expires_at=lambda: expiry_of(launch.config.tls, role),
    )
    async with health, exporter:
        stop = stop or stop_event(launch)
        coroutines = [_dial_for_ever(role, launch, dial, health, say), _until(stop, leave)]
        if launch.until_finished:
            coroutines.append(_until_ended(role, launch, health, say, ended))
        await first(*coroutines)
    if launch.until_finished and not ended.is_set():
        raise ServiceLost(STOPPED)


async def welcomed(
    call: grpc.aio.StreamStreamCall[bytes, Order],
    kind: type[Order],
    hello: pb.LearnerMessage | pb.CollectorMessage,
    *,
    peer: str,
) -> pb.Welcome:
    """Say hello on a stream, and return the controller's welcome.

    Raises:
        ServiceLost: The controller ended the stream or has not answered within ``WELCOME_S``.
        Malformed: It answered something else.
    """
    try:
        async with asyncio.timeout(WELCOME_S):
            await call.write(hello.SerializeToString())
            answer = await received(call, kind)
    except TimeoutError:
        raise ServiceLost(f"{peer}: no welcome within {WELCOME_S:.0f} s") from None
    if not answer.HasField("welcome"):
        raise Malformed("it answers a hello with no welcome")
    return answer.welcome


async def received(call: grpc.aio.StreamStreamCall[bytes, Order], kind: type[Order]) -> Order:
    """Return the next message of a stream, which has messages of one kind.

    Raises:
        ServiceLost: The controller ended the stream.
        Malformed: Its bytes are no message.
    """
    message = checked(await call.read())
    if isinstance(message, kind):
        return message
    raise ServiceLost(f"the controller ended the stream: {await call.details()}".rstrip(": "))


async def keep_lease(
    client: ControllerClient,
    welcome: pb.Welcome,
    settings: ControllerSettings,
    *,
    role: Role,
    say: Say,
) -> None:
    """Send heartbeats for a stream from Welcome on, because the probe may take long.

    Raises:
        ServiceLost: The controller no longer knows this process, or has been silent for longer
            than ``lost_after_s``: it may be frozen and superseded by one of a later term.
    """
    PLACE.update(run=welcome.run, term=welcome.term, **{role: welcome.learner})
    clock = asyncio.get_running_loop().time
    silence = Silence(settings, now=clock())
    answered_at = clock()
    while True:
        await asyncio.sleep(settings.heartbeat_s)
        patience_s = silence.limit_s
        try:
            await client.heartbeat(welcome.lease, timeout_s=patience_s)
            answered_at = clock()
            silence.heard(now=answered_at)
        except NotFound as error:
            raise ServiceLost(str(error)) from None
        except ServiceLost as error:
            if clock() - answered_at > patience_s:
                raise
            say("heartbeat_failed %s=%d reason=%s", role, welcome.learner, error)


async def _until(stop: asyncio.Event, leave: Leave) -> None:
    await stop.wait()
    await leave()


async def _until_ended(
    role: Role, launch: Launch, health: Health, say: Say, ended: asyncio.Event
) -> None:
    """Set ``ended`` and return once the controller reports that the run is finished.

    It does so, too, if the run had failed before this process could work for it, so that a
    supervisor that starts it again after a failure stops doing so.

    Raises:
        FullrankError: The run failed while this process worked for it; of the same exit code.
    """
    while True:
        await asyncio.sleep(launch.config.controller.heartbeat_s)
        status = await _status(role, launch)
        if status is None or status.state not in (pb.RUN_STATE_FINISHED, pb.RUN_STATE_FAILED):
            continue
        if status.state == pb.RUN_STATE_FAILED and health.has_worked:
            raise of_exit_code(status.exit_code, f"the run failed: {plain(status.message)}")
        say("run_ended state=%s reason=%s", pb.RunState.Name(status.state), status.message)
        ended.set()
        return


async def _status(role: Role, launch: Launch) -> pb.GetStatusResponse | None:
    """The status of the run; None if its controller is unreachable, or answers nonsense."""
    security = await asyncio.to_thread(Security.configured, launch.config.tls, role)
    try:
        address = resolve(launch.config.controller.address, launch.run_dir, "controller")
        client = ControllerClient(address, security=security)
    except ServiceLost:
        return None
    try:
        return await client.status()
    except (ServiceLost, Malformed):
        return None
    finally:
        await client.close()


class Sparsely:
    """Says why a call is repeated at growing intervals, however often it is.

    Args:
        say: Logs a line.
        clock: Returns the time of a monotonic clock, in seconds.
    """

    def __init__(self, say: Say, clock: Callable[[], float]) -> None:
        self._say, self._clock = say, clock
        self._attempts, self._pause_s = 0, FIRST_LINE_S
        self._failed_at = self._said_at = -inf

    def failed(self, reason: BaseException | None) -> None:
        """Record a failed attempt; the first after a quiet time begins anew."""
        now = self._clock()
        if now - self._failed_at > LONGEST_LINE_S:
            self._attempts, self._pause_s, self._said_at = 0, FIRST_LINE_S, -inf
        self._failed_at = now
        self._attempts += 1
        if now - self._said_at >= self._pause_s or self._attempts == 1:
            self._say("dialling_again attempts=%d reason=%s", self._attempts, reason)
            self._pause_s = min(LONGEST_LINE_S, 2.0 * self._pause_s)
            self._said_at = now


def _check_cancelled() -> None:
    """Raise ``CancelledError`` if this task was cancelled but its last wait ignored that."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


async def _dial_for_ever(role: Role, launch: Launch, dial: Dial, health: Health, say: Say) -> None:
    sparsely = Sparsely(say, asyncio.get_running_loop().time)

    def say_why(state: RetryCallState) -> None:
        if state.outcome is not None:
            sparsely.failed(state.outcome.exception())

    retries = AsyncRetrying(
        retry=retry_if_exception_type((ServiceLost, Malformed, StaleTerm)),
        wait=wait_random_exponential(multiplier=0.1, max=2.0),
        before_sleep=say_why,
    )
    async for attempt in retries:
        with attempt:
            _check_cancelled()
            config = launch.config
            address = resolve(config.controller.address, launch.run_dir, "controller")
            security = await asyncio.to_thread(Security.configured, config.tls, role)
            await dial(address, security, health)
