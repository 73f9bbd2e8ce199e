"""Machines that come and go, and a run that restarts from checkpoints on them."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from fullrank.common.seeding import stream


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Change:
    """A machine comes or goes."""

    at_s: float
    machine: int
    present: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """Machines of a cluster over time; all are there at the start."""

    machines: int
    """N, the most machines at once."""
    changes: tuple[Change, ...]
    """In order of time."""
    end_s: float

    def counts(self) -> Iterator[tuple[float, float, int]]:
        """Spans of time of one set of machines: begin, end, number of machines."""
        present, times = set(range(self.machines)), [0.0, *(c.at_s for c in self.changes)]
        for change, (begin, end) in zip(
            (None, *self.changes), pairwise([*times, self.end_s]), strict=True
        ):
            if change is not None:
                (present.add if change.present else present.discard)(change.machine)
            if end > begin:
                yield begin, end, len(present)

    @property
    def machine_s(self) -> float:
        """Machine-seconds that are paid for."""
        return sum((end - begin) * count for begin, end, count in self.counts())

    @property
    def losses(self) -> int:
        """Number of times at which machines go, one or several at once."""
        return len({change.at_s for change in self.changes if not change.present})


def calm(machines: int, end_s: float) -> Capacity:
    """Machines that stay."""
    return Capacity(machines=machines, changes=(), end_s=end_s)


def recorded(trace: Path, *, seed: int = 0, machines: int | None = None) -> Capacity:
    """Read a trace of lines ``seconds,machines``, from its first full capacity on.

    A trace counts machines; which of them goes is drawn.

    Args:
        trace: The file.
        seed: Key of the draws.
        machines: Scale its counts to so many at most.
    """
    lines = [line.split(",") for line in trace.read_text(encoding="utf-8").split()]
    steps = [(float(at), int(count)) for at, count in lines]
    full = max(count for _, count in steps)
    most, first = machines or full, next(i for i, (_, count) in enumerate(steps) if count == full)
    began, draws = steps[first][0], stream(seed, "spot")
    present, changes = set(range(most)), list[Change]()
    for at, count in steps[first:]:
        target = math.ceil(count * most / full)
        while len(present) != target:
            gone = sorted(set(range(most)) - present)
            leaves = len(present) > target
            machine = int(draws.choice(sorted(present))) if leaves else gone[0]
            (present.discard if leaves else present.add)(machine)
            changes.append(Change(at_s=at - began, machine=machine, present=not leaves))
    return Capacity(machines=most, changes=tuple(changes), end_s=steps[-1][0] - began)


def failing(
    machines: int, *, gap: Callable[[np.random.Generator], float], away_s: float, end_s: float
) -> Capacity:
    """Machines of which a random one fails after each gap, and returns ``away_s`` later.

    A failure that finds no machine present is none; ``away_s`` may be inf.
    """
    draws, back, changes, now = stream(0, "failing"), dict[int, float](), list[Change](), 0.0
    while (now := now + gap(draws)) < end_s:
        for machine, at in list(back.items()):
            if at <= now:
                changes.append(Change(at_s=at, machine=machine, present=True))
                del back[machine]
        present = sorted(set(range(machines)) - set(back))
        if len(present) > 1:
            machine = int(draws.choice(present))
            changes.append(Change(at_s=now, machine=machine, present=False))
            back[machine] = now + away_s
    changes += [
        Change(at_s=at, machine=machine, present=True) for machine, at in back.items() if at < end_s
    ]
    return Capacity(machines=machines, changes=tuple(sorted(changes)), end_s=end_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Restarts:
    """Synchronous data-parallel training without redundancy, restarted from checkpoints.

    Work is divided evenly among the machines present, to any fraction. A machine that goes takes
    the work since the last checkpoint with it, and the others compute again after ``restart_s``. A
    machine that comes costs a checkpoint and a restart, and no work. Losses are noticed at once.
    """

    checkpoint_s: float
    """Time to write a checkpoint, in which nothing is computed, C."""
    restart_s: float
    """From the change of the machines until they compute, R."""
    every_s: float | None = None
    """Time of computing between checkpoints; None for the best by Daly's formula, of the trace's
    own mean time between losses, which a real run could not know."""

    def interval_s(self, capacity: Capacity) -> float:
        """Time of computing between two checkpoints."""
        if self.every_s is not None:
            return self.every_s
        return daly_s(self.checkpoint_s, capacity.end_s / max(capacity.losses, 1))

    def work_s(self, capacity: Capacity) -> float:
        """Machine-seconds of work that was not lost."""
        every_s, before = self.interval_s(capacity), capacity.machines
        kept, since, computing, ready_s = 0.0, 0.0, 0.0, 0.0
        for begin, end, count in capacity.counts():
            if count < before:
                since, ready_s = 0.0, begin + self.restart_s
            elif count > before:
                ready_s = max(ready_s, begin) + self.checkpoint_s + self.restart_s
            if count != before:
                kept, since, computing = kept + since, 0.0, 0.0
            before, now = count, max(begin, ready_s)
            while now < end:
                span_s = min(every_s - computing, end - now)
                since, computing, now = since + span_s * count, computing + span_s, now + span_s
                if computing >= every_s and now < end:
                    now += self.checkpoint_s
                    if now <= end:  # else a machine goes or comes while it is written
                        kept, since, computing = kept + since, 0.0, 0.0
        return kept + since


def daly_s(checkpoint_s: float, between_s: float) -> float:
    """Return Daly's best time of computing between checkpoints; its first factor is Young's.

    Source: Daly, A higher order estimate of the optimum checkpoint interval, 2006, equation 37.

    Args:
        checkpoint_s: Time to write one.
        between_s: Mean time between losses.
    """
    if checkpoint_s >= 2 * between_s:
        return between_s
    share = math.sqrt(checkpoint_s / (2 * between_s))
    return math.sqrt(2 * checkpoint_s * between_s) * (1 + share / 3 + share**2 / 9) - checkpoint_s
