"""Results of testing the claims of a paper, each with its reason and the strength of the test."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from fullrank.common.types import Interval

LEAST_SEEDS = 3
"""Seeds that a claim on something stochastic needs to be held without an interval."""


class Held(StrEnum):
    """Outcome of a claim."""

    HELD = "held"
    NOT_HELD = "not held"
    UNDECIDED = "undecided"
    """Nothing speaks against it, but the test was too weak to tell."""
    INPUT = "an input"
    """The test assumes it and cannot fail."""
    NOT_TESTABLE = "not testable"


class Whose(StrEnum):
    """Origin of a claim."""

    PAPER = "the paper's"
    OURS = "ours"


@dataclass(frozen=True, slots=True)
class Strength:
    """The kind of a test, and the best outcome that it allows."""

    said: str
    best: Held = Held.HELD


EXACT: Final = Strength("exact")
"""Equality of bits, a closed form, or an enumeration of all cases."""
PRINTED: Final = Strength("judged on the paper's own numbers")
CIRCULAR: Final = Strength("circular", Held.INPUT)
"""The claim is an input of the numbers that it is judged by."""

UNFINISHED: Final = Strength("not all computed yet", Held.UNDECIDED)


def measured(seeds: int, *, interval: bool = False) -> Strength:
    """Strength of a measurement of something stochastic; ``interval``: an interval backs it."""
    said = f"measured, {seeds} seed{'s' * (seeds != 1)}{', 95 % interval' * interval}"
    enough = interval or seeds >= LEAST_SEEDS
    return Strength(said, Held.HELD if enough else Held.UNDECIDED)


def simulated(assuming: str) -> Strength:
    """Strength of a result in virtual time, with the assumption that it rests on."""
    return Strength(f"simulated, assuming {assuming}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimResult:
    """The result of one claim."""

    claim: str
    held: Held
    reason: str
    strength: Strength
    whose: Whose = Whose.PAPER


def judge(
    claim: str,
    against: Sequence[str],
    *,
    grounds: str,
    strength: Strength,
    whose: Whose = Whose.PAPER,
) -> ClaimResult:
    """Not held if there is evidence ``against`` it, else as well held as its test allows.

    Args:
        claim: The claim, a sentence.
        against: Evidence against it.
        grounds: Evidence for it.
        strength: Strength of the test.
        whose: Origin of the claim.
    """
    held, reason = (Held.NOT_HELD, "; ".join(against)) if against else (strength.best, grounds)
    return ClaimResult(claim=claim, held=held, reason=reason, strength=strength, whose=whose)


def judge_each(
    told: Mapping[str, tuple[Iterable[str], str]],
    strength: Strength,
    *,
    ours: tuple[str, ...] = (),
) -> list[ClaimResult]:
    """Judge claims by one kind of test.

    Args:
        told: The evidence against each claim, and the grounds for it.
        strength: Strength of the test.
        ours: Beginnings of the claims that are not the paper's.
    """
    return [
        judge(
            claim,
            list(against),
            grounds=grounds,
            strength=strength,
            whose=Whose.OURS if claim.startswith(ours) else Whose.PAPER,
        )
        for claim, (against, grounds) in told.items()
    ]


def untested(claim: str, reason: str, *, whose: Whose = Whose.PAPER) -> ClaimResult:
    """A claim that these results cannot test."""
    return ClaimResult(
        claim=claim,
        held=Held.NOT_TESTABLE,
        reason=reason,
        strength=Strength("not tested"),
        whose=whose,
    )


def undecided(
    claim: str, reason: str, strength: Strength = UNFINISHED, *, whose: Whose = Whose.PAPER
) -> ClaimResult:
    """A claim that these results cannot decide, though others of the kind could."""
    return ClaimResult(
        claim=claim, held=Held.UNDECIDED, reason=reason, strength=strength, whose=whose
    )


def by_sign(low: float, high: float, *, best: Held = Held.HELD) -> Held:
    """``best`` if an interval lies above 0, not held below it, and undecided around it."""
    if low > 0:
        return best
    return Held.NOT_HELD if high < 0 else Held.UNDECIDED


def by_interval(
    claim: str,
    interval: Interval,
    limit: float,
    said: str,
    *,
    strength: Strength,
    sign: int = 1,
    whose: Whose = Whose.PAPER,
) -> ClaimResult:
    """Held if the interval lies above the limit, not held below it, and undecided around it.

    Args:
        claim: The claim, a sentence.
        interval: Interval of the quantity.
        limit: The limit.
        said: The quantity as text.
        strength: Strength of the test.
        sign: -1 if the claim is that the quantity lies below the limit.
        whose: Origin of the claim.
    """
    low, high = sorted((sign * (interval.low - limit), sign * (interval.high - limit)))
    held = by_sign(low, high, best=strength.best)
    return ClaimResult(claim=claim, held=held, reason=said, strength=strength, whose=whose)


def as_list(judged: Mapping[str, Sequence[ClaimResult]]) -> str:
    """Markdown list of the claims by source."""
    return "\n".join(
        f"* *{source}*: {result.claim} **{result.held}** "
        f"({result.whose}; {result.strength.said}): {result.reason}"
        for source, results in judged.items()
        for result in results
    )
