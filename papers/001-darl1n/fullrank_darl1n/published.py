"""The experiments of [DARL1N, Sec. VI] and the numbers that its authors published.

Codes: M = 12 agents of Food Collection, N = 24 learners. The paper's MDS matrix is a Vandermonde
matrix of unknown nodes; here it is ``mds``, which decodes in floating point. Fig. 7 has no printed
numbers.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple, TypeAlias

from fullrank.codes import Code, make_code
from fullrank.stragglers import Bernoulli, DelayModel, FixedK
from fullrank_papers.paper import toml

PACKAGE = "fullrank_darl1n"
AGENTS = 12
"""Number of agents, M."""
LEARNERS = 24
"""Number of learners, N."""
RATES = (0.0, 0.2, 0.5)
"""eta: the share or the probability of stragglers."""
LATE = RATES[1:]
RECEIVED = (12, 18, 24)
"""|J| in Table V."""
DELAYS_S = (1.0, 4.0)
"""Delta in Fig. 7; Table VI has the first."""
TOTALLED = 30
"""Iterations in each time of Fig. 7."""

METHODS = ("maddpg", "mfac", "epc", "epc-scratch", "darl1n")
"""Methods in the order of the tables."""
DARL1N, EPC = "darl1n", "epc"
REPLAY = "darl1n_replay"
"""DARL1N with the paper's replay; ``darl1n``, ours, learns from fresh transitions alone."""
LOCAL = (DARL1N, REPLAY)
BASELINES = ("maddpg", "mfac")
ENGINE_METHODS = (*BASELINES, DARL1N)
"""Methods that are trained here, by registered name."""
WINDOW = 90
"""Consecutive iterations over which a run must have settled."""
SETTLED = 0.02
"""Bound on the variance of a settled run's returns, relative to their absolute mean."""
SEEDS = 3
"""Number of runs behind each published number."""
EPISODES = 10
"""Episodes of an evaluation."""
ADVERSARIES = "maddpg"
"""Method by which both sides of a contest learn before its adversaries are frozen."""

_DATA = toml(PACKAGE, "published.toml")
Triple: TypeAlias = tuple[float, float, float]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Scheme:
    """One way of assigning agents to learners."""

    code: str
    """Registered name of the code."""
    params: Mapping[str, float] = field(default_factory=dict)
    drawn: bool = False
    """True if the matrix is drawn at random, by seed."""
    hedged: bool = False
    """True if idle learners compute late units again."""

    @property
    def name(self) -> str:
        """Name in cells and tables."""
        if self.hedged:
            return "hedged"
        return "-".join([self.code, *(f"{value:g}" for value in self.params.values())])

    def make_code(self, seed: int = 0) -> Code:
        """The code of a draw."""
        params: Mapping[str, Any] = self.params
        return make_code(self.code, rows=LEARNERS, units=AGENTS, seed=seed, **params)


def _drawn(code: str, *densities: float) -> tuple[Scheme, ...]:
    return tuple(Scheme(code=code, params={"density": each}, drawn=True) for each in densities)


UNCODED, MDS, REPETITION = (Scheme(code=code) for code in ("uncoded", "mds", "replication"))
SPARSE, LDGM = _drawn("random_sparse", 0.2, 0.4, 0.8), _drawn("ldgm", 0.1, 0.3, 0.5)
SCHEMES = (UNCODED, MDS, *SPARSE, REPETITION, *LDGM)
"""Schemes in the order of Table V."""
TIMED = (UNCODED, MDS, SPARSE[2], REPETITION, LDGM[1])
"""Schemes of Fig. 7 and Table VI."""
CYCLIC = Scheme(code="cyclic", params={"tolerance": 5})
"""This project's code, which tolerates a share of 0.2 stragglers; compared by time."""
HEDGED = Scheme(code="uncoded", hedged=True)
"""No code, and idle learners compute late units again; compared by time."""
VANDERMONDE = Scheme(code="vandermonde")


@dataclass(frozen=True, slots=True, kw_only=True)
class TableVRow:
    """A line of Table V."""

    overhead: float
    success: Triple
    """P(decodable) by ``RATES``."""
    variance: Triple
    """Average V by ``RECEIVED``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableViRow:
    """A line of Table VI, by ``RATES``."""

    seconds: Triple
    """Time to convergence."""
    variance: Triple
    """Average V."""
    reward: Triple


TABLE_V = {name: TableVRow(**row) for name, row in _DATA["table_v"].items()}
TABLE_VI = {name: TableViRow(**row) for name, row in _DATA["table_vi"].items()}


class StragglerModel(StrEnum):
    """Distribution of the number of stragglers at a rate eta: the paper's text, its Table V."""

    BERNOULLI = "bernoulli"
    """Each learner with probability eta (Assumption 4)."""
    FIXED = "fixed"
    """Exactly round(eta N) learners."""

    def model(self, rate: float, *, delay_s: float) -> DelayModel:
        """The delay model."""
        if self is StragglerModel.BERNOULLI:
            return Bernoulli(probability=rate, delay_s=delay_s)
        return FixedK(k=stragglers(rate), delay_s=delay_s)


def stragglers(rate: float) -> int:
    """The number of stragglers, round(eta N)."""
    return round(rate * LEARNERS)


def success_probability(scheme: str, model: StragglerModel, rate: float) -> float | None:
    """Closed form of P(decodable); None for random matrices.

    Independent stragglers: [DARL1N, Propositions 2 to 4]. A fixed number k: the ways to choose k
    learners such that all M of ``uncoded`` (one of each pair in ``replication``, N - k >= M in
    ``mds``) remain, as a share of all ways, N = 2 M.
    """
    k, spare = stragglers(rate), LEARNERS - AGENTS
    every, fixed = math.comb(LEARNERS, k), model is StragglerModel.FIXED
    if scheme == UNCODED.name:
        return math.comb(spare, k) / every if fixed else (1.0 - rate) ** AGENTS
    if scheme == REPETITION.name:
        pairs = math.comb(AGENTS, k) * 2.0**k / every
        return pairs if fixed else (1.0 - rate ** (LEARNERS // AGENTS)) ** AGENTS
    if scheme == MDS.name:
        chances = (
            math.comb(LEARNERS, k) * rate**k * (1.0 - rate) ** (LEARNERS - k)
            for k in range(spare + 1)
        )
        return float(k <= spare) if fixed else sum(chances)
    return None


class Printed(NamedTuple):
    """A cell of Tables I to IV."""

    seconds: float
    """Seconds to convergence."""
    reward: float
    """Return of the good agents at convergence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """A team and the length of its training."""

    agents: int
    """Number of agents M, adversaries included."""
    iterations: int
    """Iterations of DARL1N in the authors' scripts."""
    horizon: int = 25
    """Steps of an episode."""
    baseline_iterations: int = 0
    """Those of MADDPG and MFAC; 0 if they are as many."""
    adversary_iterations: int = 0
    """Iterations in which both sides learn first; 0 with one side."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Darl1nTask:
    """One environment, with its published results."""

    name: str
    """Registered name of the environment."""
    table: str
    """Table of the paper that holds its results."""
    sizes: tuple[Size, ...]
    every: int
    """Iterations from one evaluation to the next in the authors' scripts."""
    printed: Mapping[str, Mapping[str, tuple[float, ...]]]
    """Published seconds and rewards by method, for each size."""

    @property
    def contest(self) -> bool:
        """True if there are adversaries, which are trained first."""
        return self.sizes[0].adversary_iterations > 0

    @property
    def lattice(self) -> bool:
        """True if neighbours are fixed instead of defined by a distance."""
        return self.name == "ising"


TASKS = tuple(
    Darl1nTask(**{**task, "sizes": tuple(Size(**size) for size in task["sizes"])})
    for task in _DATA["tasks"]
)
ISING, FOOD, GRASSLAND, BATTLE = TASKS


class TeamSpec(NamedTuple):
    """A team of the tables: its task and size."""

    task: Darl1nTask
    size: Size

    def printed(self, method: str) -> Printed:
        """The paper's results of a method."""
        row, place = self.task.printed[method], self.task.sizes.index(self.size)
        return Printed(row["seconds"][place], row["reward"][place])

    def __str__(self) -> str:
        return f"{self.task.name}, M = {self.size.agents}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Darl1nScale:
    """Limits on the sizes, lengths and repetitions of the reproduction."""

    sizes: int
    """Number of teams of each table, smallest first."""
    iterations: int
    """Iterations of a run; the authors' number if it is smaller."""
    every: int
    """Iterations between evaluations; the authors' number if it is smaller."""
    batch: int
    seeds: tuple[int, ...]
    contest_seeds: tuple[int, ...] = ()
    """Seeds of the contests, whose adversaries one processor trained; ``seeds`` if there are none.
    """
    more_seeds: tuple[int, ...] = ()
    """Seeds of the distances of Sec. VII."""
    more_swept: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """More of them, by figure or world."""
    more_ends: Mapping[str, Mapping[str, Sequence[int]]] = field(default_factory=dict)
    """More seeds by which the final returns of a team are compared, by task and M."""
    more_timed: Mapping[str, Mapping[str, Sequence[int]]] = field(default_factory=dict)
    """More seeds by which a team's times are compared, too, by task and M."""
    rate_draws: tuple[int, ...] = ()
    """Draws of success probabilities in Fig. 5; ``seeds`` where there are none."""
    timed: int
    """Timed iterations behind each iteration time."""
    timed_teams: tuple[int, ...] = (3, 6, 12, 24, 48, 96)
    """Sizes M of the timed teams, ascending."""
    more: Mapping[str, int] = field(default_factory=dict)
    """Number of teams of a task, by its name, where it is not ``sizes``."""
    replayed: Mapping[str, int] = field(default_factory=dict)
    """Number of teams of a task, by its name, whose DARL1N has the paper's replay."""
    shorter: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Iterations of a team, by task and M, where they are fewer."""
    grown: int = 0
    """Iterations of each run of EPC, of 3 and of 6 agents in turn; 0: no runs."""
    populations: int = 0
    """Populations of EPC, of the first seeds."""
    coded: int = 0
    """Iterations of the runs with codes, Table VI."""
    episodes: int = 0
    """Episodes of SAC, Fig. 5; 0: no runs."""
    full_range: int = 0
    """Iterations of DARL1N with all agents as neighbours, Fig. 3."""
    trials: int
    """Trials of each probability in Table V."""
    sets: int
    """Sets J behind each average V."""
    exact_sets: int
    """The same for the Vandermonde matrix, where each set takes a third of a second."""
    samples: int
    """Sets J of each size in the noise study."""
    draws: int
    """Drawn matrices of a random code whose rounds are simulated."""
    rounds: int
    """Simulated rounds with each matrix."""

    def swept_seeds(self, name: str) -> tuple[int, ...]:
        """Seeds of the distances of a figure or world, those of all runs if there are no more."""
        return (*(self.more_seeds or self.seeds), *self.more_swept.get(name, ()))

    def seeds_of(self, task: Darl1nTask) -> tuple[int, ...]:
        """Seeds of a task's runs."""
        return (task.contest and self.contest_seeds) or self.seeds

    def end_seeds(self, team: "TeamSpec") -> tuple[int, ...]:
        """Seeds by which a team's final returns are compared."""
        return tuple(dict.fromkeys((*self.timed_seeds(team), *_more(self.more_ends, team))))

    def timed_seeds(self, team: "TeamSpec") -> tuple[int, ...]:
        """Seeds by which a team's times are compared."""
        return (*self.seeds_of(team.task), *_more(self.more_timed, team))

    @property
    def said(self) -> str:
        """Description of the training."""
        seeds = "one seed" if len(self.seeds) == 1 else f"{len(self.seeds)} seeds"
        return f"{seeds}, at most {self.iterations} iterations, batch {self.batch}"

    @property
    def short(self) -> str:
        """Reason why claims about smaller runs are not testable."""
        return f"needs longer runs, larger teams or more seeds: {self.said}"

    @property
    def judges(self) -> bool:
        """True if there are as many seeds as in the paper, so that means can be judged."""
        return len(self.seeds) >= SEEDS

    def sizes_of(self, task: Darl1nTask) -> tuple[Size, ...]:
        """Teams of a task, smallest first."""
        return task.sizes[: self.more.get(task.name, self.sizes)]

    def most(self, task: Darl1nTask, size: Size) -> int:
        """Most iterations of a team."""
        return self.shorter.get(task.name, {}).get(str(size.agents), self.iterations)

    def compared(self, team: TeamSpec) -> dict[str, str]:
        """Registered methods that claims compare on a team, by their name in the tables."""
        size = team.task.sizes[: self.replayed.get(team.task.name, 0)]
        own = REPLAY if team.size in size else DARL1N
        return {**{method: method for method in BASELINES}, DARL1N: own}

    def teams(self) -> list[TeamSpec]:
        """Teams of all tables."""
        return [TeamSpec(task, size) for task in TASKS for size in self.sizes_of(task)]


def _more(seeds: Mapping[str, Mapping[str, Sequence[int]]], team: TeamSpec) -> Sequence[int]:
    return seeds.get(team.task.name, {}).get(str(team.size.agents), ())


SCALES = {name: Darl1nScale(**sizes) for name, sizes in toml(PACKAGE, "scales.toml").items()}
