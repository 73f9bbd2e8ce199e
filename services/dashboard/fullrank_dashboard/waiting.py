"""Estimate of the time saved by not waiting for stragglers."""

from statistics import median

from fullrank.common.types import LearnerId
from fullrank.runs.record import IterationRecord
from fullrank.stragglers import Delays


def saved_s(record: IterationRecord, delays: Delays) -> float:
    """Lower bound on the time from rank M to the last learner's arrival, seconds.

    A late learner had not arrived when the round ended. If the run itself delays learners, it would
    have arrived that much after the median learner.

    Args:
        record: The round.
        delays: Delays injected by the run in this iteration, shape (N,), seconds.
    """
    if not record.late or record.decodable_s is None or not record.arrival_s:
        return 0.0
    usual_s = median(at_s - _delay_s(delays, learner) for learner, at_s in record.arrival_s.items())
    last_s = max(usual_s + _delay_s(delays, learner) for learner in record.late)
    return max(record.round_s, last_s) - record.decodable_s


def _delay_s(delays: Delays, learner: LearnerId) -> float:
    """Injected delay; 0 for learners beyond the N of the configuration."""
    return float(delays[learner]) if learner < len(delays) else 0.0
