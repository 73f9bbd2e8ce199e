"""Claims on the noise of gradients that are decoded from independent samples."""

from collections.abc import Iterator

from fullrank_reproduction.claim_results import ClaimResult, judge
from fullrank_reproduction.darl1n import noise
from fullrank_reproduction.darl1n.published import AGENTS
from fullrank_reproduction.darl1n.results import Results, at

RECOVERED = 18
"""|J| from which dense codes are usable again."""
DROWNED, CLEAR = 10.0, 2.0
"""Median of the mean variance, in that of one learner's own gradient: unusable from the
first, harmless up to the second."""


def judge_noise(results: Results) -> list[ClaimResult]:
    """Results for the noise study."""
    first, then = (
        [(name, median(results, name, size)) for name in noise.DENSE]
        for size in (AGENTS, RECOVERED)
    )
    return [
        judge(
            "No code decodes with a mean variance below M / |J|.",
            list(_below_the_bound(results)),
            grounds="in every set J that was looked at",
        ),
        judge(
            f"With |J| = M dense codes decode more noise than gradient (over {DROWNED:g} times "
            "that of one learner).",
            [f"{name}: {value:.1f}" for name, value in first if value < DROWNED],
            grounds=", ".join(f"{name} {value:.0f}" for name, value in first),
        ),
        judge(
            f"With |J| = {RECOVERED} they do not (at most {CLEAR:g} times).",
            [f"{name}: {value:.1f}" for name, value in then if value > CLEAR],
            grounds=", ".join(f"{name} {value:.1f}" for name, value in then),
        ),
    ]


def median(results: Results, name: str, size: int) -> float:
    """Median of the mean variance over decodable sets; every set of a dense code is decodable."""
    return float(at(results, name, size)["noise"][1])


def _below_the_bound(results: Results) -> Iterator[str]:
    for name in noise.CODES:
        for size in noise.SIZES:
            least = at(results, name, size)["least"]
            if least is not None and least < 1.0 - 1e-9:
                yield f"{name} with {size} rows: {least:.3f} of it"
