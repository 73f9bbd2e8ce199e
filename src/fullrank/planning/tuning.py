"""The tuned constants of the planner, in one table."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """Constants chosen on the regimes of ``benchmarks/regimes``, on other seeds than its claims.

    Costs are round times over those of the best code; docs/adr/0009-planner.md has the comparisons.
    """

    interval: int = 5
    """Iterations between plans."""
    first: int = 10
    """Observed iterations before the first plan."""
    window: int = 128
    """Iterations in the window. Twice as many that age half as fast: ``one_late`` to
    ``rarely_long`` costs 20 % instead of 10 % (8 seeds)."""
    window_returns: int = 2048
    """Returns in the window at most: more learners show as much in fewer iterations."""
    ageing: float = 0.99
    """Weight of an iteration over that of the next one: half in 69 iterations. With half in 11,
    ``rarely_long`` costs 29 % and ``seven_late`` 16 %."""
    others: int = 4
    """Iterations of other codes that age one as much as one of its own. With 1 instead,
    ``rarely_long`` costs 6.2 % instead of 5.0 % (20 seeds)."""

    scenarios: int = 512
    """Rounds that every candidate plays. With 128, ``rarely_long`` costs 19 % more; 2048 save
    nothing (24 seeds)."""
    shared_scenarios: int = 128
    """The same where links are slow enough to be simulated too, or rounds are hedged, which takes
    longer."""

    grace_rounds: int = 16
    """Scenarios from which the grace of a candidate is learnt before it plays all of them."""
    near: float = 0.01
    """Relative difference of forecasts that the scenarios do not tell apart."""
    changes: int = 3
    """Changes of code that may follow one another at once."""
    refill: int = 80
    """Iterations after which one more change is allowed: at most 9 changes in any 500."""

    censoring_steps: int = 12
    """Steps of the self-consistency iteration, which is close after a few; after a hundred the
    estimate drifts to no lateness where a code never shows any."""
    slower_paces: tuple[tuple[float, float], ...] = ((1.1, 1e-3), (1.25, 2e-4), (1.6, 2e-5))
    """Paces over the 95th percentile of the completed ones, and their prior shares: a commit cuts
    off slow returns first. With 2 % of all returns ``seven_late`` costs 18 % instead of 3 %;
    without any, tolerance stays high for 95 iterations after delays end."""
    unseen: float = 1e-5
    """Prior share of lateness beyond every observed case; unexplained mass is added to it."""
    stopped: float = 1e-6
    """A learner has stopped when lateness explains its present silence with less probability."""
    longest: float = 100.0
    """Unseen lateness over its lower bound, at most."""

    unequal: float = 3.0
    """Ratio of the variance between learners to that by chance above which some are late more
    than others: beyond the 99.9th percentile for fifteen learners."""
    most_late: float = 5.0
    """Cap on lateness, in units."""
    independent: tuple[float, float] = (0.6, 1.6)
    """Range of the variance of the number of late learners over the binomial one within which they
    are late independently: three standard deviations around 1 for a hundred iterations."""

    tested_rounds: int = 40
    """Latest rounds or iterations that change detection tests. With 12 ``seven_heavy`` to
    ``seven_late`` costs 15 % instead of 6 % (6 seeds)."""
    unlikely: float = 1e-5
    """Probability below which a change is detected; a run makes hundreds of tests."""
    least_shift: float = 0.03
    """Relative shift of the mean round time below which a change is ignored."""
    earlier_paces: int = 8
    """Earlier paces of a learner that its later ones are compared with, at least."""
    later_paces: int = 3
    """Latest iterations that a change of pace spans at least; fewer are a hiccup."""
    finest_rank: float = 1 / 1024
    """Resolution of a rank: a few hundred scenarios resolve no probability more finely."""
    rank_tie: float = 1e-6
    """Relative difference of round times that are equal but for rounding. Without it a round of
    learners that do not scatter contradicts its own forecast."""

    case_ageing: float = 0.97
    """Weight of a late case that has left the window over that of one an iteration newer."""
    earlier_cases_share: float = 2e-4
    """Prior share of all cases that have left the window, so that they explain only what no case
    in the window does."""
    earlier_cases: int = 128
    """Late cases kept after they leave the window, at most."""
    late_share: float = 0.25
    """Delay over the typical computing time above which a case counts as late."""

    negligible_overhead: float = 0.01
    """Overhead over computing time below which links count as free."""
    bandwidth_bisections: int = 18
    """Halvings of the interval of six decades in which the bandwidth is sought."""


TUNING = Tuning()
