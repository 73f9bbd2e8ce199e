"""The grace of a round follows from the spread of recent ones."""

from collections.abc import Callable, Mapping, Sequence
from math import inf
from statistics import fmean

import numpy as np
import pytest

from fullrank.codes import codes
from fullrank.codes.learner_codes import code_for_learners
from fullrank.common.types import Times
from fullrank.planning.grace import (
    FEWEST,
    FIRST,
    Grace,
    Return,
    first_grace,
    played_through,
    returns_of,
)
from fullrank.runs.record import IterationRecord

LEARNERS, ROUNDS = 8, 300

Rounds = tuple[Times, Times]
"""Times of return and of one unit, shape (ROUNDS, LEARNERS)."""


def jitter(rng: np.random.Generator) -> Times:
    return np.asarray(np.exp(0.1 * rng.standard_normal((ROUNDS, LEARNERS)) - 0.005))


def calm(rng: np.random.Generator) -> Rounds:
    unit_s = jitter(rng)
    return unit_s, unit_s


def delayed(rng: np.random.Generator) -> Rounds:
    unit_s = jitter(rng)
    return unit_s + 10.0 * (rng.random(unit_s.shape) < 0.05), unit_s


def slow_machines(rng: np.random.Generator) -> Rounds:
    unit_s = jitter(rng)
    unit_s[:, :2] *= 3.0
    return unit_s, unit_s


def all_late(rng: np.random.Generator) -> Rounds:
    unit_s = jitter(rng)
    return unit_s + rng.exponential(5.0, unit_s.shape), unit_s


def durations(times: Rounds) -> list[tuple[float, float, bool]]:
    """Seconds of each round without and with further work, and if some of it was in vain."""
    grace, rounds = Grace(), []
    for finish_s, unit_s in zip(*times, strict=True):
        returns = [
            Return(*each, 1) for each in zip(finish_s.tolist(), unit_s.tolist(), strict=True)
        ]
        last_s, grace_s = max(finish_s.tolist()), grace.seconds
        end_s, in_vain = last_s, False
        if grace_s < last_s:
            end_s, in_vain = played_through(sorted(returns), grace_s)
        rounds.append((last_s, end_s, in_vain))
        seen = [each if each.finish_s <= end_s else each._replace(finish_s=inf) for each in returns]
        grace.observe(seen, needed=LEARNERS)
    return rounds


GAINS: Sequence[tuple[Callable[[np.random.Generator], Rounds], float]] = [
    (delayed, 2.2),
    (slow_machines, 1.4),
    (all_late, 2.5),
]
"""Kinds of lateness, and by how much further work shortens their rounds at least."""


@pytest.mark.parametrize(("kind", "gain"), GAINS)
def test_late_rounds_end_sooner(kind: Callable[[np.random.Generator], Rounds], gain: float) -> None:
    rounds = durations(kind(np.random.default_rng(3)))
    waited_s, ended_s = (fmean(each[index] for each in rounds) for index in (0, 1))
    assert waited_s / ended_s >= gain
    assert all(end_s <= last_s for last_s, end_s, _ in rounds)


def test_calm_rounds_are_left_alone() -> None:
    rounds = durations(calm(np.random.default_rng(3)))
    assert fmean(in_vain for _, _, in_vain in rounds) < 0.05


def test_the_first_rounds_have_a_cautious_grace() -> None:
    grace = Grace()
    assert grace.seconds == inf
    for _ in range(FEWEST - 1):
        grace.observe([Return(2.0, 2.0, 1)] * 4, needed=4)
        assert grace.seconds == FIRST * 2.0


def test_the_first_round_learns_its_grace_from_its_own_returns() -> None:
    assert first_grace([], 4) == first_grace([1.0], 4) == inf
    assert first_grace([3.0, 1.0], 4) == first_grace([9.0, 1.0, 3.0], 4) == FIRST * 3.0
    late = [*[Return(1.0, 1.0, 1)] * 3, Return(90.0, 1.0, 1)]
    assert Grace().play(late) == FIRST + 1.0
    assert Grace().play([Return(1.0, 1.0, 1), *[Return(90.0, 1.0, 1)] * 3]) == 90.0


def test_a_round_of_which_most_returns_are_unknown_changes_nothing() -> None:
    grace = Grace()
    grace.observe([Return(1.0, 1.0, 1), *[Return(inf, 1.0, 1)] * 3], needed=4)
    assert grace.seconds == inf


def test_learners_beyond_those_that_decide_are_not_waited_for() -> None:
    grace = Grace()
    for _ in range(FEWEST):
        grace.observe([*[Return(1.0, 1.0, 1)] * 3, Return(inf, 1.0, 1)], needed=3)
    assert grace.seconds >= 1.0


def test_learners_without_a_row_compute_late_units_from_the_end_of_the_grace_on() -> None:
    late, spare = Return(9.0, 1.0, 1), Return(0.0, 1.0, 0)
    assert played_through([spare, Return(2.0, 1.0, 1), late], 0.5) == (2.5, True)
    assert played_through([spare, spare, Return(2.0, 1.0, 1), late], 0.5) == (1.5, True)
    assert played_through([Return(2.0, 1.0, 1), late], 0.5) == (3.0, False)


def test_learners_without_a_row_do_not_set_the_grace() -> None:
    grace = Grace()
    for _ in range(FEWEST):
        grace.observe([*[Return(0.0, 2.0, 0)] * 5, *[Return(2.0, 2.0, 1)] * 3], needed=8)
    assert grace.seconds >= 2.0


def recorded(
    rows: Mapping[int, int], compute_s: Mapping[int, float], arrival_s: Mapping[int, float]
) -> IterationRecord:
    return IterationRecord(
        iteration=3,
        term=1,
        epoch=0,
        attempt=0,
        code="uncoded",
        return_mean=None,
        round_s=max(arrival_s.values()),
        collect_s=0.0,
        rows=rows,
        compute_s=compute_s,
        arrival_s=arrival_s,
        decodable_s=max(arrival_s.values()),
        decode_s=0.0,
        received=tuple(arrival_s),
        late=tuple(rows.keys() - arrival_s.keys()),
        exact=True,
        condition=1.0,
        error_bound=0.0,
        update_digest="",
        bytes_sent={},
        bytes_received={},
    )


def test_a_learner_that_was_not_waited_for_counts_as_missing() -> None:
    code = code_for_learners(codes.build("uncoded"), learners=3, units=6, seed=0)
    record = recorded({0: 0, 1: 2, 2: 4, 5: 6}, {0: 2.0, 1: 4.0}, {0: 2.5, 1: 4.5, 5: 6.0})
    returns, needed = returns_of(record, code)
    assert needed == 3
    assert returns == [Return(2.5, 1.5, 2), Return(4.5, 2.5, 2), Return(inf, 2.0, 2)]


def test_scattered_returns_of_short_units_are_waited_for() -> None:
    code = code_for_learners(codes.build("uncoded"), learners=4, units=4, seed=0)
    arrival_s = {0: 3.0, 1: 3.5, 2: 4.0, 3: 5.5}
    record = recorded({each: each for each in range(4)}, dict.fromkeys(range(4), 0.5), arrival_s)
    grace = Grace()
    for _ in range(FEWEST):
        returns, needed = returns_of(record, code)
        grace.observe(returns, needed=needed)
    assert grace.seconds >= max(arrival_s.values())
