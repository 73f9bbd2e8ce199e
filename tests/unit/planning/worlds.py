"""Planned runs in virtual time."""

from fullrank.config.auto_code import AutoCodeSettings
from fullrank.planning.cluster import Regime
from fullrank.planning.costs import Payload
from fullrank.planning.simulation import PlannedRun, play_planned


def regime(**keys: object) -> Regime:
    """Fifteen learners, eight agents, a tenth of a second a unit."""
    settings = {"learners": 15, "agents": 8, "unit_s": 0.1, "spread": 0.1} | keys
    return Regime(**settings)  # type: ignore[arg-type]


def late(k: int, delay_s: float = 2.0) -> Regime:
    """k learners late in every iteration."""
    return regime(stragglers={"name": "fixed_k", "k": k, "delay_s": delay_s})


def planned(
    *regimes: Regime, iterations: int = 120, seed: int = 0, undecodable: str = "recode"
) -> PlannedRun:
    """The regimes in turn, each for the same number of iterations."""
    each = iterations // len(regimes)
    return play_planned(
        lambda iteration: regimes[min(iteration // each, len(regimes) - 1)],
        Payload(),
        auto=AutoCodeSettings(),
        iterations=iterations,
        seed=seed,
        undecodable=undecodable,
    )
