"""Composition root of the learner: replicas that share one import of torch and keep redialling."""

import asyncio
import logging
import os
import signal
import socket
import sys
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_random_exponential

from fullrank.common.errors import (
    ConfigError,
    FullrankError,
    InvalidContribution,
    ServiceLost,
    StaleTerm,
)
from fullrank.rpc.addresses import resolve
from fullrank.rpc.controller_client import ControllerClient
from fullrank.rpc.health import Health
from fullrank.rpc.identity import Role
from fullrank.rpc.process import (
    STOPPING,
    Launch,
    ignore_signals,
    print_error,
    signals_held,
    stop_event,
    tune_process,
)
from fullrank.rpc.prometheus import Exporter, Family, gauge
from fullrank.rpc.security import Security
from fullrank.rpc.tasks import first
from fullrank.runs.event_log import EventLog
from fullrank.v1 import controller_pb2 as pb
from fullrank_learner.run_context import RunContext, prepare
from fullrank_learner.session import Session

log = logging.getLogger(__name__)


def main(launch: Launch) -> int:
    """Run the replicas until a stop signal; return the exit code.

    Each replica is a separate process, forked before any thread or gRPC object exists, so that
    torch is imported, and the probe computed, once; unchanged pages are shared. It ends with this
    process, even if that is killed: this process alone holds the writing end of a pipe, which then
    closes.
    """
    import torch

    if launch.replicas > 1 and launch.config.health.address:
        raise ConfigError("health.address is one learner's; leave it empty with --replicas")
    prometheus = launch.config.metrics.prometheus
    if launch.replicas > 1 and prometheus and not prometheus.endswith(":0"):
        raise ConfigError("metrics.prometheus is one learner's; with --replicas its port must be 0")
    torch.set_num_threads(launch.config.compute.threads)
    if launch.replicas == 1:
        tune_process(launch)
        return _replica(launch)
    prepared = prepare(launch.resolved)
    tune_process(launch)
    pipe, held = os.pipe()
    supervised = replace(launch, supervisor=pipe)
    with signals_held():  # a signal between the first fork and the handlers would leave orphans
        children = [
            _fork(_apart(supervised, replica), prepared, close=held)
            for replica in range(launch.replicas)
        ]
        for number in STOPPING:
            signal.signal(number, lambda *_: _pass_on(children))
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    ignore_signals()
    return next((code for code in codes if code), 0)


def _apart(launch: Launch, replica: int) -> Launch:
    """Settings of a replica, which ``audit.byzantine`` counts apart unless their domain is given.

    Its user means processes that may be wrong alone; a machine that lies as one is named by
    ``learner.domain``.
    """
    config = launch.config
    if not config.audit.byzantine or config.learner.domain:
        return launch
    learner = replace(config.learner, domain=f"{socket.gethostname()}/{replica}")
    resolved = replace(launch.resolved, config=replace(config, learner=learner))
    return replace(launch, resolved=resolved)


def _fork(launch: Launch, prepared: RunContext | None, *, close: int) -> int:
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        os.close(close)
        code = _replica(launch, prepared)
    except Exception:
        log.exception("learner_crashed")
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _pass_on(children: list[int]) -> None:
    ignore_signals()
    for child in children:
        try:
            os.kill(child, signal.SIGTERM)
        except ProcessLookupError:
            continue


def _replica(launch: Launch, prepared: RunContext | None = None) -> int:
    try:
        asyncio.run(attach(launch, prepared=prepared))
    except FullrankError as error:
        log.error("learner_failed reason=%s", error)
        print_error(error)
        return error.exit_code
    return 0


async def attach(
    launch: Launch, stop: asyncio.Event | None = None, *, prepared: RunContext | None = None
) -> None:
    """Dial until ``stop`` is set, by default until the process receives a stop signal.

    Learners reconnect to a restarted controller. With ``launch.until_finished`` the learner ends
    when the run is finished.

    Raises:
        FullrankError: The failure is permanent, so that redialling cannot help.
    """
    async with Health(launch.config.health.address) as health:
        exporter = Exporter(
            launch.config.metrics.prometheus,
            lambda: _metrics(health),
            run_dir=launch.run_dir,
            name=f"learner-{os.getpid()}",
        )
        await exporter.start()
        coroutines = [_dial_for_ever(launch, health, prepared), _until(stop or stop_event(launch))]
        if launch.until_finished:
            coroutines.append(_until_finished(launch))
        try:
            await first(*coroutines)
        finally:
            await exporter.stop()


def _metrics(health: Health) -> Iterator[Family]:
    """Yield the metrics of this process."""
    yield gauge("learner_at_work", "1 while the controller can give it work.", health.working)


async def _until(stop: asyncio.Event) -> None:
    await stop.wait()


async def _until_finished(launch: Launch) -> None:
    while True:
        await asyncio.sleep(launch.config.controller.heartbeat_s)
        if await _is_finished(launch):
            log.info("run_finished")
            return


async def _is_finished(launch: Launch) -> bool:
    """Return whether the controller reports a finished run; False if it is unreachable."""
    security = Security.of(launch.config.tls, Role.LEARNER)
    try:
        address = resolve(launch.config.controller.address, launch.run_dir, "controller")
        client = ControllerClient(address, security=security)
    except ServiceLost:
        return False
    try:
        return (await client.status()).state == pb.RUN_STATE_FINISHED
    except ServiceLost:
        return False
    finally:
        await client.close()


def _say_why(state: RetryCallState) -> None:
    if state.outcome is not None:
        log.info("dialling_again reason=%s", state.outcome.exception())


def _check_cancelled() -> None:
    """Raise ``CancelledError`` if this task was cancelled and what it awaited has not heeded it."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


async def _dial_for_ever(launch: Launch, health: Health, prepared: RunContext | None) -> None:
    context: RunContext | None = None
    process = uuid.uuid4().bytes
    retries = AsyncRetrying(
        retry=retry_if_exception_type((ServiceLost, InvalidContribution, StaleTerm)),
        wait=wait_random_exponential(multiplier=0.1, max=2.0),
        before_sleep=_say_why,
    )
    event_log = EventLog(launch.run_dir, f"learner-{os.getpid()}")
    with (
        ThreadPoolExecutor(max_workers=1, thread_name_prefix="compute") as pool,
        closing(event_log),
    ):
        async for attempt in retries:
            with attempt:
                _check_cancelled()
                config = launch.config.controller
                address = resolve(config.address, launch.run_dir, "controller")
                session = Session(
                    address,
                    domain=launch.config.learner.domain,
                    pool=pool,
                    context=context,
                    prepared=prepared,
                    process=process,
                    health=health,
                    security=Security.of(launch.config.tls, Role.LEARNER),
                    event_log=event_log,
                )
                try:
                    await session.run()
                finally:
                    context = session.context
