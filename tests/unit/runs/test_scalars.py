"""Numbers of records by tag: the known ones alone, the same tags for an evaluation, and means."""

from tests.unit.runs.test_record import record

from fullrank.common.types import Interval
from fullrank.runs.evaluations import EvaluationRecord
from fullrank.runs.scalars import intervals, scalars

TAGS = """
return/mean return/team time/round_s time/collect_s time/compute_s time/decode_s code/received
code/late code/exact code/condition code/error_bound bytes_sent/sections bytes_received/coded
"""


def test_the_tags_of_an_iteration_are_the_public_ones_and_unknown_numbers_have_none() -> None:
    assert set(scalars(record())) == set(TAGS.split())
    more = {"win_rate": 0.5, "play_s": 1.0, "update_s": 1.0, "iteration_s": 1.0, "variance": 0.5}
    known = scalars(
        record(0, agent_updates_per_s=9.0, statistics={"loss": None, "epsilon": 1}, **more)
    )
    added = {"win_rate", "time/play_s", "time/update_s", "time/iteration_s", "code/variance"}
    assert set(known) - set(TAGS.split()) == added | {"agent_updates_per_s", "epsilon"}
    assert {type(value) for value in known.values()} == {float}


def test_an_evaluation_has_both_bounds_of_the_numbers_that_an_iteration_has() -> None:
    both, won = Interval(3.0, 2.0, 5.0), Interval(0.5, 0.25, 0.75)
    played = EvaluationRecord(iteration=0, term=1, returns=both, sides={"prey": both}, win_rate=won)
    assert intervals(played) == {"return/mean": both, "return/prey": both, "win_rate": won}
    assert scalars(played) == {
        **{"return/mean": 3.0, "return_low/mean": 2.0, "return_high/mean": 5.0},
        **{"return/prey": 3.0, "return_low/prey": 2.0, "return_high/prey": 5.0},
        **{"win_rate": 0.5, "win_rate_low": 0.25, "win_rate_high": 0.75},
    }
