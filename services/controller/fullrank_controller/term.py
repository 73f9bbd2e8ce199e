"""One term of a run: its parts, made from the configuration and the restored state."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from fullrank.common.errors import ConfigError
from fullrank.common.place import PLACE
from fullrank.config.toml import to_toml
from fullrank.config.tree import RunConfig
from fullrank.host.shared_memory import written_block
from fullrank.net.codec import encode_agent
from fullrank.net.replay_client import ReplayClient
from fullrank.replay.pace import DrawWindow
from fullrank.replay.samplers import Sample
from fullrank.replay.staging import Grant
from fullrank.runs.events import Began, EventLog
from fullrank.runs.journal import Journal
from fullrank.runs.verdicts import Verdicts
from fullrank.training.blocks import BlockPlan
from fullrank.v1 import controller_pb2 as pb
from fullrank.wiring.containers import head_size_of
from fullrank.wiring.plugins import spec_of_agents
from fullrank.wiring.training import (
    Training,
    block_player_of,
    capacity_of,
    drawn_rows,
    pace_of,
    spare_rows,
)
from fullrank_controller.collectors.blocks_in import most_rows
from fullrank_controller.collectors.head_store import HEADS, HeadStore
from fullrank_controller.collectors.pool import CollectorPool
from fullrank_controller.driver import Driver
from fullrank_controller.identity import RunIdentity
from fullrank_controller.membership.roster import Roster
from fullrank_controller.persistence.restore import Restored
from fullrank_controller.persistence.rows import StoredRows
from fullrank_controller.persistence.run_directory import RunDirectory
from fullrank_controller.persistence.run_numerics import RunNumerics, own_numerics
from fullrank_controller.persistence.store import RunStore
from fullrank_controller.progress import RunProgress
from fullrank_controller.prometheus import Totals
from fullrank_controller.rounds.auditor import Auditor
from fullrank_controller.rounds.block_audit import BlockAudit
from fullrank_controller.rounds.disputes import Disputes
from fullrank_controller.rounds.free_playback import FreePlayback
from fullrank_controller.rounds.network import AutoCode, NetworkRounds
from fullrank_controller.rounds.playback import (
    KeyedPlayback,
    OwnPlayback,
    Playback,
    TransitionTable,
)
from fullrank_controller.rounds.port import Pipeline, Rounds
from fullrank_controller.rounds.replay_pipeline import ReplayPipeline
from fullrank_controller.run import Run
from fullrank_controller.saturation import SaturationLog
from fullrank_controller.watchdog import Watchdog

log = logging.getLogger(__name__)

INDEPENDENT_SAMPLES = (
    "no iteration is exact: learners draw samples of their own (algorithm.data = independent), and "
    "the bits depend on who answered; no digest, audit or residual would show a wrong update; a "
    "resumed run repeats the updates in its journal"
)
"""Caveat of runs with independent samples."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """The open parts of one term, which its driver and its ports share."""

    config: RunConfig
    directory: RunDirectory
    """The held directory."""
    training: Training
    run: Run
    store: RunStore
    totals: Totals
    watchdog: Watchdog


def begin(
    config: RunConfig,
    directory: RunDirectory,
    training: Training,
    restored: Restored,
    *,
    replay_address: str,
) -> Run:
    """Make the parts of a run, and record in its history that the term began."""
    identity = RunIdentity(
        name=directory.run,
        term=directory.term,
        instance=directory.instance,
        problem=training.problem,
    )
    PLACE.update(run=identity.name, term=identity.term)
    verdicts = Verdicts(
        directory.path,
        term=directory.term,
        confirm=directory.confirm,
        resumes_at=restored.resumes_at,
    )
    if config.iterations < restored.known:
        raise ConfigError(
            f"iterations = {config.iterations}: the run has {restored.known}; give at least as many"
        )
    roster = Roster(verdicts, config.controller)
    welcome, block = _welcome(config, identity, training, replay_address), written_block()
    if block is not None:
        welcome.block.CopyFrom(block.location)
    event_log, progress = (
        EventLog(directory.path, "controller"),
        _progress_of(config, directory, training, restored),
    )
    numerics = RunNumerics(
        directory.path,
        term=identity.term,
        since=restored.resumes_at,
        roster=roster,
        event_log=event_log,
        progress=progress,
    )
    run = Run.of(
        config,
        identity,
        welcome=welcome,
        block=block,
        event_log=event_log,
        roster=roster,
        progress=progress,
        fix_numerics=numerics.fix,
        heads=_heads(config, directory, training),
    )
    run.term_guard.witnesses.append(partial(asyncio.to_thread, directory.confirm))
    if directory.store is not None:
        run.term_guard.witnesses.append(partial(asyncio.to_thread, directory.store.log.confirm))
    run.event_log.append(
        Began(
            run=identity.name,
            term=identity.term,
            known=restored.known,
            resumes_at=restored.resumes_at,
        )
    )
    if restored.committed < config.iterations:  # collectors play what is repeated, too
        numerics.settle(config.audit.fingerprint, own=partial(own_numerics, config, training))
    return run


def _heads(config: RunConfig, directory: RunDirectory, training: Training) -> HeadStore | None:
    """The heads of the containers of a run; None where collectors are none."""
    if not config.collectors.containers:
        return None
    spec = spec_of_agents(
        config,
        training.collector.agents,
        state_size=training.state_size,
        masked=training.masked,
    )
    return HeadStore(
        directory.path / HEADS, size=head_size_of(config, spec), confirm=directory.confirm
    )


def _progress_of(
    config: RunConfig, directory: RunDirectory, training: Training, restored: Restored
) -> RunProgress:
    """The progress with its caveats; inexact iterations keep their J, another gives other bits."""
    progress = RunProgress(committed=restored.committed, iterations=config.iterations)
    progress.lasting = directory.caveats
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
        instance=identity.instance,
    )


def open_journal(directory: RunDirectory, restored: Restored) -> Journal:
    """Open the journal; this term's iterations supersede those of earlier terms."""
    return Journal(
        directory.journal,
        term=directory.term,
        first=restored.resumes_at,
        confirm=directory.confirm,
        sync=directory.store is None,
    )


def make_network_driver(term: Term, replay: ReplayClient) -> Driver:
    """Make the driver of a run by learners, with its replay pipeline, auditor and planner."""
    config, run, training = term.config, term.run, term.training
    term.store.rows = _stored_rows(term, replay)
    pipeline = make_pipeline(term, replay, _playback(term, replay, run.collectors))
    rounds = NetworkRounds(
        config,
        run,
        training,
        replay,
        pipeline=pipeline,
        auditor=Auditor(config, run, training, replay, secret=term.directory.secret),
        disputes=Disputes(
            config, run, training, replay, term.directory, condemn=term.store.condemn
        ),
        auto_code=_auto_code(config, training, run),
        watchdog=term.watchdog,
    )
    return make_driver(term, pipeline, rounds)


def make_pipeline(
    term: Term,
    table: TransitionTable,
    playback: Playback,
    *,
    holds: Callable[[Sample], bool] | None = None,
    report: Callable[[str], None] | None = None,
) -> ReplayPipeline:
    """Make the replay pipeline of a run over its table.

    The progress of the warm-up goes to ``report``, by default to the run's status.
    """
    return ReplayPipeline(
        term.config,
        term.run.identity,
        term.training,
        table,
        playback=playback,
        event_log=term.run.event_log,
        watchdog=term.watchdog,
        lost=partial(_keep_caveat, term),
        stored=term.store.rows,
        holds=holds,
        report=report or term.run.progress.warming,
    )


def _stored_rows(term: Term, replay: ReplayClient) -> StoredRows | None:
    """The rows of the table in the run's store; None without one."""
    if term.directory.store is None:
        return None
    return StoredRows(
        term.directory.store,
        replay,
        drawn=drawn_rows(term.config, term.training),
        row_size=term.training.collector.layout.row_size,
        each=term.config.collect.mode == "free",
    )


def own_playback(term: Term, table: TransitionTable) -> OwnPlayback:
    """Let this process play, and append to the run's table."""
    return OwnPlayback(term.training.collector.collection, table, watchdog=term.watchdog)


def _playback(term: Term, replay: ReplayClient, pool: CollectorPool | None) -> Playback:
    """Let the collectors of a run play; without any, this process."""
    collection = term.training.collector.collection
    if pool is None:
        return own_playback(term, replay)
    audit = _block_audit(term, pool)
    playbacks: dict[str, Callable[..., Playback]] = {
        "keyed": KeyedPlayback,
        "free": partial(FreePlayback, window=partial(_draw_window, term)),
    }
    playback = playbacks[term.config.collect.mode]
    return playback(collection, replay, pool, _grant(term, pool.plan), audit=audit)


def _block_audit(term: Term, pool: CollectorPool) -> BlockAudit:
    """Make the audit of blocks, which plays as collectors do."""
    config, training = term.config, term.training
    return BlockAudit(
        pool,
        share=config.audit.blocks,
        secret=term.directory.secret,
        make_player=partial(
            block_player_of,
            config,
            training.collector.agents,
            state_size=training.state_size,
            masked=training.masked,
        ),
        own_numerics=partial(own_numerics, config, training),
        watchdog=term.watchdog,
    )


def _grant(term: Term, plan: BlockPlan) -> Grant:
    """Return what a collector may stage in a block."""
    collector, problem = term.training.collector, term.training.problem
    most = most_rows(problem.row_size)
    if collector.horizon:
        most = min(most, len(plan.copies_of(0)) * (collector.horizon + 1))
    return Grant(most_rows=most, episodes=problem.episodes)


def _draw_window(term: Term, iteration: int, head: int, episodes: int | None) -> DrawWindow:
    """Make the window of draws that begins with an iteration."""
    newest = capacity_of(term.config, term.training)
    return DrawWindow(
        pace_of(term.config),
        capacity=newest + spare_rows(term.config, term.training),
        newest=newest,
        following=iteration,
        head=head,
        episodes=episodes,
    )


def _keep_caveat(term: Term, caveat: str) -> None:
    """Say for the life of the run what it has lost for good."""
    log.warning("lost_for_good %s", caveat)
    term.directory.keep_caveat(caveat)
    term.run.progress.lasting = term.directory.caveats


def make_driver(term: Term, pipeline: Pipeline, rounds: Rounds) -> Driver:
    """Make the driver of a run over its rounds."""
    return Driver(
        term.config,
        term.run,
        term.training,
        pipeline=pipeline,
        rounds=rounds,
        store=term.store,
        saturation=SaturationLog(term.directory.caveats, keep=partial(_keep_caveat, term)),
        watchdog=term.watchdog,
    )


def _auto_code(config: RunConfig, training: Training, run: Run) -> AutoCode | None:
    """The planner of a run whose code is ``auto``, otherwise None."""
    if config.code.name != "auto":
        return None
    return AutoCode(config, training, roster=run.roster, membership=run.membership)
