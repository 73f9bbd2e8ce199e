"""Successive halving: rungs, choices and costs."""

import pytest

from fullrank_darl1n.halving import halve, rungs_of


def score(candidate: str, rung: int) -> float:
    """Five curves that cross: a leads early, d late, and b never."""
    ends = {"a": 1.0, "b": -1.0, "c": 4.0, "d": 5.0, "e": 4.0}
    return ends[candidate] if rung > 20 else {"a": 9.0, "b": -9.0}.get(candidate, 3.0)


def test_the_better_half_rounded_up_goes_on_and_of_equals_the_first() -> None:
    rungs = list(halve("abcde", (20, 50, 70), iterations=100, score=score))
    assert [rung.kept for rung in rungs] == [("a", "c", "d"), ("c", "d"), ("d",)]
    assert [rung.dropped for rung in rungs] == [("b", "e"), ("a",), ("c",)]
    assert rungs[1].returns == {"a": 1.0, "c": 4.0, "d": 5.0}


@pytest.mark.parametrize(
    ("candidates", "rungs"),
    [
        (2, (500,)),
        (3, (333, 666)),
        (4, (333, 666)),
        (5, (250, 500, 750)),
        (9, (200, 400, 600, 800)),
    ],
)
def test_rungs_are_evenly_spaced_and_leave_one(candidates: int, rungs: tuple[int, ...]) -> None:
    assert rungs_of(candidates, iterations=1000) == rungs
    halved = list(halve(range(candidates), rungs, iterations=1000, score=lambda each, rung: each))
    assert halved[-1].kept == (candidates - 1,)
