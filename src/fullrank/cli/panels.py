"""Panels of ``fullrank plot``: the numbers of a run that each pair of axes shows."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from fullrank.common.types import Interval
from fullrank.runs.evaluations import EvaluationRecord
from fullrank.runs.record import IterationRecord

Curves: TypeAlias = Mapping[str, Mapping[int, float]]
"""Numbers by name and iteration: the return of each side, or of all agents, and the like."""
EvaluationCurves: TypeAlias = Callable[[EvaluationRecord], Mapping[str, Interval]]
"""Intervals of an evaluation by side; the name is empty where there is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """Content of one pair of axes."""

    label: str
    curves: Callable[[Sequence[IterationRecord]], Curves]
    played: EvaluationCurves = lambda record: {}
    scale: str = "linear"
    bounds: tuple[float, float] | None = None


def _known(series: Mapping[str, Mapping[int, float | None]]) -> Curves:
    """The curves without iterations whose number is unknown, and without empty curves."""
    known = {
        name: {iteration: value for iteration, value in values.items() if value is not None}
        for name, values in series.items()
    }
    return {name: values for name, values in known.items() if values}


def _returns(records: Sequence[IterationRecord]) -> Curves:
    """Return by iteration: of the team, or of each side where there are several."""
    sides = list(dict.fromkeys(side for record in records for side in record.side_returns))
    if len(sides) < 2:
        return _known({"all agents": {r.iteration: r.return_mean for r in records}})
    return _known(
        {side: {r.iteration: r.side_returns.get(side) for r in records} for side in sides}
    )


def _played_returns(record: EvaluationRecord) -> Mapping[str, Interval]:
    return record.sides if len(record.sides) > 1 else {"": record.returns}


def _wins(records: Sequence[IterationRecord]) -> Curves:
    return _known({"won": {record.iteration: record.win_rate for record in records}})


def _played_wins(record: EvaluationRecord) -> Mapping[str, Interval]:
    return {} if record.win_rate is None else {"": record.win_rate}


def _statistics(*names: str) -> Callable[[Sequence[IterationRecord]], Curves]:
    """The named statistics of learning, by iteration."""
    return lambda records: _known(
        {name: {r.iteration: r.statistics.get(name) for r in records} for name in names}
    )


RETURNS = Panel(label="mean episode return", curves=_returns, played=_played_returns)
PANELS = (
    RETURNS,
    Panel(label="win rate", curves=_wins, played=_played_wins, bounds=(-0.02, 1.02)),
    Panel(label="error", curves=_statistics("loss", "td_error_abs"), scale="log"),
    Panel(label="value of an action", curves=_statistics("q_taken_mean", "target_mean")),
)
"""Panels above that of the round times, each drawn if a run has its numbers."""
