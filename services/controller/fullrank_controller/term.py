"""One term of a run: its parts, made from the configuration and the restored state."""

import logging
from collections.abc import Callable

from fullrank.config.toml import to_toml
from fullrank.config.tree import RunConfig
from fullrank.rpc.clients import ReplayClient
from fullrank.rpc.codec import encode_agent
from fullrank.rpc.shared_memory import written_block
from fullrank.runs.event_log import EventLog
from fullrank.runs.events import Began
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
from fullrank_controller.progress import RunProgress
from fullrank_controller.rounds.auditor import Auditor
from fullrank_controller.rounds.network import NetworkRounds
from fullrank_controller.rounds.replay_pipeline import ReplayPipeline, TransitionTable
from fullrank_controller.run import Run
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
        problem=training.problem,
    )
    welcome, block = _welcome(config, identity, training, replay_address), written_block()
    if block is not None:
        welcome.block.CopyFrom(block.location)
    run = Run.of(
        config,
        identity,
        welcome=welcome,
        block=block,
        event_log=EventLog(directory.path, "controller"),
        roster=roster,
        progress=_progress_of(training, restored),
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


def _progress_of(training: Training, restored: Restored) -> RunProgress:
    """The progress with its caveats; inexact iterations keep their J, another gives other bits."""
    progress = RunProgress(committed=restored.committed)
    if not training.problem.data.exact:
        progress.record_caveat("data", INDEPENDENT_SAMPLES)
    records = [stored.record for stored in restored.journalled]
    pinned = [record.iteration for record in records if not record.exact]
    if pinned:
        caveat = (
            f"iterations {pinned} are not exact: J is pinned, their updates are repeated from the "
            "journal"
        )
        progress.record_caveat("exact", caveat)
        log.warning("inexact %s", caveat)
    return progress


def _welcome(
    config: RunConfig, identity: RunIdentity, training: Training, replay_address: str
) -> pb.Welcome:
    return pb.Welcome(
        run=identity.name,
        term=identity.term,
        configuration=to_toml(config),
        agents=[encode_agent(agent) for agent in training.collector.agents],
        state_size=training.state_size,
        masked=training.masked,
        replay_address=replay_address,
    )


def open_journal(directory: RunDirectory, restored: Restored) -> Journal:
    """Open the journal; this term's iterations supersede those of earlier terms."""
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
    """Make the driver of a run by learners, with its replay pipeline, auditor and planner."""
    auditor = Auditor(config, run, training, replay, directory)
    pipeline = make_pipeline(config, run, training, replay, watchdog=watchdog)
    rounds = NetworkRounds(
        config,
        run,
        training,
        replay,
        pipeline=pipeline,
        auditor=auditor,
        auto_code=_auto_code(config, training, run),
        watchdog=watchdog,
    )
    store = make_store(config, directory, training, run, journal=journal, publish=publish)
    return Driver(
        config,
        run,
        training,
        pipeline=pipeline,
        rounds=rounds,
        store=store,
        watchdog=watchdog,
    )


def make_pipeline(
    config: RunConfig, run: Run, training: Training, table: TransitionTable, *, watchdog: Watchdog
) -> ReplayPipeline:
    """Make the replay pipeline of a run over its table."""
    return ReplayPipeline(
        config,
        run.identity,
        training,
        table,
        event_log=run.event_log,
        watchdog=watchdog,
    )


def make_store(
    config: RunConfig,
    directory: RunDirectory,
    training: Training,
    run: Run,
    *,
    journal: Journal,
    publish: Callable[[IterationRecord], None],
) -> RunStore:
    """Make the durable side of a run."""
    return RunStore(
        directory,
        training,
        journal=journal,
        event_log=run.event_log,
        publish=publish,
        keep=config.checkpoint.keep,
    )


def _auto_code(config: RunConfig, training: Training, run: Run) -> AutoCode | None:
    """The planner of a run whose code is ``auto``, otherwise None."""
    if config.code.name != "auto":
        return None
    return AutoCode(config, training, roster=run.roster, membership=run.membership)
