"""What it would have cost to wait for every learner."""

from statistics import median

from fullrank.common.types import LearnerId
from fullrank.runs.record import IterationRecord
from fullrank.stragglers import Delays


def saved_s(record: IterationRecord, delays: Delays) -> float:
    """Seconds, at least, from when rank M was reached until the last learner would have come.

    A late learner had not come when the round ended. Where the run itself delays learners, it would
    have come that much after the middle one of those that came.

    Args:
        record: The round.
        delays: By which the run delays its learners in this iteration, shape (N,), seconds.
    """
    if not record.late or record.decodable_s is None or not record.arrival_s:
        return 0.0
    usual_s = median(at_s - _delay_s(delays, each) for each, at_s in record.arrival_s.items())
    last_s = max(usual_s + _delay_s(delays, learner) for learner in record.late)
    return max(record.round_s, last_s) - record.decodable_s


def _delay_s(delays: Delays, learner: LearnerId) -> float:
    """None for learners beyond those that the run began with."""
    return float(delays[learner]) if learner < len(delays) else 0.0
