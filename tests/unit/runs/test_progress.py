"""Lines of progress: their contents and their frequency."""

from dataclasses import replace
from typing import Any

import pytest

from fullrank.runs.progress import LINE_PERIOD_S, Cells, Lines, ReferenceReturns, TimeLeft
from fullrank.runs.record import IterationRecord

RECORD = IterationRecord(
    iteration=0,
    term=1,
    epoch=0,
    attempt=0,
    code="cyclic",
    return_mean=-500.0,
    round_s=0.0204,
    collect_s=0.01,
    compute_s={0: 0.01},
    decode_s=0.001,
    received=(2, 0, 3),
    late=(1,),
    exact=True,
    condition=2.56,
    error_bound=0.0,
    update_digest="00",
    bytes_sent={},
    bytes_received={},
)


class Clock:
    """A clock that the test sets."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_line_holds_what_the_terminal_shows_with_codes_if_asked_for() -> None:
    said: list[str] = []
    Lines(said.append, iterations=20, clock=Clock(), coding=True).write(RECORD)
    played: dict[str, Any] = {
        "env_steps_per_s": 31234.5,
        "statistics": {"env_steps": 5000.0},
        "iteration_s": 4.0,
    }
    lines = Lines(said.append, iterations=20, clock=Clock(), coding=False)
    lines.write(replace(RECORD, **played))
    assert said == [
        "iteration 1/20  return -500.0  steps -  steps/s -  round 20 ms  late 1  |J| 3  kappa 2.6  "
        "exact yes",
        "iteration 1/20  return -500.0  steps 5,000  steps/s 31,234  round 20 ms  late 1  "
        "1 min left",
    ]


@pytest.mark.parametrize(
    ("iteration_s", "left"), [(0.5, "9 s left"), (60.0, "18 min left"), (600.0, "3 h 0 min left")]
)
def test_the_time_left_follows_from_the_last_iterations(iteration_s: float, left: str) -> None:
    estimate = TimeLeft(20)
    assert str(estimate) == ""
    for iteration in range(2):
        estimate.update(replace(RECORD, iteration=iteration, iteration_s=iteration_s))
    assert str(estimate) == left
    estimate.update(replace(RECORD, iteration=19, iteration_s=iteration_s))
    assert str(estimate) == ""


def test_lines_keep_their_distance_and_the_last_is_always_said() -> None:
    said: list[str] = []
    clock = Clock()
    lines = Lines(said.append, iterations=20, clock=clock, coding=False)
    for iteration in range(4):
        lines.write(replace(RECORD, iteration=iteration))
    clock.now += LINE_PERIOD_S
    lines.write(replace(RECORD, iteration=4, return_mean=-400.0))
    lines.write(replace(RECORD, iteration=5, return_mean=None))
    lines.close()
    lines.close()
    assert [line.split("  ")[0] for line in said] == [
        "iteration 1/20",
        "iteration 5/20",
        "iteration 6/20",
    ]
    assert "return -480.0" in said[-1]


def test_the_return_of_each_side_is_shown_where_there_are_several() -> None:
    def returned(cells: Cells, record: IterationRecord) -> str:
        cells.update(record)
        return cells.formatted(record)[1]

    cells = Cells(coding=False)
    sides = {"predator": 30.0, "prey": -40.0}
    ended = replace(RECORD, return_mean=-10.0, side_returns=sides)
    assert returned(cells, ended) == "-10.0 (predator 30.0, prey -40.0)"
    quiet = replace(RECORD, iteration=1, return_mean=None, side_returns={})
    assert returned(cells, quiet) == "-10.0 (predator 30.0, prey -40.0)"
    team = replace(RECORD, side_returns={"team": -500.0})
    assert returned(Cells(coding=False), team) == "-500.0"
    assert returned(Cells(coding=False), quiet) == "-"


@pytest.mark.parametrize(
    ("standing", "shown"),
    [
        (ReferenceReturns(), "return -500.0  steps"),
        (ReferenceReturns(random=-710.3), "return -500.0 (random -710.3)  steps"),
        (
            ReferenceReturns(random=-710.0, good=-360.0),
            "return -500.0 (random -710.0 ... good -360.0, 60%)  steps",
        ),
        (
            ReferenceReturns(random=-710.0, good=-360.0, greedy=-430.0, iterations=300),
            "return -500.0 (random -710.0 ... good -360.0, 60%)  greedy -430.0 after 300 (80%)  "
            "steps",
        ),
        (
            ReferenceReturns(random=-710.0, greedy=-430.0, iterations=300),
            "return -500.0 (random -710.0)  greedy -430.0 after 300  steps",
        ),
        (ReferenceReturns(random=1.0, good=1.0), "return -500.0 (random 1.0 ... good 1.0)  steps"),
    ],
)
def test_a_return_has_its_place_between_random_and_good_play(
    standing: ReferenceReturns, shown: str
) -> None:
    said: list[str] = []
    lines = Lines(said.append, iterations=20, clock=Clock(), coding=False)
    lines.compare(standing)
    lines.write(RECORD)
    assert shown in said[0]


def test_returns_of_several_sides_have_no_place_between_references_of_their_sum() -> None:
    said: list[str] = []
    lines = Lines(said.append, iterations=20, clock=Clock(), coding=False)
    lines.compare(ReferenceReturns(random=-710.3))
    lines.write(replace(RECORD, side_returns={"hunters": -300.0, "prey": -200.0}))
    assert "random" not in said[0]


def test_numbers_near_the_largest_are_averaged() -> None:
    said: list[str] = []
    lines = Lines(said.append, iterations=9, clock=Clock(), coding=False)
    largest = replace(RECORD, return_mean=1e308, env_steps_per_s=1e308, iteration_s=1e308)
    lines.write(*(replace(largest, iteration=each) for each in range(3)))
    assert "return 1e+308  " in said[0]
