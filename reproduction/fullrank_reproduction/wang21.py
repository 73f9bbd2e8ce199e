"""The experiments of [Wang21, Sec. V] and the numbers that its authors published.

Times are seconds for five training iterations with N = 15 learners, from the data behind Figs. 4
and 5. Most of the keep-away cells equal those of physical deception plus a constant, and their
uncoded gap is 6.0 s where 5 x 1.5 s is expected; they are shown with less weight.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

LEARNERS = 15
"""Number of learners, N."""
AGENTS = (8, 10)
"""M in Figs. 4 and 5; Fig. 3 has the first."""
ADVERSARIES = 4
"""K of the competitive tasks at M = 8; at M = 10 the paper does not say, and K = M / 2."""
TOTALLED = 5
"""Iterations in a published time."""
SETTINGS: Mapping[str, int | float] = MappingProxyType(
    {
        "environment.copies": 4,
        "collect.steps": 25,
        "algorithm.batch_size": 1024,
        "algorithm.hidden": 64,
        "algorithm.learning_rate": 0.01,
        "algorithm.target_rate": 0.01,
    }
)
"""Settings of the paper, and collection by episodes, where Fullrank's defaults differ."""
CODES = ("uncoded", "mds", "random_sparse", "replication", "ldpc")
"""Codes in the order of the table."""

PublishedTimes: TypeAlias = Mapping[int, Mapping[str, tuple[float, ...]]]


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
    published: PublishedTimes
    """Published times by M and code, one for each k."""


def _times(text: str) -> PublishedTimes:
    """A table with a line for each M, columns as in ``CODES``, cells ``k0/k1/k2``."""
    table: dict[int, Mapping[str, tuple[float, ...]]] = {}
    for agents, line in zip(AGENTS, text.strip().splitlines(), strict=True):
        cells = [tuple(map(float, cell.split("/"))) for cell in line.split()]
        table[agents] = MappingProxyType(dict(zip(CODES, cells, strict=True)))
    return MappingProxyType(table)


TASKS = (
    Wang21Task(
        name="cooperative_navigation",
        competitive=False,
        delay_s=0.25,
        stragglers=(0, 1, 2),
        published=_times("""
            4.67/5.73/5.74 6.281/6.286/6.279 6.09/6.099/6.10 5.17/5.20/5.8 4.92/4.95/5.3
            7.31/8.58/8.60 10.09/10.35/10.35 9.825/9.81/9.83 8.389/8.60/9.2 7.76/8.03/8.45
        """),
    ),
    Wang21Task(
        name="predator_prey",
        competitive=True,
        delay_s=1.0,
        stragglers=(0, 2, 4),
        published=_times("""
            3.07/7.98/8.01 4.35/4.40/4.38 4.21/4.18/4.20 3.51/4.64/6.68 3.18/3.71/5.53
            4.14/9.07/9.12 6.25/6.28/6.30 5.99/6.00/6.15 4.79/7.91/9.67 4.26/5.02/7.065
        """),
    ),
    Wang21Task(
        name="physical_deception",
        competitive=True,
        delay_s=1.0,
        stragglers=(0, 5, 8),
        published=_times("""
            2.52/7.52/7.54 3.82/3.80/9.04 3.66/3.73/8.84 2.91/6.75/8.16 2.65/6.37/7.90
            3.37/8.34/8.35 5.48/5.45/10.66 5.07/5.36/10.34 3.94/9.12/9.20 3.57/7.96/8.85
        """),
    ),
    Wang21Task(
        name="keep_away",
        competitive=True,
        delay_s=1.5,
        stragglers=(0, 5, 8),
        published=_times("""
            3.52/9.52/9.54 4.82/4.80/11.04 4.66/4.73/10.24 3.91/6.75/8.16 3.65/6.37/9.71
            4.37/10.34/10.35 6.87/6.87/12.66 6.43/6.36/12.34 4.42/10.12/10.20 4.52/7.96/10.85
        """),
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PublishedPanel:
    """One panel of Fig. 3: a task with M = 8, and the curves that the authors saved of it.

    A point is the mean return of 1,000 exploring episodes, which are 250 iterations, summed over
    all agents. Source: ``learning_curves`` of BaoqianWang/coding_distributed_marl at 6206ad3. Their
    centralised curve of navigation, from -27,469 to -25,259, is of another set-up and left out.
    """

    name: str
    """Name of the panel's runs."""
    task: Wang21Task
    adversaries: int
    """K, number of adversaries."""
    published: Mapping[str, tuple[float, ...]]
    """The authors' curves by their file's kind: "coded" ones come from files named ``uncoded``."""


def _curves(**lines: str) -> Mapping[str, tuple[float, ...]]:
    return MappingProxyType({name: tuple(map(float, line.split())) for name, line in lines.items()})


EVERY = 250
"""Iterations behind each point of a published curve."""
_NAVIGATION, _PREY, _DECEPTION, _KEEP_AWAY = TASKS
_DECEIVED = _curves(
    centralised="34.737 25.845 30.319 34.763 35.488 37.25 41.194 45.342 45.375 43.704 44.037 46.45 "
    "43.558 43.653 49.035 47.702",
    coded="30.8 25.74 33.74 31.5 40.36 40.94 42.94 44.21 43.48 43.34 44.32 45.74 48.0 49.71 51.95 "
    "49.77",
)
PANELS = (
    PublishedPanel(
        name="cooperative_navigation",
        task=_NAVIGATION,
        adversaries=0,
        published=_curves(
            coded="-8898.994 -7582.105 -6787.727 -6702.607 -6850.517 -6840.331 -6865.231 -6777.521 "
            "-6708.315 -6696.383 -6694.337 -6670.531 -6729.456 -6739.031 -6685.214 -6750.071",
        ),
    ),
    PublishedPanel(
        name="keep_away",
        task=_KEEP_AWAY,
        adversaries=ADVERSARIES,
        published=_curves(
            centralised="-110.134 -59.411 -56.212 -55.683 -56.148 -56.412 -56.505 -56.579 -56.099 "
            "-54.687 -55.219 -54.856 -55.698 -54.821 -54.588 -54.771",
            coded="-105.73 -58.46 -56.0 -55.86 -56.46 -56.69 -55.79 -55.01 -55.82 -55.87 -54.75 "
            "-54.42 -54.79 -55.51 -54.85",
        ),
    ),
    PublishedPanel(
        name="predator_prey",
        task=_PREY,
        adversaries=ADVERSARIES,
        published=_curves(
            centralised="30 68 76 84 104 109 108 108 104 103 79 73 67 75 64 65",
            coded="33 60 64 72 77 80 81 91 104 116 135 146 121 87 68 61",
        ),
    ),
    PublishedPanel(
        name="physical_deception_one_adversary",
        task=_DECEPTION,
        adversaries=1,
        published=_DECEIVED,
    ),
    PublishedPanel(
        name="physical_deception",
        task=_DECEPTION,
        adversaries=ADVERSARIES,
        published=_DECEIVED,
    ),
)
"""Sec. V-B gives all competitive tasks four adversaries; Sec. V-A, like the authors' curves, gives
physical deception one."""
