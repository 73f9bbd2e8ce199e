"""Sums of units: every code commits the bits of the centralised run, and audits cover them."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tests.faultlab.simulation import toy_algorithm
from tests.registries import shipped

from fullrank.codes import codes
from fullrank.common.errors import Corrupted
from fullrank.common.types import FloatArray
from fullrank.config import RunConfig, load
from fullrank.local import LocalRun

assert toy_algorithm  # importing it registers the algorithm

SMALL = {
    "algorithm.name": "summed_toy",
    "environment.copies": 1,
    "collect.warmup": 8,
    "collect.warmup_copies": 2,
    "stragglers.name": "fixed_k",
    "stragglers.k": 1,
    "stragglers.delay_s": 1.0,
    "iterations": 4,
}


def config(**settings: Any) -> RunConfig:
    return load(environ={}, options=SMALL | settings).check().config


@pytest.mark.parametrize(
    ("groups", "code", "learners"),
    [
        (groups, code, learners)
        for groups in (1, 2)
        for code in shipped(codes)
        for learners in (5, 6, 8)
        if code != "ldpc" or learners == 6  # ldpc exists for some sizes only
    ],
)
def test_sums_have_the_bits_of_the_centralised_run_by_every_code(
    groups: int, code: str, learners: int
) -> None:
    sums = {"environment.agents": 4, "algorithm.groups": groups}
    coded = LocalRun(config(**sums, **{"code.name": code, "learners": learners}))
    plain = LocalRun(config(**sums), coded=False)
    committed = [each.update_digest for each in coded.train()]
    assert committed == [each.update_digest for each in plain.train()]
    assert coded.parameter_digest() == plain.parameter_digest()


def test_a_sum_needs_one_row_of_each_group_of_fractional() -> None:
    run = LocalRun(config(**{"code.name": "fractional", "learners": 6, "stragglers.k": 3}))
    assert all(len(iteration.received) < 6 for iteration in run.train())


def test_a_wrong_unit_never_enters_a_committed_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"code.name": "mds", "learners": 6, "stragglers.k": 0}
    run = LocalRun(config(**settings), independent_learners=True)
    gradients, calls = run.training.algorithm.gradients, iter(range(100))
    honest = gradients.compute

    def wrong_once(*words: Any, **named: Any) -> Iterator[tuple[int, FloatArray]]:
        bad = next(calls) == 1
        for unit, update in honest(*words, **named):
            yield unit, np.negative(update) if bad and unit == 0 else update

    monkeypatch.setattr(gradients, "compute", wrong_once)
    with pytest.raises(Corrupted, match="iteration 0"):
        run.train()
