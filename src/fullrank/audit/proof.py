"""Proofs: recompute committed units from a checkpoint and the journal to settle a dispute.

The parameters of a past iteration are those of a checkpoint, stepped with the updates in the
journal. Any process with the run's numeric fingerprint computes the bits of an honest learner.
"""

from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TypeAlias

import numpy as np

from fullrank.algorithms import Algorithm
from fullrank.audit.ledger import Dispute
from fullrank.common.types import JSON, FloatArray, LearnerId, Matrix, UnitIndex
from fullrank.common.updates import unit_digest
from fullrank.replay.samplers import EachOnce, EpisodeDraw, Priority, RowDraw, Sample
from fullrank.replay.staging import AcceptedBlock
from fullrank.replay.table import TABLE
from fullrank.runs.journal_format import Entry

BLOCKS = "blocks"
"""Fact in the journal: the free blocks that no earlier iteration could draw."""


def blocks_in(entry: Entry) -> list[AcceptedBlock]:
    """Return the free blocks that no iteration before an entry's could draw.

    Raises:
        TypeError: The entry holds something else.
    """
    blocks = [AcceptedBlock(*facts) for facts in entry.facts.get(BLOCKS, ())]
    if not all(type(block.rows) is int and block.rows > 0 for block in blocks):
        raise TypeError("its blocks have no numbers of rows")
    return blocks


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Facts in the journal from which an iteration's units can be recomputed."""

    sample: Sample
    digests: Sequence[bytes]
    """Digests of the committed units."""
    reports: Mapping[LearnerId, Collection[UnitIndex]]
    """Units for which each learner had reported the committed digest before the commit."""
    exact: bool = True
    """True if the committed units equal the learners' updates bit for bit."""

    def to_facts(self) -> JSON:
        """Convert the evidence to JSON."""
        sample, priority, draw = self.sample, self.sample.priority, asdict(self.sample.draw)
        return {
            "sample": [sample.seed, sample.tail, sample.head, sample.size],
            "priority": asdict(priority) if priority else None,
            "episodes": draw or None,
            "once": asdict(sample.once) if sample.once else None,
            "digests": [digest.hex() for digest in self.digests],
            "reports": {str(learner): sorted(units) for learner, units in self.reports.items()},
        }

    @classmethod
    def of(cls, entry: Entry) -> "Evidence":
        """Read the evidence that ``to_facts`` wrote to a journal entry."""
        seed, tail, head, size = entry.facts["sample"]
        facts = entry.facts
        priority, episodes, once = facts["priority"], facts.get("episodes"), facts.get("once")
        return cls(
            sample=Sample(
                table=TABLE,
                seed=seed,
                iteration=entry.iteration,
                tail=tail,
                head=head,
                size=size,
                priority=Priority(**priority) if priority else None,
                draw=EpisodeDraw(**episodes) if episodes else RowDraw(),
                once=EachOnce(**once) if once else None,
            ),
            digests=tuple(map(bytes.fromhex, entry.facts["digests"])),
            reports={int(learner): digests for learner, digests in entry.facts["reports"].items()},
            exact=entry.facts["record"]["exact"],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The outcome of a proof."""

    wrong: int | None
    """First checked iteration whose committed bits are wrong; None if there is none."""
    culprits: Mapping[LearnerId, int]
    """Learners that reported wrong bits, each with the first iteration in which it did so."""


Proof: TypeAlias = Generator[Sample, FloatArray, Finding]
"""A proof under way: it asks for samples, takes their minibatches and ends in a finding."""


def advance(proof: Proof, batch: FloatArray | None) -> Sample | Finding:
    """Compute up to the next sample that a proof needs, or to its end.

    Args:
        proof: The proof.
        batch: The minibatch of the sample that it asked for; None at the beginning.
    """
    try:
        return next(proof) if batch is None else proof.send(batch)
    except StopIteration as end:
        finding: Finding = end.value
        return finding


def prove(
    algorithm: Algorithm,
    entries: Iterable[Entry],
    dispute: Dispute,
    *,
    since: int,
    report: Callable[[FloatArray], bytes] = unit_digest,
) -> Proof:
    """Settle a dispute, and find other wrong updates that its culprits had committed.

    The disputed units are recomputed and, in every iteration from ``since`` to the disputed one,
    each unit that was reported only by parties to the dispute.

    Args:
        algorithm: Algorithm with the parameters before the first entry; stepped in place.
        entries: Journal entries up to the disputed iteration, without a gap.
        dispute: The contradictory reports.
        since: First iteration after the last audited one.
        report: Returns an honest learner's report of an update.
    """
    wrong: int | None = None
    culprits: dict[LearnerId, int] = {}
    for entry in entries:
        evidence = Evidence.of(entry)
        units = _units(entry, evidence, dispute, since)
        recomputed: dict[UnitIndex, FloatArray] = {}
        if units:
            batch = yield evidence.sample
            compute = algorithm.gradients.compute
            recomputed.update(compute(batch, units, iteration=entry.iteration))
        true = {unit: report(update) for unit, update in recomputed.items()}
        amiss = [unit for unit in true if evidence.exact and true[unit] != evidence.digests[unit]]
        if amiss:
            wrong = entry.iteration if wrong is None else wrong
            _name(culprits, _vouched(evidence.reports, amiss), entry.iteration)
        if entry.iteration == dispute.iteration:
            _name(culprits, _contradicted(dispute, true), entry.iteration)
            break
        if amiss and entry.updates is None:  # the subsequent parameters are unknown
            break
        algorithm.optimiser.step(_updates(entry, recomputed, algorithm.problem.target))
    return Finding(wrong=wrong, culprits=culprits)


def doubtful_from(entries: Iterable[Entry], dispute: Dispute, *, since: int) -> int:
    """Find the iterations that rest on the parties to a dispute alone.

    Returns:
        The first iteration from ``since`` on, up to the disputed one, with a unit that only parties
        to the dispute, or no learner, had reported when it was committed.
    """
    for entry in entries:
        if since <= entry.iteration < dispute.iteration:
            evidence = Evidence.of(entry)
            if evidence.exact and _reported_by_parties(evidence, dispute):
                return entry.iteration
    return dispute.iteration


def _units(entry: Entry, evidence: Evidence, dispute: Dispute, since: int) -> list[UnitIndex]:
    """Select the units to recompute; all units if the journal does not hold the updates."""
    every = range(len(evidence.digests))
    if entry.updates is None:
        return list(every)
    disputed = dispute.units if entry.iteration == dispute.iteration else ()
    if entry.iteration < since or not evidence.exact:
        return list(disputed)
    return sorted({*disputed, *_reported_by_parties(evidence, dispute)})


def _reported_by_parties(evidence: Evidence, dispute: Dispute) -> list[UnitIndex]:
    """Select the units that no learner but parties to the dispute reported."""
    others = {
        unit
        for learner, units in evidence.reports.items()
        if learner not in dispute.parties
        for unit in units
    }
    return [unit for unit in range(len(evidence.digests)) if unit not in others]


def _updates(
    entry: Entry, recomputed: Mapping[UnitIndex, FloatArray], target: Matrix | None
) -> FloatArray:
    """Return the committed updates, or the recomputed ones if they were too large to store."""
    if entry.updates is not None:
        return entry.updates
    updates = np.zeros((len(recomputed), max(map(len, recomputed.values()))), np.float32)
    for unit, update in recomputed.items():
        updates[unit, : len(update)] = update
    if target is None:
        return updates
    return np.asarray(target @ updates.astype(np.float64) + 0.0, np.float32)


def _vouched(
    reports: Mapping[LearnerId, Collection[UnitIndex]], units: Collection[UnitIndex]
) -> list[LearnerId]:
    return [learner for learner, reported in reports.items() if set(reported) & set(units)]


def _contradicted(dispute: Dispute, true: Mapping[UnitIndex, bytes]) -> list[LearnerId]:
    return [
        learner
        for learner, reported in dispute.reports.items()
        if any(digest != true[unit] for unit, digest in reported.items())
    ]


def _name(culprits: dict[LearnerId, int], learners: Iterable[LearnerId], iteration: int) -> None:
    for learner in learners:
        culprits.setdefault(learner, iteration)
