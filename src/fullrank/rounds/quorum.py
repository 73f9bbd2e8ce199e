"""The quorum of a round: the statements behind a commit when learners may lie together.

Learners *state* the same thing if they compute alike: the report of a unit, or where targets are
sums the vector of a row, which no report proves (``common.linear_hash``). With at most f liars a
statement that f + 1 learners make alike is true, because one of them is honest; and so is what the
controller computes itself. A quorum holds a round back until each statement that its commit rests
on is borne out in one of these ways (ADR 55).
"""

from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from blake3 import blake3

from fullrank.codes.base import Code
from fullrank.common.types import EncodedVector, FloatArray, LearnerId, UnitIndex
from fullrank.common.updates import DIGEST_BYTES, add_scaled
from fullrank.rounds.contributions import Contributions
from fullrank.rounds.reports import Claim
from fullrank.rounds.round import Round

Voices: TypeAlias = Mapping[LearnerId, Hashable]
"""The voice of each learner that counts; learners of one failure domain share one."""


Statements: TypeAlias = dict[Claim, dict[LearnerId, bytes]]
"""The value of each statement by the learners that made it."""


def claims_of(code: Code) -> list[Claim]:
    """The statements that a commit rests on: its units, or the distinct rows where it is sums."""
    if code.recovers_units:
        return [Claim((unit,)) for unit in range(code.units)]
    return list(dict.fromkeys(Claim.of_row(row) for row in code.matrix if row.any()))


def vector_digest(coded: EncodedVector) -> bytes:
    """BLAKE3-128 over a coded vector in float64."""
    return blake3(np.ascontiguousarray(coded, "<f8").view(np.uint8).data).digest(DIGEST_BYTES)


def computed_value(claim: Claim, updates: Mapping[UnitIndex, FloatArray], length: int) -> bytes:
    """The value of a row's statement, from the updates of its units.

    Args:
        claim: A row.
        updates: Update of each of its units, on the grid.
        length: P, entries of a coded vector.
    """
    coded = np.zeros(length)
    for unit, coefficient in zip(claim.units, claim.coefficients, strict=True):
        add_scaled(coded, coefficient, updates[unit])
    return vector_digest(coded)


def statements(contributions: Contributions, *, vectors: bool) -> Statements:
    """The statements of all learners in a round that is open.

    Args:
        contributions: Those of the round.
        vectors: True for the vectors of rows beside the reports, which takes a hash of each.
    """
    made: Statements = {}
    for learner, reports in contributions.reports.items():
        for unit, report in reports.items():
            made.setdefault(Claim((unit,)), {})[learner] = report
    if vectors:
        for row, offer in contributions.offers.items():
            if offer.coded is not None:
                claim = Claim.of_row(contributions.coefficients(row))
                made.setdefault(claim, {})[offer.learner] = vector_digest(offer.coded)
    return made


@dataclass(slots=True, kw_only=True)
class Quorum:
    """The rule of one round, with the controller's own computations.

    Args:
        faults: f, the learners that may lie together; 0: reports that agree are believed.
        drawn: Statements that are committed only once the controller has computed them.
    """

    faults: int = 0
    drawn: frozenset[Claim] = frozenset()
    computed: dict[Claim, bytes] = field(default_factory=dict)
    """Values that the controller computed."""

    def contradicted(self, round_: Round) -> dict[LearnerId, Claim]:
        """Learners that state something else than the controller computed, with one instance."""
        vectors = not all(claim.is_report for claim in self.computed)
        made = statements(round_.contributions, vectors=vectors) if self.computed else {}
        return {
            learner: claim
            for claim, value in self.computed.items()
            for learner, stated in made.get(claim, {}).items()
            if stated != value
        }

    def disputed(self, round_: Round) -> list[Claim]:
        """Statements on which learners disagree, and which the controller has not computed."""
        contributions = round_.contributions
        made = statements(contributions, vectors=not contributions.code.recovers_units)
        return [
            claim
            for claim, values in made.items()
            if len(set(values.values())) > 1 and claim not in self.computed
        ]

    def suspected(self, round_: Round) -> list[Claim]:
        """Statements that settle who is wrong in a corrupt round: the disputed ones, or all rows.

        Where all reports agree, only a vector can be wrong.
        """
        contributions = round_.contributions
        rows = {Claim.of_row(contributions.coefficients(row)) for row in round_.rows}
        return self.disputed(round_) or sorted(rows - self.computed.keys())

    def lacking(
        self, round_: Round, voices: Voices, *, without: LearnerId | None = None
    ) -> dict[Claim, set[Hashable]]:
        """Statements that the commit rests on and that are not borne out, with their voices.

        Args:
            round_: A round whose contributions agree and decode.
            voices: The learners that count.
            without: A learner whose contributions were left out.
        """
        if not self.faults and not self.drawn:
            return {}
        contributions = round_.contributions
        by_unit = contributions.code.recovers_units
        made = statements(contributions, vectors=not by_unit)
        heard = {
            claim: {voices[voter] for voter in values.keys() - {without} if voter in voices}
            for claim, values in made.items()
            if claim.is_report == by_unit and values.keys() - {without}
        }
        return {
            claim: voiced
            for claim, voiced in heard.items()
            if claim not in self.computed
            and (0 < self.faults >= len(voiced) or claim in self.drawn)
        }


def exclude(round_: Round, learners: Collection[LearnerId]) -> None:
    """Drop every contribution of some learners to a round."""
    for learner in learners:
        round_.contributions = round_.contributions.without(learner)
    round_.received = [other for other in round_.received if other not in learners]


def units_of(claims: Iterable[Claim]) -> list[UnitIndex]:
    """The units of some statements, ascending."""
    return sorted({unit for claim in claims for unit in claim.units})
