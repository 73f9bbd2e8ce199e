"""Scales of the reproduction of [CMARL]."""

from dataclasses import dataclass

from fullrank.config.collection import ContainerSettings
from fullrank.planning.virtual_time import VirtualDurations
from fullrank_reproduction.cmarl.systems import CmarlBudget

_SHORT = (
    *("algorithm.hidden=32", "algorithm.batch_size=32", "algorithm.micro_batches=1"),
    *("algorithm.optimiser=adam", "algorithm.learning_rate=0.001", "algorithm.target_every=20"),
    *("algorithm.exploration_steps=10000", "collect.warmup=100", "collect.warmup_episodes=16"),
)
"""Smaller networks and longer steps, with which a run of some updates learns something."""
_SHORT_V2 = (*_SHORT, "algorithm.batch_size=128", "algorithm.trace=0.6")


@dataclass(frozen=True, slots=True, kw_only=True)
class CmarlScale:
    """Scale of the reproduction."""

    name: str
    learning: CmarlBudget
    seconds: float
    """Length of the measurement of waits at replay."""
    turns: int
    """Turns of each way of storing episodes."""
    iterations: int
    """Counted iterations of each fleet of collectors."""
    step_s: float = 0.04
    """Emulated time of their steps."""
    outlook: str = ""
    """A paragraph for the page: what this scale cannot decide."""


SMOKE = CmarlScale(
    name="smoke",
    learning=CmarlBudget(
        maps=("3m", "8m", "5m_vs_6m"),
        seeds=3,
        until_s=15.0,
        points=3,
        episodes=32,
        settings=_SHORT,
        v2_settings=_SHORT_V2,
        containers=ContainerSettings(batch_size=16, every_s=2.0),
        durations=VirtualDurations(
            step_s=0.02, acting_s=0.005, update_s=0.25, container_update_s=1.0, wire_s=0.01
        ),
    ),
    seconds=20.0,
    turns=25,
    iterations=8,
    outlook="""
Differences of 0.02 to 0.04 between teams that have hardly begun to win are within the noise of nine
pairs: C5 and two comparisons of C6 need longer runs or more seeds. Trials with seed 101, which is
none of the comparison's, of 30 s in which a container learns as often as the centraliser, won at
the end on 3m, 8m and 5m_vs_6m: CMARL 0.72, 0.06, 0.00; on 8m and 5m_vs_6m APE-X 0.19, 0.00 and QMIX
0.00, 0.00. All runs of that size need about three times the processor time; none is judged here.
""",
)
"""Takes some 20 minutes on two cores."""

STANDARD = CmarlScale(
    name="standard",
    learning=CmarlBudget(
        maps=("3m", "8m", "5m_vs_6m", "2s3z"),
        seeds=5,
        until_s=120.0,
        points=12,
        episodes=32,
        settings=(*_SHORT, "algorithm.hidden=64", "algorithm.exploration_steps=50000"),
        v2_settings=(*_SHORT_V2, "algorithm.hidden=64", "algorithm.exploration_steps=50000"),
        containers=ContainerSettings(batch_size=32, every_s=10.0),
        durations=VirtualDurations(
            step_s=0.02, acting_s=0.005, update_s=0.25, container_update_s=0.5, wire_s=0.01
        ),
    ),
    seconds=60.0,
    turns=100,
    iterations=40,
)
"""Takes a day on two cores."""

PAPER = CmarlScale(
    name="paper",
    learning=CmarlBudget(
        maps=("3m", "8m", "2s3z", "5m_vs_6m", "3s_vs_5z", "MMM2", "corridor"),
        seeds=5,
        until_s=4 * 3600.0,
        points=120,
        episodes=32,
        settings=("algorithm.exploration_steps=500000",),
        v2_settings=(),
        durations=VirtualDurations(
            step_s=0.02, acting_s=0.005, update_s=0.25, container_update_s=0.25, wire_s=0.01
        ),
    ),
    seconds=60.0,
    turns=100,
    iterations=40,
)
"""The paper's sizes, maps, seeds and hours; takes months on two cores, and is resumed at will."""

SCALES = {scale.name: scale for scale in (SMOKE, STANDARD, PAPER)}
