"""Claim C9: neither actors nor learners wait at replay, which stores episodes in batches."""

from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from statistics import median
from typing import Final

from fullrank.common.types import JSON
from fullrank_reproduction.cells import Cell
from fullrank_reproduction.claim_results import ClaimResult, Strength, judge, untested
from fullrank_reproduction.cmarl import group_commit, multi_queue

WAITS, GROUPS = "queue-waits", "queue-groups"
WAYS: Final = {"memory": False, "fsync": True}
"""Acknowledgements, and whether they wait for the disk."""


def cells(*, seconds: float, turns: int) -> list[Cell]:
    """Waits of 39 writers and a sampler; group commit against one by one.

    Args:
        seconds: Length of the first measurement.
        turns: Turns of each way in the second.
    """
    return [
        Cell(
            name=WAITS,
            settings={"seconds": seconds, "writers": multi_queue.WRITERS},
            compute=partial(_waits, seconds),
            weight=2 * seconds,
        ),
        Cell(
            name=GROUPS,
            settings={"turns": turns, "group": group_commit.GROUP},
            compute=partial(_groups, turns),
            weight=turns,
        ),
    ]


def _waits(seconds: float) -> JSON:
    return asdict(multi_queue.measure(seconds))


def _groups(turns: int) -> JSON:
    return {
        name: median(group_commit.ratios(sync=sync, turns=turns)) for name, sync in WAYS.items()
    }


def judge_queues(results: Mapping[str, JSON]) -> ClaimResult:
    """Judge claim C9."""
    claim = "C9: the multi-queue manager lets neither actors nor the learner wait."
    if not {WAITS, GROUPS} <= results.keys():
        return untested(claim, "not judged: `--only queues` measures it")
    waits, groups = results[WAITS], results[GROUPS]
    parts = {
        f"{multi_queue.WRITERS} writers blocked {waits['blocked']:.3%} of their time (below 1 %)": (
            waits["blocked"] < multi_queue.BLOCKED_CLAIM
        ),
        f"a sampler without rest waited {waits['waited']:.1%} of its time (below 5 %)": (
            waits["waited"] < multi_queue.WAITING_CLAIM
        ),
        **{
            f"an episode in a group takes 1/{groups[name]:.1f} of the time, {name} "
            f"(at most 1/{group_commit.CLAIM:g})": groups[name] >= group_commit.CLAIM
            for name in WAYS
        },
    }
    return judge(
        claim,
        [said for said, holds in parts.items() if not holds],
        grounds="; ".join(parts),
        strength=Strength("measured on a real replay service, one machine"),
    )
