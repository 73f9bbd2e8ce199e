"""Plans: a chosen code, and the forecasts that it was chosen from."""

from dataclasses import dataclass

from fullrank.common.types import Times
from fullrank.planning.candidates import Candidate
from fullrank.planning.tuning import TUNING


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Forecast:
    """Round times of a candidate in K scenarios."""

    label: str
    round_s: Times
    """Round time in each scenario, shape (K,)."""
    mean_s: float
    cautious_s: float
    """One standard error above the mean: rare lateness may be less rare than it was observed."""

    def rank(self, round_s: float) -> float:
        """The share of scenarios quicker than a round, plus half the share of ties."""
        quicker = self.round_s < round_s * (1.0 - TUNING.rank_tie)
        not_longer = self.round_s <= round_s * (1.0 + TUNING.rank_tie)
        return float((quicker.mean() + not_longer.mean()) / 2)

    def __str__(self) -> str:
        return f"{self.label} ({self.mean_s:.4g} s)"


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """A chosen code, and the reason."""

    candidate: Candidate
    changed: bool
    reason: str
    forecasts: tuple[Forecast, ...] = ()
    """Forecasts of all candidates, the quickest first; empty before ``Tuning.first`` iterations."""
