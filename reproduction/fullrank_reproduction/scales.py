"""Parts and scales of the reproduction of [Wang21]."""

from dataclasses import dataclass
from enum import StrEnum

from fullrank_reproduction import learning, timing, wang21
from fullrank_reproduction.learning import Wang21Budget
from fullrank_reproduction.timing import Setting


class ReportPart(StrEnum):
    """A part of the reproduction."""

    FIG3 = "fig3"
    """Learning curves, Fig. 3."""
    FIG4 = "fig4"
    """Figs. 4 and 5 in virtual time."""
    PROCESSES = "processes"
    """Figs. 4 and 5 on real processes."""
    PAYLOAD = "payload"
    """Learning through coded parameters."""
    CODES = "codes"
    """Probabilities of decoding, and its cost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wang21Scale:
    """Scale of the reproduction."""

    name: str
    budget: Wang21Budget
    repeats: int
    """Repeats of each measured computing time."""
    real: tuple[Setting, ...]
    """Settings measured on real processes."""
    real_rounds: int


SMOKE = Wang21Scale(
    name="smoke",
    budget=Wang21Budget(
        iterations=60,
        cyclic=60,
        compared=15,
        payload=15,
        seeds=2,
        batch=128,
        warmup=2560,
        panels=learning.AS_STATED,
    ),
    repeats=5,
    real=tuple(
        timing.settings(
            wang21.TASKS[:1],
            agents=wang21.AGENTS[:1],
            codes=("uncoded", "mds", "replication", "cyclic", "auto"),
        )
    ),
    real_rounds=13,
)
"""Takes minutes on two cores."""

STANDARD = Wang21Scale(
    name="standard",
    budget=Wang21Budget(
        iterations=4000,
        cyclic=100,
        compared=100,
        payload=1000,
        seeds=2,
        batch=1024,
        warmup=25_600,
        panels=wang21.PANELS,
    ),
    repeats=30,
    real=tuple(timing.settings(agents=wang21.AGENTS[:1])),
    real_rounds=51,
)
"""Learning curves at the paper's length; takes about an hour on two cores."""

PAPER = Wang21Scale(
    name="paper",
    budget=Wang21Budget(
        iterations=4000,
        cyclic=4000,
        compared=400,
        payload=4000,
        seeds=5,
        batch=1024,
        warmup=25_600,
        panels=wang21.PANELS,
    ),
    repeats=30,
    real=tuple(timing.settings()),
    real_rounds=51,
)
"""The paper's numbers of iterations; takes about a day on two cores."""

SCALES = {scale.name: scale for scale in (SMOKE, STANDARD, PAPER)}
