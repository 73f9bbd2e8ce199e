"""The differences that ``fullrank verify`` found, in one line: where, whose, and what they mean."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from fullrank.audit.ledger import CONTROLLER
from fullrank.audit.recomputation import Discrepancy, Recomputed
from fullrank.common.errors import Malformed
from fullrank.common.foreign import TEXT, parse_json, read_regular
from fullrank.common.types import LearnerId
from fullrank.training.trainer import Trainer

NUMERICS = "numerics.json"
"""File of a run directory with the numerics of the run since its first iteration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The numeric fingerprints of this process and of the run."""

    own: str
    run: str = ""
    """Empty if it is not known."""

    @classmethod
    def of(cls, run_dir: Path, trainer: Trainer) -> Self:
        """The fingerprints of this process and of the last learners of a run."""
        try:
            content = read_regular(run_dir / NUMERICS, TEXT.size)
            run = str(parse_json(content, origin=NUMERICS)[-1]["fingerprint"])
        except (Malformed, LookupError, TypeError):
            run = ""
        return cls(own=trainer.algorithm.gradients.fingerprint(), run=run)


def described(outcomes: Sequence[Recomputed], machine: Machine) -> str:
    """Describe the first difference, and name the other iterations that differ; empty if none does.

    Args:
        outcomes: Of all iterations, in order.
        machine: Tells whether this process computes the bits of the run.
    """
    computed = [outcome for outcome in outcomes if not outcome.obstacle]
    differing = [outcome for outcome in computed if outcome.difference is not None]
    if not differing:
        return ""
    first, *others = differing
    difference = first.difference
    assert difference is not None  # selected
    line = (
        f"iteration {first.iteration} differs: {difference.what}{_reported(difference.reporters)}"
    )
    if others:
        line += f"; so do {spans([outcome.iteration for outcome in others])}"
    return line + _meaning(difference, machine, nothing_equal=first is computed[0])


def spans(iterations: Iterable[int]) -> str:
    """Name ascending iterations: "iterations 3 to 5, 8"."""
    ranges: list[list[int]] = []
    for iteration in iterations:
        if ranges and iteration == ranges[-1][-1] + 1:
            ranges[-1][1:] = [iteration]
        else:
            ranges.append([iteration])
    named = ", ".join(" to ".join(map(str, ends)) for ends in ranges)
    single = len(ranges) == 1 and len(ranges[0]) == 1
    return f"iteration{'' if single else 's'} {named}"


def _reported(reporters: Sequence[LearnerId]) -> str:
    learners = [learner for learner in reporters if learner != CONTROLLER]
    return f", which learners {learners} had reported" if learners else ""


def _meaning(difference: Discrepancy, machine: Machine, *, nothing_equal: bool) -> str:
    """What follows about rows, updates and this machine from a difference of units."""
    if not difference.units:
        return ""
    if machine.own == machine.run:
        wrong = "these updates are wrong"
        if difference.every_unit:
            wrong = (
                "the rows that the learners were given are not those in the table, or all their "
                "updates are wrong"
            )
        return f"; this machine has the run's numeric fingerprint, so that {wrong}"
    if difference.every_unit and nothing_equal:
        run = f"; the run's is {machine.run}" if machine.run else ""
        return (
            "; nothing was recomputed before it, so that this machine or version may compute other "
            f"bits than the run's: its numeric fingerprint is {machine.own}{run}"
        )
    flushed = machine.own.partition("; denormals ")[2]  # moments become so after hundreds of steps
    return flushed and f"; this process has denormal numbers {flushed}"
