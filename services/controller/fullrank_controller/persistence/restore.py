"""What the run's directory holds of the run: where a controller goes on, and what it repeats."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from fullrank.common.errors import CheckpointUnusable
from fullrank.runs.checkpoint import Checkpoint, newest, saved
from fullrank.runs.journal import Entry, read, survey
from fullrank.runs.recovery import checkpoints_lost, drop_superseded
from fullrank.training.trainer import Training
from fullrank_controller.persistence.run_directory import RunDirectory

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """Where a controller begins."""

    committed: int
    """Iterations in the checkpoint that was loaded; 0 without one."""
    head: int
    """The replay position that belongs to it."""
    known: int
    """Iterations that were ever committed, with those whose updates were not stored."""
    journalled: Sequence[Entry]
    """Those after the checkpoint whose updates are applied again."""

    @property
    def resumes_at(self) -> int:
        """The iteration that is committed next."""
        return self.committed + len(self.journalled)


def restore(directory: RunDirectory, training: Training) -> Restored:
    """Load the newest usable checkpoint, and read what was committed after it.

    Raises:
        CheckpointUnusable: There are or were checkpoints and none can be used: never a silent fresh
            start.
    """
    checkpoint = _checkpoint_in(directory)
    committed, head = 0, 0
    if checkpoint is not None:
        committed, head = checkpoint.iteration + 1, checkpoint.facts["replay_head"]
        training.load(checkpoint.arrays, resume_at=committed)
        log.info("resumed path=%s iterations=%d", checkpoint.path, committed)
    entries = _journalled_in(directory, committed)
    # From the first update that is not stored on, learners compute again what the journal only
    # knows by its digest.
    journalled = list(takewhile(lambda entry: entry.updates is not None, entries))
    return Restored(
        committed=committed, head=head, known=committed + len(entries), journalled=journalled
    )


def _checkpoint_in(directory: RunDirectory) -> Checkpoint | None:
    """The newest usable one; None for a run that has none yet."""
    for path in drop_superseded(directory.path):
        log.warning("checkpoint_taken_back path=%s", path)
    if not saved(directory.checkpoints):
        if checkpoints_lost(directory.path):
            raise CheckpointUnusable(
                f"{directory.checkpoints}: there were checkpoints, and all are gone; restore them "
                "from a copy, or start anew in another directory"
            )
        return None
    checkpoint = newest(directory.checkpoints)
    for reason in checkpoint.passed_over:
        log.warning("checkpoint_passed_over reason=%s", reason)
    return checkpoint


def _journalled_in(directory: RunDirectory, committed: int) -> list[Entry]:
    """What was committed after the checkpoint."""
    for segment in survey(directory.journal):
        if segment.fault:
            log.warning(
                "journal_ends_early path=%s reason=%s records=%d",
                segment.path,
                segment.fault,
                segment.records,
            )
    return read(directory.journal, first=committed)
