"""Gauges of the controller: those of the last iteration that are known."""

import pytest
from tests.unit.runs.test_record import record

from fullrank.net.prometheus import Buckets
from fullrank_controller.prometheus import Totals


def _gauges(**changes: object) -> dict[str, float]:
    totals = Totals()
    totals.write(record(0, agent_updates_per_s=1.0, update_s=1.0, statistics={"loss": 1.0}))
    totals.write(record(1, **changes))
    return {
        f"{family.name}{' ' * bool(label)}{label}": value
        for family in totals.families()
        if family.kind == "gauge"
        for label, value in family.values.items()
        if not isinstance(value, Buckets)
    }


def test_gauges_are_numbers_of_the_last_iteration_alone_but_for_the_latest_returns() -> None:
    known = {"condition": 4.5, "received_rows": 3.0, "error_bound": 0.0, "return team": -1.5}
    assert _gauges(side_returns={}) == known
    times = {"play_s": 0.5, "update_s": 0.25, "iteration_s": 0.75}
    rates = {"agent_updates_per_s": 40.0, "env_steps_per_s": 20.0, "win_rate": 0.5}
    assert _gauges(statistics={"loss": 2.0, "epsilon": None}, **times, **rates) == {
        **known,
        **{"seconds play": 0.5, "seconds update": 0.25, "seconds iteration": 0.75},
        **{"agent_updates_per_second": 40.0, "env_steps_per_second": 20.0},
        **{"win_rate": 0.5, "statistic loss": 2.0},
    }


def test_a_gauge_of_an_unknown_number_is_left_out() -> None:
    assert "condition" not in _gauges(condition=None)
    assert "error_bound" not in _gauges(exact=False, error_bound=None, variance=0.5)


def test_histograms_count_every_round_and_the_arrivals_of_each_learner() -> None:
    totals = Totals()
    for seconds in (0.002, 0.02, 0.02, 1000.0):
        totals.write(record(round_s=seconds, arrival_s={0: seconds, 3: 0.5}))
    histograms = {each.name: each.values for each in totals.families() if each.kind == "histogram"}
    (rounds,) = histograms["round_duration_seconds"].values()
    assert isinstance(rounds, Buckets)
    counts = dict(rounds.up_to())
    assert (counts["0.001"], counts["0.0025"], counts["0.025"]) == (0, 1, 3)
    assert (counts["100"], counts["+Inf"]) == (3, 4)
    assert rounds.sum_s == pytest.approx(1000.042)
    assert {*histograms["arrival_seconds"]} == {"0", "3"}
