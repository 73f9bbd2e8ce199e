"""Composition root of the learner: replicas that share one import of torch and keep redialling."""

import asyncio
import logging
import os
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace

from fullrank.common.errors import ConfigError
from fullrank.host.certificates import Role
from fullrank.host.children import run_replica, run_replicas
from fullrank.host.process import Launch, tune_process
from fullrank.net.attachment import attach_as
from fullrank.net.tracing import tracing
from fullrank.runs.events import EventLog
from fullrank_learner.run_context import LearnerContext, prepare
from fullrank_learner.session import LearnerSession

log = logging.getLogger(__name__)


def main(launch: Launch) -> int:
    """Run the replicas until a stop signal; return the exit code.

    Each replica is a separate process; several share one import of torch, and one probe, and their
    parent starts those again that are killed. So does that of the only one of ``fullrank train``;
    elsewhere a single learner has no parent, and whoever runs it, as Kubernetes does, sees its end.
    """
    import torch

    if launch.replicas > 1 and launch.config.health.address:
        raise ConfigError("health.address is one learner's; leave it empty with --replicas")
    prometheus = launch.config.metrics.prometheus
    if launch.replicas > 1 and prometheus and not prometheus.endswith(":0"):
        raise ConfigError("metrics.prometheus is one learner's; with --replicas its port must be 0")
    torch.set_num_threads(launch.config.compute.threads)
    if launch.replicas == 1 and not launch.stop_with_stdin:
        tune_process(launch)
        return run_replica(attach(launch))
    prepared = prepare(launch.resolved)
    tune_process(launch)

    def replica(launch: Launch, number: int) -> int:
        return run_replica(attach(_apart(launch, number), prepared=prepared, replica=number))

    return run_replicas(launch, replica, say=log.warning, clock=time.monotonic)


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


async def attach(
    launch: Launch,
    stop: asyncio.Event | None = None,
    *,
    prepared: LearnerContext | None = None,
    replica: int = 0,
) -> None:
    """Dial until ``stop`` is set, by default until the process receives a stop signal.

    Learners reconnect to a restarted controller. With ``launch.until_finished`` the learner ends
    when the run is finished.

    Raises:
        FullrankError: The failure is permanent, so that redialling cannot help.
    """
    event_log = EventLog(launch.run_dir, f"learner-{os.getpid()}")
    with (
        ThreadPoolExecutor(max_workers=1, thread_name_prefix="compute") as pool,
        closing(event_log),
        tracing("learner"),
    ):
        session = LearnerSession(
            launch.config, pool=pool, event_log=event_log, prepared=prepared, replica=replica
        )
        dial, leave = session.run, session.leave
        await attach_as(Role.LEARNER, launch, dial, say=log.info, stop=stop, leave=leave)
