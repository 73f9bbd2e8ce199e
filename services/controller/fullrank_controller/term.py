"""One term of a run: its parts, made from the configuration and the restored state."""

import asyncio
import logging
from dataclasses import dataclass
from functools import partial

from fullrank.common.errors import ConfigError
from fullrank.common.place import PLACE
from fullrank.config.toml import to_toml
from fullrank.config.tree import RunConfig
from fullrank.host.shared_memory import written_block
from fullrank.net.codec import encode_environment
from fullrank.runs.events import Began, EventLog
from fullrank.runs.identity import HEADS, JOURNAL
from fullrank.runs.journal import Journal
from fullrank.runs.verdicts import Verdicts
from fullrank.v1 import controller_pb2 as pb
from fullrank.wiring.containers import head_size_of
from fullrank.wiring.training import Training
from fullrank_controller.collectors.head_store import HeadStore
from fullrank_controller.identity import RunIdentity
from fullrank_controller.membership.roster import Roster
from fullrank_controller.persistence.restore import Restored
from fullrank_controller.persistence.run_directory import RunDirectory
from fullrank_controller.persistence.run_numerics import RunNumerics, own_numerics
from fullrank_controller.persistence.store import RunStore
from fullrank_controller.progress import RunProgress
from fullrank_controller.prometheus import Totals
from fullrank_controller.run import Run
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

    def keep_caveat(self, caveat: str) -> None:
        """Say for the life of the run what it has lost for good."""
        log.warning("lost_for_good %s", caveat)
        self.directory.keep_caveat(caveat)
        self.run.progress.lasting = self.directory.caveats


def begin(
    config: RunConfig,
    directory: RunDirectory,
    training: Training,
    restored: Restored,
    *,
    replay_address: str,
) -> Run:
    """Make the parts of a run, and record in its history that the term began."""
    identity = RunIdentity(directory.run_term, training.problem)
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
    event_log = EventLog(directory.path, "controller")
    progress = _progress_of(config, directory, training, restored)
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
    known, resumes_at = restored.known, restored.resumes_at
    run.event_log.append(
        Began(run=identity.name, term=identity.term, known=known, resumes_at=resumes_at)
    )
    if restored.committed < config.iterations:  # collectors play what is repeated, too
        numerics.settle(config.audit.fingerprint, own=partial(own_numerics, config, training))
    return run


def _heads(config: RunConfig, directory: RunDirectory, training: Training) -> HeadStore | None:
    """The heads of the containers of a run; None where collectors are none."""
    if not config.collectors.containers:
        return None
    size = head_size_of(config, training.environment)
    return HeadStore(directory.path / HEADS, size=size, confirm=directory.confirm)


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
        **encode_environment(training.environment),
        replay_address=replay_address,
        instance=identity.run_term.instance,
    )


def open_journal(directory: RunDirectory, restored: Restored) -> Journal:
    """Open the journal; this term's iterations supersede those of earlier terms."""
    return Journal(
        directory.path / JOURNAL,
        term=directory.term,
        first=restored.resumes_at,
        confirm=directory.confirm,
        sync=directory.store is None,
    )
