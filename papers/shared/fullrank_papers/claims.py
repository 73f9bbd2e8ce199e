"""Judgement on the claims of a paper, by the rules of docs/verdicts.md."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, TypeAlias

import numpy as np

from fullrank.common.types import Array, Interval
from fullrank.runs.statistics import student

RULES: Final = "8c522f89d92433a7"
"""Digest of the page of rules, which every computed cell keeps."""
CONFIDENCE: Final = 0.95
LEAST_SAMPLES: Final = 3
DIGITS: Final = 1e-9
"""Relative size below which a difference is one of rounding."""
NEAR: Final = 0.15
"""Relative band of a predicted time or throughput."""


class Held(StrEnum):
    """Outcome of a claim."""

    HELD = "held"
    NOT_HELD = "not held"
    UNDECIDED = "undecided"
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
UNBUILT: Final = Strength("", Held.UNDECIDED)
"""A method is not built, or not run."""


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
    chance: float | None = None
    """Chance of as strong a result if the opposite were true; None without samples."""


Judgement: TypeAlias = Mapping[str, Sequence[ClaimResult]]
"""Results by their source, which is one experiment: a figure, table or section of the paper."""


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
    held, reason = (Held.NOT_HELD, some(against)) if against else (strength.best, grounds)
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


def untested(claim: str, reason: str) -> ClaimResult:
    """A claim that no results of this project can test."""
    return judge(claim, [], grounds=reason, strength=Strength("", Held.NOT_TESTABLE))


def undecided(
    claim: str, reason: str, strength: Strength = UNFINISHED, *, whose: Whose = Whose.PAPER
) -> ClaimResult:
    """A claim that these results cannot decide, though others of the kind could."""
    open_yet = replace(strength, best=Held.UNDECIDED)
    return judge(claim, [], grounds=reason, strength=open_yet, whose=whose)


def by_samples(
    claim: str,
    parts: Mapping[str, Array],
    *,
    low: float = 0.0,
    high: float = math.inf,
    censored: Sequence[str] = (),
    unit: str = "seeds",
    whose: Whose = Whose.PAPER,
    said: str = "",
    assuming: str = "",
) -> ClaimResult:
    """Held if every part's mean lies between two limits, not held if that of one lies outside.

    Args:
        claim: The claim, a sentence.
        parts: Samples of what the claim compares, by name; one part may have an empty name.
        low: Lower limit; with ``high`` infinite, the claim is that means lie above it.
        high: Upper limit.
        censored: Parts without samples, which keep the claim from being held.
        unit: What the samples are.
        whose: Origin of the claim.
        said: More about the samples.
        assuming: What they rest on, where they are simulated.
    """
    told = {name: _chances(values, low, high) for name, values in parts.items()}
    fails = 1.0 if censored else max((each[0] for each in told.values()), default=1.0)
    passes = min(1.0, max(1, len(parts)) * min((each[1] for each in told.values()), default=1.0))
    chance = round(2 * min(fails, passes, 0.5), 9)
    held = Held.UNDECIDED
    if chance <= 1 - CONFIDENCE:
        held = Held.HELD if fails < passes else Held.NOT_HELD
    weakest = sorted(parts, key=lambda name: -told[name][0])
    texts = [some([f"{name} {shown(parts[name])}".strip() for name in weakest]), said]
    against = sum(chance < fail for fail, chance in told.values())
    if against and len(parts) > 1:
        texts.append(f"{against} of {len(parts)} means against it")
    if censored:
        texts.append(f"{len(censored)} censored: {some(censored)}")
    count = min((len(values) for values in parts.values()), default=0)
    simulated = f", simulated, assuming {assuming}" if assuming else ""
    return ClaimResult(
        claim=claim,
        held=held,
        reason="; ".join(filter(None, texts)),
        strength=Strength(f"95 % interval over {count} {unit}{simulated}"),
        whose=whose,
        chance=chance,
    )


def interval(values: Array) -> Interval:
    """The mean with Student's interval, which is unbounded for too few samples."""
    if len(values) < LEAST_SAMPLES:
        return Interval(float(np.mean(values)), -math.inf, math.inf)
    return student(values, share=CONFIDENCE)


def shown(values: Array) -> str:
    """The mean with its interval as text."""
    return "{:.3g} [{:.3g}, {:.3g}]".format(*interval(values))


def _chances(values: Array, low: float, high: float) -> tuple[float, float]:
    """Chances of such samples if their mean lay outside the limits, and if it lay inside."""
    if len(values) < LEAST_SAMPLES:
        return 1.0, 1.0
    above, below = _above(values, low), _above(-values, -high)
    return max(1 - above, 1 - below), min(above, below)


def _above(values: Array, limit: float) -> float:
    """Probability by Student's distribution that the mean lies above a limit."""
    from scipy.special import stdtr  # large, and needed for chances only

    if math.isinf(limit):
        return 1.0
    size = max(float(np.abs(values).max()), abs(limit), 1e-300)
    error = max(float(values.std(ddof=1)) / math.sqrt(len(values)), DIGITS * size)
    return float(stdtr(len(values) - 1, (float(values.mean()) - limit) / error))


def corrected(told: Judgement) -> dict[str, list[ClaimResult]]:
    """Results after Holm's correction over the comparisons of each source."""
    after: dict[str, list[ClaimResult]] = {}
    for source, results in told.items():
        chances = sorted(each.chance for each in results if each.chance is not None)
        passing = -1.0
        for place, chance in enumerate(chances):
            if chance > (1 - CONFIDENCE) / (len(chances) - place):
                break
            passing = chance
        after[source] = [_kept(each, passing) for each in results]
    return after


def _kept(result: ClaimResult, passing: float) -> ClaimResult:
    if result.chance is None or result.held is Held.UNDECIDED or result.chance <= passing:
        return result
    reason = f"{result.held} but for Holm's correction: {result.reason}"
    return replace(result, held=Held.UNDECIDED, reason=reason)


def some(texts: Sequence[str]) -> str:
    """The first of several texts, and the number of the others."""
    return "".join(texts[:1]) + f" (+ {len(texts) - 1})" * (len(texts) > 1)


def as_list(told: Judgement) -> str:
    """Markdown list of the claims with the verdicts of their sources, after a count of them."""
    claims: dict[str, list[tuple[str, ClaimResult]]] = defaultdict(list)
    for source, results in told.items():
        for result in results:
            claims[result.claim].append((source, result))
    groups = defaultdict[tuple[str, ...], list[str]](list)
    for claim, found in claims.items():
        several = len(found) > 1
        verdicts = "; ".join(
            f"{f'*{source}* ' * several}**{each.held}**: {each.reason}" for source, each in found
        )
        ours = " (ours)" * (found[0][1].whose is Whose.OURS)
        groups[tuple(source for source, _ in found)].append(f"* {claim}{ours} {verdicts}")
    parts = ["\n".join([f"*{', '.join(names)}*:\n", *lines]) for names, lines in groups.items()]
    tests = defaultdict[str, list[str]](list)
    for source, results in told.items():
        for said in dict.fromkeys(each.strength.said for each in results if each.strength.said):
            tests[said].append(f"*{source}*")
    listed = "\n".join(f"* {said}: {', '.join(sources)}" for said, sources in tests.items())
    return "\n\n".join([counted(told), *parts, f"Tests:\n\n{listed}"])


def counted(told: Judgement) -> str:
    """Number of the verdicts of each kind, and of the comparisons."""
    every = [each for results in told.values() for each in results]
    counts = [(sum(each.held is held for each in every), held) for held in Held]
    families = [sum(each.chance is not None for each in results) for results in told.values()]
    shown = ", ".join(f"{count} {held}" for count, held in counts if count)
    return (
        f"{len(every)} verdicts: {shown}. {sum(families)} of them rest on comparisons of samples, "
        f"in {sum(map(bool, families))} experiments of up to {max(families, default=0)}, which "
        "Holm's correction takes together."
    )
