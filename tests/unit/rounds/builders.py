"""Builders for tests of ``Round``: updates, codes and contributing learners."""

import numpy as np

from fullrank.codes import Code, make_code, support
from fullrank.common.types import FloatArray, Matrix, Vector
from fullrank.common.updates import snap, unit_digest
from fullrank.rounds.decision import Decision, Decoded, Waiting
from fullrank.rounds.decoding import ExactDecoding
from fullrank.rounds.round import Round

SIZES = (5, 3, 4)
CODE = make_code("mds", rows=5, units=3)
ILL_CONDITIONED = Code(name="ill", matrix=np.array([[1.0, 1.0], [1.0, 1.0 + 2.0**-24], [1.0, 0.0]]))
LARGE = [snap(np.array(entries, np.float32)) for entries in ([0.3, -0.4], [0.1, 0.45])]


def draw_updates(seed: int = 0, sizes: tuple[int, ...] = SIZES) -> list[FloatArray]:
    generator = np.random.default_rng(seed)
    scale = 10.0 ** generator.uniform(-9, -1)
    return [snap((scale * generator.uniform(-1, 1, size)).astype(np.float32)) for size in sizes]


def pad(updates: list[FloatArray]) -> Matrix:
    """Updates padded with zeros to the longest, shape (M, P)."""
    padded = np.zeros((len(updates), max(map(len, updates))))
    for row, update in zip(padded, updates, strict=True):
        row[: len(update)] = update
    return padded


def encode(code: Code, row: int, updates: list[FloatArray]) -> Vector:
    return np.asarray(code.matrix[row] @ pad(updates))


def offer_row(round_: Round, code: Code, row: int, updates: list[FloatArray]) -> Decision:
    """Report and offer as an honest learner of this row does; returns the decision."""
    for unit in support(code.matrix[row]):
        round_.report(unit, unit_digest(updates[unit]), learner=row + 100)
    round_.offer(learner=row + 100, row=row, coded=encode(code, row, updates))
    return round_.decide()


def decoded(decision: Decision) -> Decoded:
    """The decision, which must carry updates."""
    assert isinstance(decision, Decoded)
    return decision


def culprit_of(decision: Decision) -> int | None:
    """The learner that was left out; None if there is none."""
    return decision.culprit if isinstance(decision, Decoded) else None


def reason_of(decision: Decision) -> str:
    """Reason of a decision against a commit."""
    assert not isinstance(decision, Waiting)
    return decision.reason


def open_round(code: Code = CODE, sizes: tuple[int, ...] = SIZES) -> Round:
    return Round(7, code, decoding=ExactDecoding(), target_sizes=sizes)
