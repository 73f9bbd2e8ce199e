"""Training budgets: team sizes, iterations, batches and seeds."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from fullrank_reproduction.darl1n.training.published import SEEDS, Darl1nTask, Size


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
    more: Mapping[str, int] = field(default_factory=dict)
    """Number of teams of a task, by its name, where it is not ``sizes``."""
    shorter: Mapping[tuple[str, int], int] = field(default_factory=dict)
    """Iterations of a team, by task and M, where they are fewer."""
    grown: Mapping[str, tuple[int, ...]] | None = None
    """Iterations of EPC's stages by task, other tasks without EPC; None: as the other methods."""
    coded: int = 0
    """Iterations of the runs with codes, Table VI."""
    full_range: int = 0
    """Iterations of DARL1N with all agents as neighbours, Fig. 3."""

    @property
    def said(self) -> str:
        """Description of the budget."""
        seeds = "one seed" if self.seeds == 1 else f"{self.seeds} seeds"
        return f"{seeds}, at most {self.iterations} iterations, batch {self.batch}"

    @property
    def short(self) -> str:
        """Reason why claims about smaller runs are not testable."""
        return f"needs longer runs, larger teams or more seeds: {self.said}"

    @property
    def judges(self) -> bool:
        """True if there are as many seeds as in the paper, so that means can be judged."""
        return self.seeds >= SEEDS

    def sizes_of(self, task: Darl1nTask) -> tuple[Size, ...]:
        """Teams of a task, smallest first."""
        return task.sizes[: self.more.get(task.name, self.sizes)]

    def grown_sizes(self, task: Darl1nTask) -> tuple[Size, ...]:
        """Teams of a task that EPC trains, smallest first."""
        if self.grown is None:
            return self.sizes_of(task)
        return tuple(
            replace(size, iterations=iterations)
            for size, iterations in zip(task.sizes, self.grown.get(task.name, ()), strict=False)
        )

    def most(self, task: Darl1nTask, size: Size) -> int:
        """Most iterations of a team."""
        return self.shorter.get((task.name, size.agents), self.iterations)
