"""How much of the paper is trained."""

from dataclasses import dataclass

from fullrank_reproduction.darl1n.training.published import SEEDS, Size


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much is trained."""

    sizes: int
    """Teams of each table, from the smallest on."""
    iterations: int
    """At most; the authors' numbers where those are smaller."""
    every: int
    """Iterations from one evaluation to the next, likewise."""
    batch: int
    seeds: int
    timed: int
    """Iterations behind each time of an iteration."""
    draws: int
    """Of the wireless world's probabilities."""
    episodes: int
    """That tabular learners play there."""
    timed_teams: tuple[int, ...] = (3, 6, 12, 24, 48, 96)
    """M for which iterations are timed, ascending."""

    @property
    def said(self) -> str:
        """In words."""
        seeds = "one seed" if self.seeds == 1 else f"{self.seeds} seeds"
        return f"{seeds}, at most {self.iterations} iterations, batch {self.batch}"

    @property
    def short(self) -> str:
        """Why runs cannot be judged that are not ``whole``."""
        return f"needs longer runs, larger teams or more seeds: {self.said}"

    def whole(self, size: Size) -> bool:
        """Whether a team is trained as long, and from as many seeds, as the paper's."""
        return size.iterations <= self.iterations and self.seeds >= SEEDS
