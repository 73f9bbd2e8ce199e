"""The coding experiments of [DARL1N, Sec. VI-B] and the numbers that its authors published.

M = 12 agents of Food Collection, N = 24 learners. The paper's MDS matrix is a Vandermonde matrix of
unknown nodes; here it is ``mds``, which decodes in floating point. Fig. 7 has no printed numbers.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

from fullrank.codes import Code, make_code

AGENTS = 12
"""Number of agents, M."""
LEARNERS = 24
"""Number of learners, N."""
RATES = (0.0, 0.2, 0.5)
"""eta: the share or the probability of stragglers."""
RECEIVED = (12, 18, 24)
"""|J| in Table V."""
DELAYS_S = (1.0, 4.0)
"""Delta in Fig. 7; Table VI has the first."""
TOTALLED = 30
"""Iterations in each time of Fig. 7."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Scheme:
    """One way of assigning agents to learners."""

    code: str
    """Registered name of the code."""
    params: Mapping[str, float] = field(default_factory=dict)
    drawn: bool = False
    """True if the matrix is drawn at random, by seed."""

    @property
    def name(self) -> str:
        """Name in cells and tables."""
        return "-".join([self.code, *(f"{value:g}" for value in self.params.values())])

    def make_code(self, seed: int = 0) -> Code:
        """The code of a draw."""
        params: Mapping[str, Any] = self.params
        return make_code(self.code, rows=LEARNERS, units=AGENTS, seed=seed, **params)


UNCODED = Scheme(code="uncoded")
MDS = Scheme(code="mds")
SPARSE = tuple(
    Scheme(code="random_sparse", params={"density": density}, drawn=True)
    for density in (0.2, 0.4, 0.8)
)
REPETITION = Scheme(code="replication")
LDGM = tuple(
    Scheme(code="ldgm", params={"density": density}, drawn=True) for density in (0.1, 0.3, 0.5)
)
SCHEMES = (UNCODED, MDS, *SPARSE, REPETITION, *LDGM)
"""Schemes in the order of Table V."""


class PublishedRow(NamedTuple):
    """A line of Table V."""

    overhead: float
    success: tuple[float, float, float]
    """P(decodable) by ``RATES``."""
    variance: tuple[float, float, float]
    """Average V by ``RECEIVED``."""


TABLE_V: Mapping[str, PublishedRow] = MappingProxyType(
    {
        scheme.name: row
        for scheme, row in zip(
            SCHEMES,
            (
                PublishedRow(0.0, (1.0, 0.0, 0.0), (0.0, 0.0, 0.0)),
                PublishedRow(23.0, (1.0, 1.0, 1.0), (124.82, 79.75, 73.64)),
                PublishedRow(4.5, (1.0, 0.78, 0.17), (11.48, 1.62, -0.68)),
                PublishedRow(8.0, (1.0, 1.0, 0.98), (16.82, 2.93, -1.28)),
                PublishedRow(18.3, (1.0, 1.0, 1.0), (13.15, 1.40, -3.31)),
                PublishedRow(1.0, (1.0, 0.603, 0.0), (0.0, 0.0, -8.32)),
                PublishedRow(0.91, (1.0, 0.253, 0.0), (2.08, -1.46, -4.59)),
                PublishedRow(4.41, (1.0, 0.79, 0.11), (8.93, 1.05, -3.21)),
                PublishedRow(5.5, (1.0, 0.99, 0.41), (13.13, 5.13, -0.31)),
            ),
            strict=True,
        )
    }
)
"""Rows by scheme."""

TIMED = (UNCODED, MDS, SPARSE[2], REPETITION, LDGM[1])
"""Schemes of Fig. 7 and Table VI."""
CYCLIC = Scheme(code="cyclic", params={"tolerance": 5})
"""This project's code, which tolerates a share of 0.2 stragglers; compared by time."""

CONVERGENCE_S: Mapping[str, tuple[float, float, float]] = MappingProxyType(
    {
        UNCODED.name: (323.0, 510.0, 521.0),
        MDS.name: (502.0, 748.0, 625.0),
        SPARSE[2].name: (512.0, 820.0, 670.0),
        REPETITION.name: (331.0, 372.0, 564.0),
        LDGM[1].name: (324.0, 320.0, 450.0),
    }
)
"""Table VI, seconds by ``RATES``."""

VARIANCE: Mapping[str, tuple[float, float, float]] = MappingProxyType(
    {
        UNCODED.name: (0.0, 0.0, 0.0),
        MDS.name: (82.08, 100.10, 104.06),
        SPARSE[2].name: (15.28, 13.47, 12.88),
        REPETITION.name: (-3.16, -4.49, -4.15),
        LDGM[1].name: (-0.51, 0.14, 0.35),
    }
)
"""Table VI, average V by ``RATES``."""

REWARD: Mapping[str, tuple[float, float, float]] = MappingProxyType(
    {
        UNCODED.name: (8.0, 5.0, 10.0),
        MDS.name: (-231.0, -253.0, -212.0),
        SPARSE[2].name: (-252.0, -231.0, -227.0),
        REPETITION.name: (11.0, 6.0, 8.0),
        LDGM[1].name: (9.0, 12.0, 14.0),
    }
)
"""Table VI, rewards by ``RATES``."""
