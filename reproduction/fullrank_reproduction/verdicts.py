"""Verdicts: how the claims of a paper fared, each with its reason."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum


class Held(StrEnum):
    """How a claim fared."""

    HELD = "held"
    NOT_HELD = "not held"
    NOT_TESTABLE = "not testable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One claim, judged."""

    claim: str
    held: Held
    reason: str


def judge(claim: str, against: Sequence[str], *, grounds: str) -> Verdict:
    """Held for the ``grounds`` given, unless something speaks against it."""
    if against:
        return Verdict(claim=claim, held=Held.NOT_HELD, reason="; ".join(against))
    return Verdict(claim=claim, held=Held.HELD, reason=grounds)


def as_table(judged: Mapping[str, Sequence[Verdict]]) -> str:
    """The lines of a page: claims by the source that was judged."""
    lines = ["| judged | claim | verdict | reason |", "|---|---|---|---|"]
    for source, found in judged.items():
        for each in found:
            claim, reason = (text.replace("|", r"\|") for text in (each.claim, each.reason))
            lines.append(f"| {source} | {claim} | **{each.held}** | {reason} |")
    return "\n".join(lines)
