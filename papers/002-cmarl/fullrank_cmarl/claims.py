"""The claims C1 to C11 of [CMARL], judged on the computed cells."""

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from fullrank.common.types import Array, Interval
from fullrank.runs.statistics import student
from fullrank_cmarl.systems import SYSTEMS, CmarlScale, Courses
from fullrank_papers.claims import (
    LEAST_SEEDS,
    ClaimResult,
    Held,
    Strength,
    by_sign,
    judge,
    untested,
)

LEAST_MAPS: Final = 3
RATIO_TO_QMIX: Final = 4.0
"""The paper's abstract: 4 to 18 times; beside QMIX 4.5."""
RATIO_TO_V2: Final = 2.0
"""Asked of Fig. 7, where CMARL has 30 % and PyMARL2's settings 10 %."""
LEAST_RANK: Final = 0.8
"""Asked rank correlation of the number of actors with what is learnt."""
BY_ACTORS: Final = (
    "cmarl",
    "cmarl-2-containers",
    "cmarl-8-actors",
    "cmarl-1-container",
    "cmarl-2-actors",
)
"""Configurations of Fig. 5, from 39 actors to 6."""
SHARE: Final = 0.6
"""eta, as a share."""
SHARE_SLACK: Final = 0.02
DECIDES: Final = "undecided where it contains 0"
SAYS_LITTLE: Final = "no number of SMAC-lite is one of StarCraft II"


def judge_learning(courses: Courses, scale: CmarlScale) -> dict[str, Sequence[ClaimResult]]:
    """Results by source of the claims on learning at equal time."""
    return {
        "Fig. 2": [_c1(courses, scale), *_others(), _football()],
        "Fig. 4": [_c3(courses, scale), _hours()],
        "Fig. 5": [_c4(courses, scale), _corridor(courses, scale), _c5(courses, scale)],
        "Fig. 6": _c6(courses, scale),
        "Fig. 7": [_c7(courses, scale)],
        "Fig. 8": [
            untested(
                "C8: RODE is 1.25 and 2.67 times slower than CMARL, CDS 1.5 times.",
                "RODE and CDS are not built",
            )
        ],
    }


def _football() -> ClaimResult:
    return untested(
        "C2: only CMARL has a positive goal difference on three football tasks.",
        "Google Research Football is not built here: its compiled game makes 100 to 140 steps a "
        "second on a core",
    )


def _others() -> list[ClaimResult]:
    return [
        untested(
            "C1: CMARL wins 4 times as often as QPLEX, 10 times as RODE, 18 times as CDS.",
            "QPLEX, RODE and CDS are not built",
        )
    ]


def _hours() -> ClaimResult:
    return untested(
        "C3: 6h_vs_8z and MMM2 are learnt in less than 4 hours.",
        "hours of StarCraft II; virtual time has the durations that it is given",
    )


def _pairs(
    courses: Courses, scale: CmarlScale, names: Sequence[str]
) -> tuple[list[tuple[str, int]], str]:
    """Maps and seeds that all systems have, and why they do not suffice, empty if they do."""
    pairs = courses.pairs(names)
    missing = len(scale.maps) * scale.seeds - len(pairs)
    if not missing:
        return pairs, ""
    return pairs, f"{missing} of {missing + len(pairs)} pairs of map and seed are not computed"


def _strength(pairs: Sequence[tuple[str, int]], *, best: Held = Held.HELD) -> Strength:
    maps, seeds = ({pair[place] for pair in pairs} for place in (0, 1))
    enough = len(maps) >= LEAST_MAPS and len(seeds) >= LEAST_SEEDS
    said = f"virtual time, {len(maps)} maps, {len(seeds)} seeds"
    return Strength(said, best if enough else Held.UNDECIDED)


def _judged(
    claim: str,
    courses: Courses,
    scale: CmarlScale,
    names: Sequence[str],
    decide: Callable[[Sequence[tuple[str, int]]], tuple[Held, str]],
) -> ClaimResult:
    """Judge a claim where all courses that it needs are there."""
    pairs, missing = _pairs(courses, scale, names)
    if missing:
        return untested(claim, f"not judged: {missing}")
    held, said = decide(pairs)
    against = [said] if held is Held.NOT_HELD else []
    return judge(claim, against, grounds=said, strength=_strength(pairs, best=held))


def paired(courses: Courses, pairs: Sequence[tuple[str, int]], first: str, second: str) -> Interval:
    """Difference of two systems' areas by map and seed, with Student's 90 % interval."""
    gains = np.array([courses.area(first, *each) - courses.area(second, *each) for each in pairs])
    return _interval(gains)


def _interval(gains: Array) -> Interval:
    """Return the mean with Student's 90 % interval, which is unbounded for a single pair."""
    if len(gains) < 2:
        return Interval(float(gains.mean()), -np.inf, np.inf)
    return student(gains, share=0.9)


def _said(first: str, second: str, found: Interval) -> str:
    return (
        f"{SYSTEMS[first].label} - {SYSTEMS[second].label} {found.mean:+.3f} "
        f"[{found.low:+.3f}, {found.high:+.3f}]"
    )


def _won(courses: Courses, pairs: Sequence[tuple[str, int]], name: str) -> Array:
    return np.array([courses.won(name, *each) for each in pairs])


def _ratio(
    courses: Courses, pairs: Sequence[tuple[str, int]], other: str, least: float
) -> tuple[Held, str]:
    """Compare win rates at the end: ours less ``least`` times theirs, by map and seed."""
    ours, theirs = (_won(courses, pairs, name) for name in ("cmarl", other))
    found = _interval(ours - least * theirs)
    weak = "" if theirs.any() else "the other never won, so that the ratio says little; "
    said = (
        f"mean win rates at the end {ours.mean():.3f} and {theirs.mean():.3f}; the first less "
        f"{least:g} times the second {found.mean:+.3f} [{found.low:+.3f}, {found.high:+.3f}], "
        f"90 % interval; {weak}{SAYS_LITTLE}"
    )
    return by_sign(found.low, found.high), said


def _c1(courses: Courses, scale: CmarlScale) -> ClaimResult:
    return _judged(
        "C1: CMARL wins 4.5 times as often as QMIX, at least 4 times, after equal time.",
        courses,
        scale,
        ("cmarl", "qmix"),
        lambda pairs: _ratio(courses, pairs, "qmix", RATIO_TO_QMIX),
    )


def _c3(courses: Courses, scale: CmarlScale) -> ClaimResult:
    def decide(pairs: Sequence[tuple[str, int]]) -> tuple[Held, str]:
        gains = {
            scenario: np.mean(
                [
                    courses.area("cmarl", *each) - courses.area("qmix", *each)
                    for each in pairs
                    if each[0] == scenario
                ]
            )
            for scenario in scale.maps
        }
        said = ", ".join(f"{scenario} {gain:+.3f}" for scenario, gain in gains.items())
        held = Held.HELD if min(gains.values()) > 0 else Held.NOT_HELD
        return held, f"CMARL - QMIX, mean return by map: {said}"

    return _judged(
        "C3: CMARL learns sooner than QMIX on every map.",
        courses,
        scale,
        ("cmarl", "qmix"),
        decide,
    )


def rank_correlation(first: Array, second: Array) -> float:
    """Return Spearman's correlation of values without ties."""
    apart = np.argsort(np.argsort(first)) - np.argsort(np.argsort(second))
    count = len(first)
    return float(1 - 6 * (apart**2).sum() / (count * (count**2 - 1)))


def _c4(courses: Courses, scale: CmarlScale) -> ClaimResult:
    def decide(pairs: Sequence[tuple[str, int]]) -> tuple[Held, str]:
        actors = np.array([SYSTEMS[name].actors for name in BY_ACTORS], np.float64)
        areas = np.array(
            [[courses.area(name, *each) for each in pairs] for name in BY_ACTORS]
        ).mean(axis=1)
        found = rank_correlation(actors, areas)
        listed = ", ".join(
            f"{SYSTEMS[name].actors}: {area:.3f}"
            for name, area in zip(BY_ACTORS, areas, strict=True)
        )
        said = f"Spearman {found:.2f} (asked: {LEAST_RANK:g}); mean return by actors: {listed}"
        return (Held.HELD if found >= LEAST_RANK else Held.NOT_HELD), said

    return _judged("C4: more actors learn faster.", courses, scale, BY_ACTORS, decide)


def _corridor(courses: Courses, scale: CmarlScale) -> ClaimResult:
    claim = "C4: on corridor only 24 actors or more learn to win."
    if "corridor" not in scale.maps:
        return untested(claim, "corridor is too long for this scale; `--scale paper` has it")

    def decide(pairs: Sequence[tuple[str, int]]) -> tuple[Held, str]:
        there = [each for each in pairs if each[0] == "corridor"]
        won = {name: float(_won(courses, there, name).mean()) for name in BY_ACTORS}
        many = [won[name] for name in BY_ACTORS if SYSTEMS[name].actors >= 24]
        few = [won[name] for name in BY_ACTORS if SYSTEMS[name].actors < 24]
        said = ", ".join(f"{SYSTEMS[name].actors} actors {each:.2f}" for name, each in won.items())
        if not any(won.values()):
            return Held.UNDECIDED, said
        return (Held.HELD if min(many) > 0 and not any(few) else Held.NOT_HELD), said

    return _judged(claim, courses, scale, BY_ACTORS, decide)


def _faster(
    claim: str, courses: Courses, scale: CmarlScale, first: str, second: str
) -> ClaimResult:
    """Judge whether one system learns faster than another, by map and seed."""

    def decide(pairs: Sequence[tuple[str, int]]) -> tuple[Held, str]:
        found = paired(courses, pairs, first, second)
        said = f"mean return, {_said(first, second, found)}, 90 % interval, {DECIDES}"
        return by_sign(found.low, found.high), said

    return _judged(claim, courses, scale, (first, second), decide)


def _c5(courses: Courses, scale: CmarlScale) -> ClaimResult:
    claim = (
        "C5: containers with heads of their own learn faster than with the centraliser's policy."
    )
    return _faster(claim, courses, scale, "cmarl", "cmarl-no-diversity")


def _c6(courses: Courses, scale: CmarlScale) -> list[ClaimResult]:
    return [
        _faster(f"C6: {claim}.", courses, scale, *systems)
        for claim, systems in (
            ("CMARL learns faster than APE-X", ("cmarl", "apex")),
            (
                "APE-X learns faster than with actors that share its cores",
                ("apex", "apex-overload"),
            ),
            ("CMARL learns faster than QMIX-BETA", ("cmarl", "parallel")),
        )
    ]


def _c7(courses: Courses, scale: CmarlScale) -> ClaimResult:
    return _judged(
        "C7: CMARL wins 3 times as often as QMIX-BETA with PyMARL2's settings, at least twice.",
        courses,
        scale,
        ("cmarl", "parallel-v2"),
        lambda pairs: _ratio(courses, pairs, "parallel-v2", RATIO_TO_V2),
    )


def judge_share(courses: Courses) -> ClaimResult:
    """Judge claim C10."""
    claim = "C10: only eta %, 60, of what is played travels to the centraliser."
    names = [name for name in SYSTEMS if name.startswith("cmarl")]
    shares = [
        each["travelled_bytes"] / each["played_bytes"]
        for name in names
        for each in courses.facts(name)
    ]
    if not shares:
        return untested(claim, "not judged: no containers are computed")
    said = (
        f"{min(shares):.3f} to {max(shares):.3f} of the bytes of the rows in {len(shares)} runs "
        f"of containers (asked: {SHARE} +- {SHARE_SLACK})"
    )
    outside = [each for each in shares if abs(each - SHARE) > SHARE_SLACK]
    return judge(
        claim,
        [said] if outside else [],
        grounds=said,
        strength=Strength("counted, bytes handed over in virtual time"),
    )
