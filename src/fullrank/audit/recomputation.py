"""Recomputation of committed iterations from checkpoints, the journal and the table.

The parameters before an iteration are those of a checkpoint, or those drawn from the seed, stepped
with the updates after it. With the sample in the journal and its rows in the table they determine
every unit, because an update is a pure function.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fullrank.algorithms import Problem
from fullrank.audit.proof import Evidence, blocks_in
from fullrank.common.errors import Corrupted, InvalidContribution, OutOfRange
from fullrank.common.rows import Rows
from fullrank.common.types import FloatArray, LearnerId, UnitIndex
from fullrank.common.updates import update_digest
from fullrank.replay.samplers import EpisodeDraw, Sample
from fullrank.runs.checkpoint import Arrays
from fullrank.runs.journal_format import Entry
from fullrank.runs.recovery import differences
from fullrank.training.block_collection import KeyedCollection
from fullrank.training.centralised import Centralised
from fullrank.training.trainer import Trainer, part


@dataclass(frozen=True, slots=True, kw_only=True)
class Discrepancy:
    """A stored fact that is not what the recomputed one is."""

    what: str
    units: tuple[UnitIndex, ...] = ()
    """Units whose committed update is another one."""
    every_unit: bool = False
    """True if that is so for every unit of the iteration."""
    reporters: tuple[LearnerId, ...] = ()
    """Learners that had reported a committed update of these units, -1 for the controller."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recomputed:
    """An iteration that was recomputed, or could not be."""

    iteration: int
    obstacle: str = ""
    """Why its units could not be computed; empty if they were."""
    difference: Discrepancy | None = None
    """The first difference from what is stored; None if all is equal, or was not computed."""


def recompute(
    trainer: Trainer,
    entries: Sequence[Entry],
    *,
    seed: int,
    growth: int,
    gather: Callable[[Sample], FloatArray],
    saved: Callable[[int], Arrays | None],
    collection: KeyedCollection | None = None,
    digest_of: Callable[[int, int], str | None] = lambda first, last: None,
) -> Iterator[Recomputed]:
    """Compute committed iterations again and compare every stored fact about them.

    An iteration whose units cannot be computed, or differ, is stepped with its stored updates, or
    skipped up to the next checkpoint if they were too large to store.

    Args:
        trainer: With the initial parameters of the run; stepped in place.
        entries: Journal entries without a gap, at least one.
        seed: The run's seed, the key of linear hashes.
        growth: Least number of rows that a collection appends to the table.
        gather: Returns a sample's minibatch.
        saved: Returns the arrays of the checkpoint after an iteration; None if there is none.
        collection: Derives columns of played rows; None where there are none.
        digest_of: Returns the digest of the rows [first, last); None if the table does not hold
            all of them.

    Yields:
        Every iteration, once it and the checkpoint after it were compared.

    Raises:
        Corrupted: A checkpoint, or an entry as a whole, is not that of the run; the message names
            the iteration.
    """
    problem, gradients = trainer.algorithm.problem, trainer.algorithm.gradients
    evidence, unreadable = _evidence_in(entries, problem)
    centralised = Centralised(problem, gradients, seed=seed)
    known = entries[0].iteration == 0
    columns = _Columns(collection, gather, updates=trainer.updates)
    intact_rows = _intact(evidence, growth, updates=trainer.updates)
    for entry, stored, intact in zip(entries, evidence, intact_rows, strict=False):
        iteration = entry.iteration
        updates: Rows | None = entry.updates
        before = None if known else saved(iteration - 1)
        if before is not None:
            trainer.load(before)
            columns.load(before, iteration)
            known = True
        if known:
            columns.publish(iteration)
        intact = intact and _is_own(entry, stored.sample, digest_of)
        obstacle, difference = _obstacle(stored, known=known, intact=intact), None
        if not obstacle:
            try:
                difference = columns.difference(stored.sample)
                if difference is None:
                    updates, difference = _recomputed(trainer, centralised, entry, stored, gather)
            except OutOfRange as error:
                obstacle = str(error)
        known = known and updates is not None
        if known and updates is not None:
            trainer.apply(updates, iteration=iteration)
            _compare_parameters(trainer, iteration, saved(iteration))
        yield Recomputed(iteration=iteration, obstacle=obstacle, difference=difference)
    if unreadable is not None:
        raise unreadable


def _evidence_in(
    entries: Iterable[Entry], problem: Problem
) -> tuple[list[Evidence], Corrupted | None]:
    """The evidence up to the first entry that is not of this run, and the error that names it."""
    evidence: list[Evidence] = []
    for entry in entries:
        try:
            evidence.append(evidence_of(entry, problem))
        except Corrupted as error:
            return evidence, error
    return evidence, None


def evidence_of(entry: Entry, problem: Problem) -> Evidence:
    """Read the evidence of an entry, of which only its checksum is known to be right.

    Raises:
        Corrupted: It is not of a run of this problem.
    """
    try:
        evidence = Evidence.of(entry)
        blocks_in(entry)
        if not all(type(place) is int for place in (evidence.sample.tail, evidence.sample.head)):
            raise ValueError("its sample has no positions")
        if entry.facts["record"]["iteration"] != entry.iteration:
            raise ValueError("its record is of another iteration")
        targets = len(problem.units) if problem.target is None else len(problem.target)
        if entry.updates is not None and entry.updates.shape != (targets, problem.vector_size):
            raise ValueError(f"its update has shape {entry.updates.shape}")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Corrupted(
            f"iteration {entry.iteration} differs: its journal entry is not of this run: {error!r}"
        ) from None
    return evidence


OTHER_SAMPLE = "its sample is not that of the run's configuration"


class _Columns:
    """The derived columns of a run's collections, each with the parameters that played it.

    Args:
        collection: Derives them; None where rows have none.
        gather: Returns a sample's minibatch.
        updates: K, updates over one collection.
    """

    def __init__(
        self,
        collection: KeyedCollection | None,
        gather: Callable[[Sample], FloatArray],
        *,
        updates: int,
    ) -> None:
        self._collection, self._gather, self._updates = collection, gather, updates

    def load(self, arrays: Arrays, iteration: int) -> None:
        """Take the parameters that play ahead from the checkpoint before an iteration."""
        if self._collection is not None:
            self._collection.load(arrays, resume_at=iteration // self._updates)

    def publish(self, iteration: int) -> None:
        """Keep the current parameters if an iteration is the first over its collection."""
        number, step = divmod(iteration, self._updates)
        if self._collection is not None and not step:
            self._collection.publish(number)
            self._collection.forget(number)

    def difference(self, sample: Sample) -> Discrepancy | None:
        """Derive the columns of a collection anew before the first update over it.

        Raises:
            OutOfRange: The table does not hold its rows.
        """
        number, step = divmod(sample.iteration, self._updates)
        if self._collection is None or step:
            return None
        if not isinstance(sample.draw, EpisodeDraw):  # derived columns are an episode's
            return Discrepancy(what=OTHER_SAMPLE)
        rows = self._gather(replace(sample, size=sample.draw.newest))
        if self._collection.rederived(number, rows).tobytes() == rows.tobytes():
            return None
        return Discrepancy(what="columns that were derived from its collection")


def _intact(evidence: Sequence[Evidence], growth: int, *, updates: int) -> list[bool]:
    """Tell for each sample if its rows were kept: no later head is lower than appends make it.

    A table that was lost is filled anew at positions that earlier samples had drawn.
    """
    if not evidence:
        return []
    collections = np.array([item.sample.iteration // updates for item in evidence])
    heads = np.array([item.sample.head for item in evidence]) - growth * collections
    lowest_since = np.minimum.accumulate(heads[::-1])[::-1]
    return [
        not each.sample.size or bool(head <= lowest)
        for each, head, lowest in zip(evidence, heads, lowest_since, strict=True)
    ]


def _is_own(entry: Entry, sample: Sample, digest_of: Callable[[int, int], str | None]) -> bool:
    """True unless other rows lie where the journal saw the newest blocks of the draw."""
    last = sample.head
    for block in reversed(blocks_in(entry)):
        held = digest_of(last - block.rows, last)
        if held not in (None, block.digest):
            return False
        last -= block.rows
    return True


def _obstacle(evidence: Evidence, *, known: bool, intact: bool) -> str:
    """The reason that an iteration's units cannot be computed; empty if there is none."""
    if not known:
        return "no checkpoint holds the parameters before it"
    if not evidence.exact:
        return "it is not exact: its bits depend on the rows received"
    return "" if intact else "its rows were lost, and the table filled anew"


def _recomputed(
    trainer: Trainer,
    centralised: Centralised,
    entry: Entry,
    evidence: Evidence,
    gather: Callable[[Sample], FloatArray],
) -> tuple[Rows | None, Discrepancy | None]:
    """The committed updates of an iteration, computed again, and how they differ.

    Where units differ, the updates are the stored ones, with which the run went on.

    Raises:
        OutOfRange: The table does not hold its rows.
    """
    sample, stored = evidence.sample, entry.updates
    if sample != trainer.sample(entry.iteration, tail=sample.tail, head=sample.head):
        return stored, Discrepancy(what=OTHER_SAMPLE)
    try:
        batch = gather(sample)
    except (Corrupted, InvalidContribution) as error:
        return stored, Discrepancy(what=f"its minibatch: {error}")
    targets = centralised.compute(batch, iteration=entry.iteration)
    if len(evidence.digests) != len(targets.reports):
        return stored, Discrepancy(what=f"its journal entry has {len(evidence.digests)} units")
    wrong = [  # an empty digest is of a unit that no learner had reported
        unit
        for unit, (true, digest) in enumerate(zip(targets.reports, evidence.digests, strict=True))
        if digest not in (true, b"")
    ]
    if wrong:
        return stored, _wrong_units(evidence, wrong)
    what = ""
    if update_digest(targets.digests) != entry.facts["record"].get("update_digest"):
        what = "the digest of its update"
    elif stored is not None and targets.updates.tobytes() != stored.tobytes():
        what = "the update in its journal entry"
    return targets.updates, Discrepancy(what=what) if what else None


def _wrong_units(evidence: Evidence, wrong: Sequence[UnitIndex]) -> Discrepancy:
    return Discrepancy(
        what=f"the updates of units {list(wrong)}",
        units=tuple(wrong),
        every_unit=len(wrong) == len(evidence.digests),
        reporters=tuple(
            sorted(
                learner
                for learner, units in evidence.reports.items()
                if not set(wrong).isdisjoint(units)
            )
        ),
    )


def _compare_parameters(trainer: Trainer, iteration: int, saved: Arrays | None) -> None:
    """Raise ``Corrupted`` if a checkpoint holds other parameters than the trainer."""
    if saved is None:
        return
    differing = differences(part(saved, "algorithm"), part(trainer.state(), "algorithm"))
    if differing:
        first = differing[0]
        raise Corrupted(
            f"iteration {iteration} differs: the parameters in the checkpoint after it, "
            f"{len(differing)} arrays, first {first.name} ({first.reason})"
        )
