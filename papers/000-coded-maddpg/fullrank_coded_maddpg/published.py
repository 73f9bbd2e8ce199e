"""The experiments of [Wang21, Sec. V], their sizes, and the numbers that its authors published.

Most of the keep-away cells equal those of physical deception plus a constant, and their uncoded gap
is 6.0 s where 5 x 1.5 s is expected; they are shown with less weight.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fullrank_papers.paper import toml

PACKAGE = "fullrank_coded_maddpg"
LEARNERS = 15
"""Number of learners, N."""
AGENTS = (8, 10)
"""M in Figs. 4 and 5; Fig. 3 has the first. In competitive tasks with M = 10, K = M / 2."""
TOTALLED = 5
"""Iterations in a published time."""
CODES = ("uncoded", "mds", "random_sparse", "replication", "ldpc")
"""Codes in the order of the table."""
HEDGED = "hedged"
"""No code: all N learners, of which idle ones compute late units again."""
MATRIX = "vandermonde"
"""The paper's own matrix of MDS, of which every row has all units; ours has fewer in some."""
ALL_CODES = (*CODES, "cyclic", "auto", HEDGED)
"""With ours."""
EVERY = 250
"""Iterations behind each point of a published curve."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Wang21Task:
    """One environment of the paper."""

    name: str
    """Registered name of the environment."""
    competitive: bool
    delay_s: float
    """Delay of a straggler, t_s."""
    stragglers: tuple[int, ...]
    """Numbers of stragglers, k."""
    published: Mapping[str, Mapping[str, tuple[float, ...]]]
    """Published times by M and code, one for each k."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PublishedPanel:
    """One panel of Fig. 3: a task with M = 8, and the curves that the authors saved of it.

    A point is the mean return of 1,000 exploring episodes, which are 250 iterations, summed over
    all agents. Source: ``learning_curves`` of BaoqianWang/coding_distributed_marl at 6206ad3. Their
    centralised curve of navigation, from -27,469 to -25,259, is of another set-up and left out.
    Sec. V-B gives all competitive tasks four adversaries; Sec. V-A, like the authors' curves, gives
    physical deception one.
    """

    name: str
    """Name of the panel's runs."""
    task: str
    adversaries: int
    """K, number of adversaries."""
    published: Mapping[str, tuple[float, ...]]
    """The authors' curves by their file's kind: "coded" ones come from files named ``uncoded``."""


_DATA = toml(PACKAGE, "published.toml")
TASKS = {task["name"]: Wang21Task(**task) for task in _DATA["tasks"]}
PANELS = {panel["name"]: PublishedPanel(**panel) for panel in _DATA["panels"]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wang21Scale:
    """Sizes of the reproduction."""

    iterations: int
    """Iterations of the centralised run, for every seed."""
    cyclic: int
    """Iterations of the run with ``cyclic``, for every seed."""
    compared: int
    """Iterations of the runs with other codes, for the first seed."""
    payload: int
    """Iterations of the runs whose parameters are coded, for every seed."""
    seeds: tuple[int, ...]
    more_curves: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """More seeds by which the curve of a panel is compared with the authors'."""
    batch: int
    warmup: int
    panels: tuple[str, ...] = tuple(PANELS)
    repeats: int
    """Repeats of each measured computing time."""
    real_tasks: int = len(TASKS)
    """Number of tasks that are measured on real processes, their M, and codes."""
    real_agents: tuple[int, ...] = AGENTS
    real_codes: tuple[str, ...] = ALL_CODES
    real_rounds: int

    def curve_seeds(self, panel: PublishedPanel) -> tuple[int, ...]:
        """Seeds by which the curve of a panel is compared with the authors'."""
        return (*self.seeds, *self.more_curves.get(panel.name, ()))


SCALES = {name: Wang21Scale(**sizes) for name, sizes in toml(PACKAGE, "scales.toml").items()}
