"""Training budgets: team sizes, iterations, batches and seeds."""

from dataclasses import dataclass

from fullrank_reproduction.darl1n.training.published import SEEDS, Size


@dataclass(frozen=True, slots=True, kw_only=True)
class Darl1nBudget:
    """Limits on the sizes, lengths and repetitions of training runs."""

    sizes: int
    """Number of teams of each table, smallest first."""
    iterations: int
    """Iterations of a run; the authors' number if it is smaller."""
    every: int
    """Iterations between evaluations; the authors' number if it is smaller."""
    batch: int
    seeds: int
    timed: int
    """Timed iterations behind each iteration time."""
    draws: int
    """Draws of the success probabilities of the wireless task."""
    episodes: int
    """Episodes of tabular learners in the wireless task."""
    timed_teams: tuple[int, ...] = (3, 6, 12, 24, 48, 96)
    """Sizes M of the timed teams, ascending."""

    @property
    def said(self) -> str:
        """Description of the budget."""
        seeds = "one seed" if self.seeds == 1 else f"{self.seeds} seeds"
        return f"{seeds}, at most {self.iterations} iterations, batch {self.batch}"

    @property
    def short(self) -> str:
        """Reason why claims about smaller runs are not testable."""
        return f"needs longer runs, larger teams or more seeds: {self.said}"

    def whole(self, size: Size) -> bool:
        """True if a team trains for as long and from as many seeds as in the paper."""
        return size.iterations <= self.iterations and self.seeds >= SEEDS
