"""One term of a run: its parts, made from the configuration and the restored state."""

import logging
from collections.abc import Callable

from fullrank.config import RunConfig, to_toml
from fullrank.rpc.clients import ReplayClient
from fullrank.rpc.codec import encode_agent
from fullrank.runs.event_log import Began, EventLog
from fullrank.runs.journal import Journal
from fullrank.runs.record import IterationRecord
from fullrank.v1 import controller_pb2 as pb
from fullrank.wiring import Training
from fullrank_controller.driver import Driver
from fullrank_controller.identity import RunIdentity
from fullrank_controller.membership.auto_code import AutoCode
from fullrank_controller.membership.roster import Roster
from fullrank_controller.persistence.restore import Restored
from fullrank_controller.persistence.run_directory import RunDirectory
from fullrank_controller.persistence.store import RunStore
from fullrank_controller.rounds.auditor import Auditor
from fullrank_controller.rounds.collector import Collector
from fullrank_controller.run import Run
from fullrank_controller.status import RunStatus
from fullrank_controller.watchdog import Watchdog

log = logging.getLogger(__name__)

INDEPENDENT_SAMPLES = (
    "no iteration is exact: learners draw samples of their own (algorithm.data = independent), and "
    "the bits depend on who answered; no digest, audit or residual would show a wrong update; a "
    "resumed run repeats the updates in its journal"
)
"""Caveat of runs with independent samples."""


def begin(
    config: RunConfig,
    directory: RunDirectory,
    training: Training,
    restored: Restored,
    *,
    replay_address: str,
    roster: Roster,
) -> Run:
    """Make the parts of a run, and record in its history that the term began."""
    identity = RunIdentity(
        name=directory.run,
        term=directory.term,
        iterations=config.iterations,
        unit_list=training.problem.units,
        vector_size=training.algorithm.problem.vector_size,
        target=training.algorithm.problem.target,
    )
    run = Run.of(
        config,
        identity,
        welcome=_welcome(config, identity, training, replay_address),
        event_log=EventLog(directory.path, "controller"),
        roster=roster,
        status=_status_of(training, restored),
    )
    run.event_log.append(
        Began(
            run=identity.name,
            term=identity.term,
            known=restored.known,
            resumes_at=restored.resumes_at,
        )
    )
    return run


def _status_of(training: Training, restored: Restored) -> RunStatus:
    """The status with its caveats; inexact iterations keep their J, another gives other bits."""
    status = RunStatus(committed=restored.committed)
    if not training.problem.data.exact:
        status.record_caveat("data", INDEPENDENT_SAMPLES)
    records = [stored.record for stored in restored.journalled]
    pinned = [record.iteration for record in records if not record.exact]
    if pinned:
        caveat = (
            f"iterations {pinned} are not exact: J is pinned, their updates are repeated from the "
            "journal"
        )
        status.record_caveat("exact", caveat)
        log.warning("inexact %s", caveat)
    return status


def _welcome(
    config: RunConfig, identity: RunIdentity, training: Training, replay_address: str
) -> pb.Welcome:
    return pb.Welcome(
        run=identity.name,
        term=identity.term,
        configuration=to_toml(config),
        agents=[encode_agent(agent) for agent in training.collector.agents],
        replay_address=replay_address,
    )


def open_journal(directory: RunDirectory, restored: Restored) -> Journal:
    """Open the term's own segment, which supersedes later iterations of earlier terms."""
    return Journal(
        directory.journal,
        term=directory.term,
        first=restored.resumes_at,
        confirm=directory.confirm,
    )


def make_driver(
    config: RunConfig,
    directory: RunDirectory,
    training: Training,
    run: Run,
    replay: ReplayClient,
    *,
    journal: Journal,
    publish: Callable[[IterationRecord], None],
    watchdog: Watchdog,
) -> Driver:
    """Make the driver of a run with its collector, auditor, planner and store."""
    auditor = Auditor(config, run, training, replay, directory)
    collector = Collector(
        config,
        run.identity,
        training,
        replay,
        event_log=run.event_log,
        spare_rows=auditor.spare_rows,
        watchdog=watchdog,
    )
    store = RunStore(
        directory,
        training,
        journal=journal,
        event_log=run.event_log,
        publish=publish,
        keep=config.checkpoint.keep,
    )
    return Driver(
        config,
        run,
        training,
        collector=collector,
        auditor=auditor,
        auto_code=_auto_code(config, training, run),
        store=store,
        watchdog=watchdog,
    )


def _auto_code(config: RunConfig, training: Training, run: Run) -> AutoCode | None:
    """The planner of a run whose code is ``auto``, otherwise None."""
    if config.code.name != "auto":
        return None
    return AutoCode(config, training, roster=run.roster, membership=run.membership)
