from typing import Any

import numpy as np
import pytest

from fullrank.codes import Code, codes
from fullrank.codes.base import CodeFamily
from fullrank.planning import candidates


def test_every_candidate_survives_a_loss_and_gives_every_unit() -> None:
    found = candidates(learners=15, units=8, seed=0)
    assert all(each.code.tolerance >= 1 and each.code.recovers_units for each in found)
    assert {f"cyclic,tolerance={s}" for s in range(1, 8)} < {each.label for each in found}


def test_codes_that_cannot_be_exact_are_no_candidates() -> None:
    names = {each.name for each in candidates(learners=15, units=8, seed=0)}
    assert "vandermonde" not in names
    assert names < set(codes)


def test_a_code_that_does_not_exist_for_the_sizes_is_left_out() -> None:
    assert "ldpc" not in {each.name for each in candidates(learners=14, units=8, seed=0)}


def test_few_learners_have_candidates_with_several_rows_each() -> None:
    for learners in (2, 5, 8):
        found = candidates(learners=learners, units=8, seed=0)
        assert all(each.code.learners == learners for each in found)
        assert all(each.code.rows_per_learner > 1 <= each.code.tolerance for each in found)
        assert "cyclic,tolerance=1" in {each.label for each in found}
    assert candidates(learners=1, units=8, seed=0) == ()


class TwoMessages(CodeFamily):
    """A plug-in whose learners always have two rows: each unit of two, sent by itself."""

    def rows_for(self, units: int) -> int:
        return units

    @classmethod
    def tolerating(cls, losses: int) -> dict[str, Any] | None:
        return {} if losses == 1 else None

    def build(self, *, rows: int, units: int, seed: int) -> Code:
        matrix = np.zeros((2 * rows, units))
        for row in range(2 * rows):
            matrix[row, (row // 2 + row % 2) % units] = 1.0
        return Code(name="two_messages", matrix=matrix, rows_per_learner=2)


def test_a_plug_in_of_several_rows_joins_the_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    for learners in (8, 9):
        before = {each.label for each in candidates(learners=learners, units=8, seed=0)}
        with monkeypatch.context() as patch:
            patch.setattr(codes, "_classes", codes._classes | {"two_messages": TwoMessages})
            found = candidates(learners=learners, units=8, seed=1)  # another key of the cache
        assert {each.label for each in found} == before | {"two_messages"}
