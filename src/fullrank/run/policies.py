"""Policies for a round that cannot be committed from the rows at hand."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundPolicies:
    """What to do with a round that cannot be committed from the rows at hand."""

    undecodable: str = "recode"
    """``recode``, ``wait`` or ``fail``."""
    inexact: str = "fail"
    """``commit`` or ``fail``."""
    deadline_s: float = 0.0
    """Time after which they apply, as errors name it."""


DEFAULT_POLICIES = RoundPolicies()
