"""Timelines are drawn to scale; a curve rises with its values."""

from tests.unit.runs.test_time_budget import timed

from fullrank.cli.status_view import lanes, sparkline


def test_a_lane_shows_each_phase_to_scale_and_when_the_rank_sufficed() -> None:
    drawn = lanes(timed(decodable_s=7.5), width=16)
    assert drawn == {
        0: "──████░░░░░░░░▸│",
        1: "···············│",
        3: "               │",
    }


def test_a_curve_goes_up_where_the_values_do() -> None:
    assert sparkline([], width=8) == ""
    assert sparkline([1.0], width=8) == "▁"
    assert sparkline([0.0, 1.0, 7.0], width=8) == "▁▂█"
    assert sparkline([float(value) for value in range(80)], width=8) == "▁▂▃▄▅▆▇█"
