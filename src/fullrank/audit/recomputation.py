"""Recomputation of committed iterations from checkpoints, the journal and the table.

The parameters before an iteration are those of a checkpoint, or those drawn from the seed, stepped
with the updates after it. With the sample in the journal and its rows in the table they determine
every unit, because an update is a pure function.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from fullrank.algorithms import Problem
from fullrank.audit.proof import NEWEST, Evidence
from fullrank.common.errors import Corrupted, InvalidContribution, OutOfRange
from fullrank.common.types import FloatArray
from fullrank.common.updates import update_digest
from fullrank.replay.authorship import Authorship
from fullrank.replay.samplers import Sample
from fullrank.runs.checkpoint import Arrays
from fullrank.runs.journal_format import Entry
from fullrank.runs.recovery import differences
from fullrank.training.centralised import Centralised
from fullrank.training.trainer import Trainer, part


@dataclass(frozen=True, slots=True, kw_only=True)
class Recomputed:
    """An iteration that was recomputed, or could not be."""

    iteration: int
    obstacle: str = ""
    """Why its units could not be computed; empty if they were, with the committed bits."""


def recompute(
    trainer: Trainer,
    entries: Sequence[Entry],
    *,
    seed: int,
    growth: int,
    gather: Callable[[Sample], FloatArray],
    saved: Callable[[int], Arrays | None],
    authored: Callable[[int], Authorship | None] = lambda position: None,
) -> Iterator[Recomputed]:
    """Compute committed iterations again and compare every stored fact about them.

    An iteration whose units cannot be computed is stepped with its stored updates, or skipped up to
    the next checkpoint if they were too large to store.

    Args:
        trainer: With the initial parameters of the run; stepped in place.
        entries: Journal entries without a gap, at least one.
        seed: The run's seed, the key of linear hashes.
        growth: Least number of rows that an iteration appends to the table.
        gather: Returns a sample's minibatch.
        saved: Returns the arrays of the checkpoint after an iteration; None if there is none.
        authored: Returns who wrote the episode that ends at a position; None if the table does not
            hold it.

    Yields:
        Every iteration, once it and the checkpoint after it were compared.

    Raises:
        Corrupted: An iteration differs; the message names the first one and the difference.
    """
    problem, gradients = trainer.algorithm.problem, trainer.algorithm.gradients
    evidence, unreadable = _evidence_in(entries, problem)
    centralised = Centralised(problem, gradients, seed=seed)
    known, computed = entries[0].iteration == 0, 0
    for entry, stored, intact in zip(entries, evidence, _intact(evidence, growth), strict=False):
        iteration, updates = entry.iteration, entry.updates
        before = None if known else saved(iteration - 1)
        if before is not None:
            trainer.load(before)
            known = True
        intact = intact and _is_own(entry, stored.sample, authored)
        obstacle = _obstacle(stored, known=known, intact=intact)
        if not obstacle:
            try:
                updates = _recomputed(trainer, centralised, entry, stored, gather)
                computed += 1
            except OutOfRange as error:
                obstacle = str(error)
            except _Different as error:
                hint = _hint(trainer, first=not computed) if error.every_unit else ""
                raise Corrupted(f"iteration {iteration} differs: {error}{hint}") from None
        known = known and updates is not None
        if known and updates is not None:
            trainer.apply(updates, iteration=iteration)
            _compare_parameters(trainer, iteration, saved(iteration))
        yield Recomputed(iteration=iteration, obstacle=obstacle)
    if unreadable is not None:
        raise unreadable


class _Different(Exception):
    """A recomputed iteration is not the committed one; the message names the difference."""

    def __init__(self, what: str, *, every_unit: bool = False) -> None:
        super().__init__(what)
        self.every_unit = every_unit


def _evidence_in(
    entries: Iterable[Entry], problem: Problem
) -> tuple[list[Evidence], Corrupted | None]:
    """The evidence up to the first entry that is not of this run, and the error that names it."""
    evidence: list[Evidence] = []
    for entry in entries:
        try:
            evidence.append(_evidence_of(entry, problem))
        except Corrupted as error:
            return evidence, error
    return evidence, None


def _evidence_of(entry: Entry, problem: Problem) -> Evidence:
    """Read an entry, of which only its checksum is known to be right."""
    try:
        evidence = Evidence.of(entry)
        if not all(type(place) is int for place in (evidence.sample.tail, evidence.sample.head)):
            raise ValueError("its sample has no positions")
        targets = len(problem.units) if problem.target is None else len(problem.target)
        if entry.updates is not None and entry.updates.shape != (targets, problem.vector_size):
            raise ValueError(f"its update has shape {entry.updates.shape}")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Corrupted(
            f"iteration {entry.iteration} differs: its journal entry is not of this run: {error!r}"
        ) from None
    return evidence


def _intact(evidence: Sequence[Evidence], growth: int) -> list[bool]:
    """Tell for each sample if its rows were kept: no later head is lower than appends make it.

    A table that was lost is filled anew at positions that earlier samples had drawn.
    """
    if not evidence:
        return []
    heads = np.array([item.sample.head for item in evidence]) - growth * np.arange(len(evidence))
    lowest_since = np.minimum.accumulate(heads[::-1])[::-1]
    return [
        not each.sample.size or bool(head <= lowest)
        for each, head, lowest in zip(evidence, heads, lowest_since, strict=True)
    ]


def _is_own(entry: Entry, sample: Sample, authored: Callable[[int], Authorship | None]) -> bool:
    """True unless another episode lies where the journal saw the newest one of the draw."""
    newest, held = entry.facts.get(NEWEST), None
    if newest is not None:
        held = authored(sample.head - 1)
    return held is None or list(held) == newest


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
) -> FloatArray:
    """The committed updates of an iteration, computed again.

    Raises:
        OutOfRange: The table does not hold its rows.
        _Different: They differ from the stored ones.
    """
    sample = evidence.sample
    if sample != trainer.sample(entry.iteration, tail=sample.tail, head=sample.head):
        raise _Different("its sample is not that of the run's configuration")
    try:
        batch = gather(sample)
    except (Corrupted, InvalidContribution) as error:
        raise _Different(f"its minibatch: {error}") from None
    targets = centralised.compute(batch, iteration=entry.iteration)
    if len(evidence.digests) != len(targets.reports):
        raise _Different(f"its journal entry has {len(evidence.digests)} units")
    wrong = [  # an empty digest is of a unit that no learner had reported
        unit
        for unit, (true, digest) in enumerate(zip(targets.reports, evidence.digests, strict=True))
        if digest not in (true, b"")
    ]
    if wrong:
        every_unit = len(wrong) == len(targets.reports)
        raise _Different(f"the updates of units {wrong}", every_unit=every_unit)
    if update_digest(targets.digests) != entry.facts["record"].get("update_digest"):
        raise _Different("the digest of its update")
    if entry.updates is not None and targets.updates.tobytes() != entry.updates.tobytes():
        raise _Different("the update in its journal entry")
    return targets.updates


def _hint(trainer: Trainer, *, first: bool) -> str:
    """Return why this process may compute other bits, unless it has computed some alike."""
    fingerprint = trainer.algorithm.gradients.fingerprint()
    if not first:  # moments become denormal after hundreds of iterations
        flushed = fingerprint.partition("; denormals ")[2]
        return flushed and f"; this process has denormal numbers {flushed}"
    return (
        "; nothing was recomputed before it, so that this machine or version may compute other "
        f"bits than the run's ({fingerprint})"
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
