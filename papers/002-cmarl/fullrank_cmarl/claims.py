"""The claims C1 to C10 of [CMARL], judged on the computed cells.

A sample is a seed, whose maps are averaged where a claim does not name them. All claims on learning
compare one measure, the win rate over time: the mean of a run's evaluations.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from scipy.stats import spearmanr

from fullrank.common.types import Array
from fullrank_cmarl.systems import INDEPENDENT, SYSTEMS, CmarlScale, Courses
from fullrank_papers.claims import (
    CIRCULAR,
    UNBUILT,
    ClaimResult,
    Judgement,
    Whose,
    by_samples,
    judge,
    undecided,
    untested,
)

DURATIONS: Final = "durations of steps and updates"
RATIO_TO_QMIX: Final = 4.0
"""The paper's abstract: 4 to 18 times; beside QMIX 4.5."""
RATIO_TO_QPLEX: Final = 4.0
RATIO_TO_V2: Final = 2.0
"""Asked of Fig. 7, where CMARL has 30 % and PyMARL2's settings 10 %."""
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


def judge_learning(courses: Courses, scale: CmarlScale) -> Judgement:
    """Results by source of the claims on learning at equal time."""
    judge = _Judge(courses, scale)
    return {
        "Fig. 2": [
            judge.wins(
                "C1: CMARL wins 4.5 times as often as QMIX, at least 4 times, in equal time.",
                "qmix",
                RATIO_TO_QMIX,
            ),
            judge.wins(
                "C1: CMARL wins 4 times as often as QPLEX, 10 times as RODE, 18 times as CDS.",
                "qplex",
                RATIO_TO_QPLEX,
                without=["RODE", "CDS"],
            ),
            undecided(
                "C2: only CMARL has a positive goal difference on three football tasks.",
                "Google Research Football is not built here",
                UNBUILT,
            ),
        ],
        "Fig. 4": [
            judge.learning(
                "C3: CMARL learns sooner than QMIX on every map.", "cmarl", "qmix", each=True
            ),
            untested(
                "C3: 6h_vs_8z and MMM2 are learnt in less than 4 hours.",
                "hours of StarCraft II; virtual time has the durations that it is given",
            ),
        ],
        "Fig. 5": [
            judge.actors(),
            undecided(
                "C4: on corridor only 24 actors or more learn to win.",
                "corridor is too long for this scale; `--scale paper` has it",
            ),
            judge.learning(
                "C5: containers with heads of their own learn faster than with the centraliser's "
                "policy.",
                "cmarl",
                "cmarl-no-diversity",
            ),
        ],
        "Fig. 6": [
            judge.learning("C6: CMARL learns faster than APE-X.", "cmarl", "apex"),
            judge.learning(
                "C6: APE-X learns faster than with actors that share its cores.",
                "apex",
                "apex-overload",
            ),
            judge.learning("C6: CMARL learns faster than QMIX-BETA.", "cmarl", "parallel"),
        ],
        "Fig. 7": [
            judge.wins(
                "C7: CMARL wins 3 times as often as QMIX-BETA with PyMARL2's settings, at least "
                "twice.",
                "parallel-v2",
                RATIO_TO_V2,
            )
        ],
        "Fig. 8": [
            undecided(
                "C8: RODE is 1.25 and 2.67 times slower than CMARL, CDS 1.5 times.",
                "RODE and CDS are not built",
                UNBUILT,
            )
        ],
    }


def judge_independent(courses: Courses, scale: CmarlScale) -> ClaimResult:
    """Judge claim C12 on the maps of another project."""
    claim = "C12: CMARL learns SMAX, a battle of another project, faster than APE-X."
    return replace(_Judge(courses, scale).learning(claim, *INDEPENDENT), whose=Whose.OURS)


class _Judge:
    """Judges the claims on learning.

    Args:
        courses: What the systems learnt.
        scale: Its maps and seeds.
    """

    def __init__(self, courses: Courses, scale: CmarlScale) -> None:
        self._courses, self._scale = courses, scale

    def _values(self, names: Sequence[str]) -> tuple[Array, list[str]]:
        """Win rates of shape (systems, maps, whole seeds), and what is missing."""
        pairs = set(self._courses.pairs(names))
        maps, every = self._scale.maps, min(map(self._scale.seeds_of, names), key=len)
        seeds = [seed for seed in every if all((name, seed) in pairs for name in maps)]
        lacking = len(maps) * len(every) - len(pairs)
        missing = [f"{lacking} of {len(maps) * len(every)} pairs of map and seed"] * (lacking > 0)
        missing += [self._scale.short] * bool(self._scale.short)
        won = self._courses.won
        values = [[[won(name, each, seed) for seed in seeds] for each in maps] for name in names]
        return np.array(values), missing

    def wins(
        self, claim: str, other: str, least: float, *, without: Sequence[str] = ()
    ) -> ClaimResult:
        """Judge a ratio of win rates: ours less ``least`` times theirs.

        Args:
            claim: The claim.
            other: The other system.
            least: Least ratio.
            without: Other systems of the claim, which are not built.
        """
        (ours, theirs), missing = self._values(("cmarl", other))
        said = f"{ours.mean():.3f} and {theirs.mean():.3f} won" if ours.size else ""
        said += ", so that the ratio says little" * (not theirs.any())
        parts = {"": (ours - least * theirs).mean(axis=0)} if ours.size else {}
        return by_samples(
            claim, parts, censored=[*missing, *without], said=said, assuming=DURATIONS
        )

    def learning(self, claim: str, first: str, second: str, *, each: bool = False) -> ClaimResult:
        """Judge whether one system learns faster than another, on the mean or each of the maps."""
        (ours, theirs), missing = self._values((first, second))
        leads = 100 * (ours - theirs)
        parts = (
            dict(zip(self._scale.maps, leads, strict=True)) if each else {"": leads.mean(axis=0)}
        )
        return by_samples(
            claim,
            parts if ours.size else {},
            censored=missing,
            said="points of the win rate",
            assuming=DURATIONS,
        )

    def actors(self) -> ClaimResult:
        """Judge Fig. 5 by the rank correlation of actors and win rates, seed by seed."""
        won, missing = self._values(BY_ACTORS)
        actors = np.array([SYSTEMS[name].actors for name in BY_ACTORS], np.float64)
        means = won.mean(axis=1).T
        ranks = np.array([rank_correlation(actors, each) for each in means])
        return by_samples(
            "C4: more actors learn faster.",
            {"": ranks} if won.size else {},
            censored=missing,
            said="Spearman",
            assuming=DURATIONS,
        )


def rank_correlation(first: Array, second: Array) -> float:
    """Return Spearman's correlation; equal values share a rank, and if all are equal it is 0."""
    constant = not (np.ptp(first) and np.ptp(second))
    return 0.0 if constant else float(spearmanr(first, second).statistic)


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
        return undecided(claim, "no containers are computed")
    said = (
        f"containers hand over that share; {min(shares):.3f} to {max(shares):.3f} of the bytes in "
        f"{len(shares)} runs"
    )
    outside = [each for each in shares if abs(each - SHARE) > SHARE_SLACK]
    return judge(
        claim,
        [said] if outside else [],
        grounds=said,
        strength=CIRCULAR,
    )
