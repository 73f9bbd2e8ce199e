"""The training experiments of [DARL1N, Sec. VI-A] and the numbers that its authors published."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

METHODS = ("maddpg", "mfac", "epc", "epc-scratch", "darl1n")
"""Methods in the order of the tables."""
DARL1N = "darl1n"
BASELINES = ("maddpg", "mfac")
ENGINE_METHODS = (*BASELINES, DARL1N)
"""Methods trained by the engine, by registered name."""
EPC, SCRATCH = "epc", "epc-scratch"
"""Methods trained by a curriculum."""
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


class Printed(NamedTuple):
    """A cell of the tables."""

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
    printed: Mapping[str, tuple[Printed, ...]]
    """Published results by method, for each size."""

    @property
    def contest(self) -> bool:
        """True if there are adversaries, which are trained first."""
        return self.sizes[0].adversary_iterations > 0

    @property
    def lattice(self) -> bool:
        """True if neighbours are fixed instead of defined by a distance."""
        return self.name == "ising"


def _printed(text: str) -> Mapping[str, tuple[Printed, ...]]:
    """Parse lines of the form ``method seconds/... reward/...``."""
    rows: dict[str, tuple[Printed, ...]] = {}
    for line in text.strip().splitlines():
        method, *columns = line.split()
        seconds, rewards = ([float(number) for number in column.split("/")] for column in columns)
        rows[method] = tuple(map(Printed, seconds, rewards))
    return rows


ISING = Darl1nTask(
    name="ising",
    table="I",
    sizes=tuple(
        Size(agents=agents, iterations=iterations)
        for agents, iterations in ((9, 200), (16, 600), (25, 600), (64, 250))
    ),
    every=10,
    printed=_printed("""
        maddpg 62/263/810/1996 460/819/1280/1831
        mfac 63/274/851/2003 468/814/1276/1751
        epc 101/26/51/62 468/831/1278/3321
        epc-scratch 101/412/993/2995 468/826/1275/2503
        darl1n 38/102/210/110 465/828/1279/2282
    """),
)
FOOD = Darl1nTask(
    name="food_collection",
    table="II",
    sizes=tuple(
        Size(agents=agents, iterations=iterations, baseline_iterations=others)
        for agents, iterations, others in (
            (3, 3000, 2000),
            (6, 2000, 2000),
            (12, 2000, 1000),
            (24, 2000, 400),
        )
    ),
    every=30,
    printed=_printed("""
        maddpg 501/1102/4883/2005 24/24/-112/-364
        mfac 512/832/4924/2013 20/23/-115/-362
        epc 1314/723/2900/8104 31/34/-16/-87
        darl1n 502/382/310/1830 14/25/13/-61
    """),
)
_CONTESTS = tuple(
    Size(agents=agents, iterations=iterations, horizon=horizon, adversary_iterations=first)
    for agents, iterations, horizon, first in (
        (6, 2000, 25, 100),
        (12, 3000, 30, 2000),
        (24, 3000, 35, 600),
        (48, 2000, 40, 100),
    )
)
GRASSLAND = Darl1nTask(
    name="grassland",
    table="III",
    sizes=_CONTESTS,
    every=30,
    printed=_printed("""
        maddpg 423/6271/2827/1121 21/11/-302/-612
        mfac 431/7124/3156/1025 23/9/-311/-608
        epc 4883/2006/3324/15221 12/38/105/205
        darl1n 103/402/1752/5221 18/46/113/210
    """),
)
BATTLE = Darl1nTask(
    name="adversarial_battle",
    table="IV",
    sizes=_CONTESTS,
    every=30,
    printed=_printed("""
        maddpg 452/1331/1521/7600 -72/-211/-725/-1321
        mfac 463/1721/1624/6234 -73/-221/-694/-1201
        epc 1512/1432/2041/9210 -75/-215/-405/-642
        darl1n 121/756/1123/3110 -71/-212/-410/-682
    """),
)
TASKS = (ISING, FOOD, GRASSLAND, BATTLE)
