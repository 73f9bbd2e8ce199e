"""Recorded lateness: a file with rows by iteration, or by the time since the run began."""

import csv
import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from fullrank.common.errors import ConfigError, Malformed
from fullrank.common.foreign import parse_json, read_regular
from fullrank.common.types import LearnerId, Local
from fullrank.stragglers.base import (
    DelayModel,
    Delays,
    Factors,
    check_duration,
    check_factor,
    register,
)

TraceRow: TypeAlias = tuple[int, int, float]
"""A recorded delay: (iteration, learner, delay_s)."""

TRACE_BYTES = 2**26
"""Largest file of recorded delays."""

RECORDED = ("delay_s", "factor", "away")
"""What a row may say of its learner; one at least."""


class _State(NamedTuple):
    """Lateness of a learner."""

    delay_s: float = 0.0
    factor: float = 1.0


class _Row(NamedTuple):
    """A row of a file."""

    at: float
    """Iteration, or seconds since the run began."""
    learner: LearnerId
    state: _State


_PUNCTUAL, _AWAY = _State(), _State(delay_s=math.inf)
_States: TypeAlias = Mapping[LearnerId, _State]


@dataclass(frozen=True, slots=True)
class _Recorded:
    """The states of learners, whatever the iteration."""

    states: _States

    def delays(self, *, seed: int, iteration: int, learners: int) -> Delays:
        """The recorded delays."""
        return np.array([self.states.get(each, _PUNCTUAL).delay_s for each in range(learners)])

    def factors(self, *, seed: int, iteration: int, learners: int) -> Factors:
        """The recorded factors."""
        return np.array([self.states.get(each, _PUNCTUAL).factor for each in range(learners)])


@register("trace")
@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """Recorded delays, factors and absences of learners; without a row a learner is punctual.

    Rows by ``iteration`` are repeated for ever: iteration t replays t mod (last iteration + 1).
    A row by ``time_s`` holds from that time since the run began until the learner's next row.
    """

    path: Local[str] = ""
    """A CSV file with a header, or a JSONL file, with the keys ``iteration`` or ``time_s``;
    ``learner``; and ``delay_s``, ``factor`` (of the computing time, at least 1) or ``away`` (1)."""
    rows: tuple[TraceRow, ...] = ()
    """Rows of iteration, learner and delay_s, instead of ``path``."""
    _by_iteration: Mapping[int, _States] = field(init=False, repr=False, compare=False)
    _by_time: dict[LearnerId, list[tuple[float, _State]]] = field(
        init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        if bool(self.path) == bool(self.rows):
            raise ConfigError("trace: give either path or rows")
        if self.path:
            rows, by_time = _read(Path(self.path))
        else:
            keys = ("iteration", "learner", "delay_s")
            rows, by_time = [_row(dict(zip(keys, row, strict=True))) for row in self.rows], False
        if not rows:
            raise ConfigError("trace: there are no rows")
        object.__setattr__(self, "_by_iteration", {} if by_time else _by_iteration(rows))
        object.__setattr__(self, "_by_time", _by_time(rows) if by_time else {})

    def delays(self, *, seed: int, iteration: int, learners: int) -> Delays:
        """The delays recorded by iteration, for any seed."""
        return self._during(iteration).delays(seed=seed, iteration=iteration, learners=learners)

    def factors(self, *, seed: int, iteration: int, learners: int) -> Factors:
        """The factors recorded by iteration, for any seed."""
        return self._during(iteration).factors(seed=seed, iteration=iteration, learners=learners)

    def _during(self, iteration: int) -> _Recorded:
        cycle = max(self._by_iteration, default=0) + 1
        return _Recorded(self._by_iteration.get(iteration % cycle, {}))

    def at(self, time_s: float) -> DelayModel:
        """The states recorded by time that hold now; this model if its rows are by iteration."""
        if not self._by_time:
            return self
        begun = {
            learner: rows[count - 1 :]
            for learner, rows in self._by_time.items()
            if (count := bisect_right(rows, time_s, key=itemgetter(0)))
        }
        return _Recorded({learner: _now(rows, time_s) for learner, rows in begun.items()})


def _now(rows: Sequence[tuple[float, _State]], time_s: float) -> _State:
    """The state of the first row; a learner that is away pauses until a row in which it is not."""
    back = ((at_s, state) for at_s, state in rows if state != _AWAY)
    at_s, state = next(back, (time_s, _AWAY))
    return _State(max(0.0, at_s - time_s) + state.delay_s, state.factor)


def _read(path: Path) -> tuple[Sequence[_Row], bool]:
    """The rows of a file, and whether they are by time."""
    try:
        content = read_regular(path, TRACE_BYTES)
    except Malformed as error:
        raise ConfigError(f"trace: {error}") from error
    try:
        lines = content.decode().splitlines()
        jsonl = path.suffix in (".jsonl", ".ndjson")
        read = partial(parse_json, origin="a row")
        records = list(map(read, filter(str.strip, lines)) if jsonl else csv.DictReader(lines))
        by_time = ["time_s" in record for record in records]
        if any(by_time) and not all(by_time):
            raise ConfigError(f"trace: {path} has rows by time_s and by iteration; keep one kind")
        return [_row(record) for record in records], any(by_time)
    except KeyError as error:
        raise ConfigError(f"trace: {path} has a row without {error.args[0]!r}") from error
    except (Malformed, TypeError, ValueError, OverflowError, csv.Error) as error:
        raise ConfigError(f"trace: {path} holds a malformed row: {error}") from error


def _row(record: Mapping[str, Any]) -> _Row:
    """A row that is sound; a field that a CSV file leaves empty is not given."""
    at = float(record["time_s"]) if "time_s" in record else int(record["iteration"])
    learner = int(record["learner"])
    given = {key: record[key] for key in RECORDED if record.get(key, "") != ""}
    if not given:
        raise KeyError(" or ".join(RECORDED))
    delay_s, factor = float(given.get("delay_s", 0.0)), float(given.get("factor", 1.0))
    if at < 0 or learner < 0:
        axis = "time_s" if "time_s" in record else "iteration"
        raise ConfigError(f"trace: negative {axis} or learner in {at}, {learner}")
    check_duration("trace", "time_s", at)
    check_duration("trace", "delay_s", delay_s)
    check_factor("trace", factor)
    away = bool(int(given.get("away", 0)))
    return _Row(at, learner, _AWAY if away else _State(delay_s, factor))


def _by_iteration(rows: Iterable[_Row]) -> Mapping[int, _States]:
    states: dict[int, dict[LearnerId, _State]] = {}
    for at, learner, state in rows:
        states.setdefault(int(at), {})[learner] = state
    return states


def _by_time(rows: Iterable[_Row]) -> dict[LearnerId, list[tuple[float, _State]]]:
    states: dict[LearnerId, list[tuple[float, _State]]] = {}
    for at, learner, state in sorted(rows, key=lambda row: row.at):
        states.setdefault(learner, []).append((at, state))
    return states
