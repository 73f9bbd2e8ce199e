"""Numbers of records by tag, for sinks, plots, pages and gauges; an unknown number is left out."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from statistics import mean
from typing import TypeVar

from fullrank.common.types import Interval
from fullrank.runs.evaluations import EvaluationRecord
from fullrank.runs.record import IterationRecord

T = TypeVar("T")

RETURN, WIN_RATE = "return/mean", "win_rate"
"""Tags of the return of all agents and of the win rate; that of a side's return is return/SIDE."""
STEPS, STEPS_PER_S = "env_steps", "env_steps_per_s"
"""Tags of environment steps so far, and per second."""


def scalars(record: IterationRecord | EvaluationRecord) -> dict[str, float]:
    """All numbers of a record."""
    if isinstance(record, EvaluationRecord):
        return _known({**_bounds(intervals(record)), **record.statistics})
    return {**learning(record), **_costs(record)}


def learning(record: IterationRecord) -> dict[str, float]:
    """Returns, win rate and statistics of learning."""
    return _known(
        {
            RETURN: record.return_mean,
            **_by_side(record.side_returns),
            WIN_RATE: record.win_rate,
            **record.statistics,
        }
    )


def _costs(record: IterationRecord) -> dict[str, float]:
    return _known(
        {
            "time/round_s": record.round_s,
            "time/collect_s": record.collect_s,
            "time/play_s": record.play_s,
            "time/update_s": record.update_s,
            "time/iteration_s": record.iteration_s,
            "agent_updates_per_s": record.agent_updates_per_s,
            STEPS_PER_S: record.env_steps_per_s,
            "time/compute_s": max(record.compute_s.values(), default=None),
            "time/decode_s": record.decode_s,
            "code/received": len(record.received),
            "code/late": len(record.late),
            "code/exact": record.exact,
            "code/condition": record.condition,
            "code/error_bound": record.error_bound,
            "code/variance": record.variance,
            **{f"bytes_sent/{kind}": size for kind, size in record.bytes_sent.items()},
            **{f"bytes_received/{kind}": size for kind, size in record.bytes_received.items()},
        }
    )


def intervals(record: EvaluationRecord) -> dict[str, Interval]:
    """Returns and win rate of an evaluation, by the tags of those of an iteration."""
    won = {} if record.win_rate is None else {WIN_RATE: record.win_rate}
    return {RETURN: record.returns, **_by_side(record.sides), **won}


def series(records: Iterable[IterationRecord]) -> dict[str, dict[int, float]]:
    """Numbers of iterations by tag and iteration."""
    curves: defaultdict[str, dict[int, float]] = defaultdict(dict)
    for record in records:
        for tag, value in scalars(record).items():
            curves[tag][record.iteration] = value
    return dict(curves)


def by_steps(records: Iterable[IterationRecord], tag: str) -> dict[float, float]:
    """Numbers of a tag by the environment steps until their iterations, where both are known."""
    curves = series(records)
    steps = curves.get(STEPS, {})
    return {steps[at]: value for at, value in curves.get(tag, {}).items() if at in steps}


def means(records: Iterable[IterationRecord]) -> dict[str, float]:
    """Mean of each number over the iterations that know it."""
    return {tag: mean(values.values()) for tag, values in series(records).items()}


def _by_side(returns: Mapping[str, T]) -> dict[str, T]:
    return {f"return/{side}": value for side, value in returns.items()}


def _bounds(played: Mapping[str, Interval]) -> dict[str, float]:
    """Both ends of intervals beside their means: ``return/prey``, ``return_low/prey`` and so on."""
    bounds = {}
    for tag, interval in played.items():
        name, slash, side = tag.partition("/")
        for end, value in zip(("", "_low", "_high"), interval, strict=True):
            bounds[f"{name}{end}{slash}{side}"] = value
    return bounds


def _known(numbers: Mapping[str, float | None]) -> dict[str, float]:
    return {tag: float(value) for tag, value in numbers.items() if value is not None}
