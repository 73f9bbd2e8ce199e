"""One term of a run, from what was restored: what its parts share, and what drives it."""

import logging
from collections.abc import Callable

from fullrank.algorithms import IndependentAlgorithm
from fullrank.config import RunConfig, to_toml
from fullrank.rpc.clients import ReplayClient
from fullrank.rpc.codec import encode_agent
from fullrank.runs.checkpoint import save, saved
from fullrank.runs.event_log import Began, EventLog
from fullrank.runs.journal import Journal
from fullrank.runs.record import IterationRecord
from fullrank.training.trainer import Training
from fullrank.v1 import controller_pb2 as pb
from fullrank_controller.driver import Driver
from fullrank_controller.membership.roster import Roster
from fullrank_controller.persistence.restore import Restored
from fullrank_controller.persistence.run_directory import RunDirectory
from fullrank_controller.rounds.auditor import Auditing
from fullrank_controller.run_state import Run
from fullrank_controller.watchdog import Watchdog

log = logging.getLogger(__name__)

OWN_SAMPLES = (
    "no iteration is exact: learners draw samples of their own (algorithm.data = independent), and "
    "the bits depend on who answered; no digest, audit or residual would show a wrong update; a "
    "resumed run repeats the updates in its journal"
)
"""What a run in that data mode does not promise."""


def begin(
    config: RunConfig,
    directory: RunDirectory,
    training: Training,
    restored: Restored,
    *,
    replay_address: str,
    roster: Roster,
) -> Run:
    """What the driver and the servicer share; the run's history says that the term began."""
    algorithm = training.algorithm
    run = Run(
        roster=roster,
        name=directory.run,
        term=directory.term,
        iterations=config.iterations,
        committed=restored.committed,
        event_log=EventLog(directory.path, "controller"),
        units=algorithm.units,
        vector_size=max(algorithm.unit_sizes),
        caveats={"data": OWN_SAMPLES} if isinstance(algorithm, IndependentAlgorithm) else {},
        welcome=pb.Welcome(
            run=directory.run,
            term=directory.term,
            configuration=to_toml(config),
            agents=[encode_agent(agent) for agent in training.agents],
            replay_address=replay_address,
        ),
    )
    _own_up(run, restored)
    run.event_log.append(
        Began(run=run.name, term=run.term, known=restored.known, resumes_at=restored.resumes_at)
    )
    return run


def _own_up(run: Run, restored: Restored) -> None:
    """Say which iterations are repeated with the J that they had; another would give other bits."""
    entries = restored.journalled
    pinned = [each.iteration for each in entries if not each.facts["record"]["exact"]]
    if pinned:
        run.caveats["exact"] = (
            f"iterations {pinned} are not exact: J is pinned, their updates are repeated from the "
            "journal"
        )
        log.warning("inexact %s", run.caveats["exact"])


def open_journal(directory: RunDirectory, restored: Restored) -> Journal:
    """The term's own segment; what earlier terms committed beyond ``restored`` is superseded."""
    return Journal(
        directory.journal,
        term=directory.term,
        first=restored.resumes_at,
        confirm=directory.confirm,
    )


def driver_of(
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
    """What drives the run, audits it, and checkpoints it in its directory."""

    def checkpoint(head: int) -> None:
        """Let go of what the journal no longer needs, too."""
        directory.confirm()
        save(
            directory.checkpoints,
            iteration=run.committed - 1,
            arrays=training.state(resume_at=run.committed),
            facts={"run": directory.run, "term": directory.term, "replay_head": head},
            keep=config.checkpoint.keep,
        )
        oldest = saved(directory.checkpoints)[-1]
        journal.begin_segment(run.committed, keep_from=int(oldest.name) + 1)

    return Driver(
        config,
        run,
        training,
        replay,
        journal=journal,
        auditing=Auditing(config, run, training, replay, directory),
        publish=publish,
        checkpoint=checkpoint,
        watchdog=watchdog,
    )
