"""Timelines of a round and curves, drawn in characters."""

from collections.abc import Sequence

import numpy as np

from fullrank.common.types import LearnerId
from fullrank.runs.record import IterationRecord
from fullrank.runs.time_budget import spans

WAITING, COMPUTING, DELAYED, SENDING, LATE, DECODABLE = "─", "█", "░", "▸", "·", "│"
LEGEND = (
    f"{WAITING} parameters and minibatch  {COMPUTING} computing  {DELAYED} delayed  {SENDING} "
    f"sending  {LATE} not waited for  {DECODABLE} rank reached M"
)
_MARKS = {
    "assign": WAITING,
    "compute": COMPUTING,
    "delay": DELAYED,
    "transfer": SENDING,
    "late": LATE,
}
_BARS = "▁▂▃▄▅▆▇█"


def lanes(record: IterationRecord, *, width: int) -> dict[LearnerId, str]:
    """Timeline of each learner with an assigned row, to scale in ``width`` characters."""
    scale = width / max(record.round_s, 1e-9)
    return {learner: _lane(record, learner, width, scale) for learner in sorted(record.assigned_s)}


def _lane(record: IterationRecord, learner: LearnerId, width: int, scale: float) -> str:
    cells = [" "] * width
    for phase, start_s, end_s in spans(record, learner):
        first, last = (min(width, int(scale * moment_s)) for moment_s in (start_s, end_s))
        cells[first:last] = [_MARKS[phase]] * (last - first)
    if record.decodable_s is not None:
        cells[min(width - 1, int(scale * record.decodable_s))] = DECODABLE
    return "".join(cells)


def sparkline(values: Sequence[float], *, width: int) -> str:
    """A curve of at most ``width`` characters, each the mean of equally many neighbours."""
    if not values:
        return ""
    parts = np.array_split(np.asarray(values, float), min(width, len(values)))
    means = np.array([part.mean() for part in parts])
    low, high = means.min(), means.max()
    steps = (means - low) / (high - low or 1.0) * (len(_BARS) - 1)
    return "".join(_BARS[int(step)] for step in steps.round())
