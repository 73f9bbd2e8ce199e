"""Results of testing the claims of a paper, each with its reason."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from fullrank_reproduction.narrow import item


class Held(StrEnum):
    """Outcome of a claim."""

    HELD = "held"
    NOT_HELD = "not held"
    NOT_TESTABLE = "not testable"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimResult:
    """The result of one claim."""

    claim: str
    held: Held
    reason: str


def judge(claim: str, against: Sequence[str], *, grounds: str) -> ClaimResult:
    """Held for the given ``grounds``, unless there is evidence ``against`` it."""
    if against:
        return ClaimResult(claim=claim, held=Held.NOT_HELD, reason="; ".join(against))
    return ClaimResult(claim=claim, held=Held.HELD, reason=grounds)


def as_list(judged: Mapping[str, Sequence[ClaimResult]]) -> str:
    """Markdown list of the claims by source."""
    return "\n".join(
        item(f"*{source}*: {result.claim} **{result.held}**: {result.reason}")
        for source, results in judged.items()
        for result in results
    )
