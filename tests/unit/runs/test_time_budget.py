"""The time of an iteration is that of the learner whose row completed J."""

import pytest
from tests.unit.runs.test_record import record

from fullrank.runs.record import IterationRecord
from fullrank.runs.time_budget import ADVICE, bottleneck, budget, spent


def timed(**changes: object) -> IterationRecord:
    """Learner 0 completes J, after learner 3; learner 1 is late."""
    plain: dict[str, object] = {
        "received": (3, 0),
        "late": (1,),
        "collect_s": 0.5,
        "assigned_s": {0: 0.0, 1: 0.0, 3: 0.0},
        "started_s": {0: 1.0, 3: 0.1},
        "compute_s": {0: 2.0, 3: 0.1},
        "sent_s": {0: 7.0, 3: 0.3},
        "arrival_s": {0: 7.5, 3: 0.4},
        "decode_s": 0.25,
        "round_s": 8.0,
    }
    return record(**{**plain, **changes})  # type: ignore[arg-type]


def test_phases_follow_one_another_and_fill_the_iteration() -> None:
    phases = budget(timed())
    assert phases == {
        "collect": 0.5,
        "assign": 1.0,
        "compute": 2.0,
        "delay": 4.0,
        "transfer": 0.5,
        "decode": 0.25,
        "update": 0.25,
    }
    assert sum(phases.values()) == 8.0 + 0.5


def test_the_bottleneck_is_named_with_its_share_and_what_helps() -> None:
    longest = bottleneck(spent([timed(), timed()]))
    assert longest is not None
    assert str(longest) == f"delay takes 47% of an iteration: {ADVICE['delay']}"
    quick = timed(sent_s={0: 3.0}, arrival_s={0: 3.0}, round_s=3.5)
    longest = bottleneck(spent([quick]))
    assert longest is not None
    assert longest.phase == "compute"


@pytest.mark.parametrize("changes", [{"received": ()}, {"started_s": {}}])
def test_a_record_without_timelines_says_nothing(changes: dict[str, object]) -> None:
    assert budget(timed(**changes)) == {}
    assert bottleneck(spent([timed(**changes)])) is None
