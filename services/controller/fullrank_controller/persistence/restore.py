"""The state of a run in its directory: where a controller resumes, and which updates it repeats."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fullrank.audit.proof import BLOCKS
from fullrank.audit.recomputation import evidence_of
from fullrank.common.errors import CheckpointUnusable
from fullrank.common.types import FloatArray
from fullrank.runs.checkpoint import Checkpoint, newest, saved
from fullrank.runs.identity import CHECKPOINTS, JOURNAL
from fullrank.runs.journal import ever_committed, read_whole
from fullrank.runs.journal_format import Entry
from fullrank.runs.record import METRICS, Condemnation, IterationRecord, from_facts
from fullrank.runs.recovery import checkpoints_lost, drop_condemned
from fullrank.sinks.jsonl import complete
from fullrank.wiring.training import Training
from fullrank_controller.persistence.run_directory import RunDirectory

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredIteration:
    """A committed iteration with the updates that the journal holds."""

    record: IterationRecord
    updates: FloatArray
    """Shape (M, P) float32."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """The state from which a controller resumes."""

    committed: int
    """Iterations in the loaded checkpoint; 0 without one."""
    head: int
    """Replay position from which the run goes on."""
    known: int
    """Iterations that were ever committed, including those whose updates were not stored."""
    journalled: Sequence[StoredIteration]
    """Iterations after the checkpoint whose updates are applied again."""

    @property
    def resumes_at(self) -> int:
        """The iteration that is committed next."""
        return self.committed + len(self.journalled)


def restore(directory: RunDirectory, training: Training) -> Restored:
    """Load the newest usable checkpoint, and read the iterations committed after it.

    The metrics get the lines that they lack of iterations that the journal holds: a power cut loses
    some, and those of a store end with its newest checkpoint. Iterations that were published, and
    that the journal does not hold any more, are condemned there.

    Raises:
        CheckpointUnusable: There are or were checkpoints and none can be used: the run never
            restarts from the beginning without notice. Or the files are of another run.
        Corrupted: The journal is of another run.
        Malformed: It holds something else than iterations.
    """
    checkpoint, digest = _checkpoint_in(directory), directory.config_digest
    journal, metrics = directory.path / JOURNAL, directory.path / METRICS
    committed, head = 0, 0
    if checkpoint is not None:
        if (stored := checkpoint.facts.get("replay_head")) is None:
            raise CheckpointUnusable(f"{checkpoint.path} does not say how many rows replay held")
        if checkpoint.facts.get("config_digest", digest) != digest:
            raise CheckpointUnusable(
                f"{checkpoint.path} is of a run with other settings that determine its bits; "
                "restore config.toml, or the checkpoints of this run, from a copy"
            )
        committed, head = checkpoint.iteration + 1, stored
        training.load(checkpoint.arrays, resume_at=committed)
        log.info("resumed path=%s iterations=%d", checkpoint.path, committed)
    entries, fault = read_whole(journal, first=committed)
    known = committed + len(entries)
    if fault:
        log.warning("journal_ends_early iteration=%d %s", known, fault)
    else:
        known = max(known, ever_committed(journal))
    earlier = [entry for entry in read_whole(journal)[0] if entry.iteration < committed]
    records = [*map(_record_of, entries)]
    lines = [*map(_record_of, earlier), *records]
    complete(metrics, lines, Condemnation(condemned=known, term=directory.term))
    journalled = list(_repeatable(entries, records))
    for entry in entries[: len(journalled)]:
        sample = evidence_of(entry, training.problem).sample
        if BLOCKS in entry.facts:  # its rows are kept, not played again
            head = sample.head
    return Restored(committed=committed, head=head, known=known, journalled=journalled)


def _record_of(entry: Entry) -> IterationRecord:
    """Read the record of an entry, of which only its checksum is known to be right."""
    record = from_facts(entry.facts.get("record", {}))
    if record.iteration != entry.iteration:
        raise CheckpointUnusable(
            f"the journal's iteration {entry.iteration} has the record of another one"
        )
    return record


def _repeatable(
    entries: Sequence[Entry], records: Sequence[IterationRecord]
) -> Iterator[StoredIteration]:
    """Iterations up to the first whose update is not stored; learners recompute all later ones."""
    for entry, record in zip(entries, records, strict=True):
        if entry.updates is None:
            return
        yield StoredIteration(record=record, updates=entry.updates)


def _checkpoint_in(directory: RunDirectory) -> Checkpoint | None:
    """The newest usable checkpoint; None for a run that has none yet."""
    for path in drop_condemned(directory.path):
        log.warning("checkpoint_condemned path=%s", path)
    checkpoints = directory.path / CHECKPOINTS
    if not saved(checkpoints):
        if checkpoints_lost(directory.path):
            raise CheckpointUnusable(
                f"{checkpoints}: the run has committed iterations, and nothing is left "
                "from which it could resume; restore checkpoints and journal from a copy, or start "
                "anew in another directory"
            )
        return None
    checkpoint = newest(checkpoints)
    for reason in checkpoint.passed_over:
        log.warning("checkpoint_passed_over reason=%s", reason)
    return checkpoint
