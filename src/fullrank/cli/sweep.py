"""``fullrank simulate --sweep``: plot of round time against learners, stragglers and delay.

Lower bounds on a round: dashed, the controller's link alone; dotted, the decode alone.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fullrank.cli.figures import blank, tidy
from fullrank.codes import Code
from fullrank.common.errors import NotDecodable
from fullrank.planning.cluster import Cluster
from fullrank.planning.simulation import SimulatedRounds
from fullrank.stragglers import FixedK

LEARNERS = (15, 32, 64, 128, 256, 512, 1024, 2048, 4096)
DELAYS = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
"""Delays, as multiples of the configured one."""
SLOW_FROM = 256
"""Number of learners above which only ``QUICK`` codes are drawn by default."""
QUICK = ("cyclic", "mds", "replication", "uncoded")
"""Codes that are built within seconds at any size."""
DECODE_RATE = 1e10
"""Multiplications and additions a second of the decode's GEMM on two cores; a floor, not a fit."""

MakeCodes = Callable[[int], Iterable[tuple[str, Code]]]
"""Number of learners to codes with their labels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPoint:
    """A round time and its lower bounds, seconds."""

    round_s: float
    link_s: float
    decode_s: float


SweepCurves = Mapping[str, Mapping[float, SweepPoint]]
"""Label to abscissa to point."""


def sweep(
    play: Callable[..., SimulatedRounds],
    cluster: Cluster,
    make: MakeCodes,
    *,
    learners: int,
    stragglers: FixedK,
    iterations: int,
) -> dict[str, SweepCurves]:
    """Median round times over N, over k at N = ``learners``, and over delays there.

    Args:
        play: ``simulate``, with a seed.
        cluster: Machines and network; all learners are equal.
        make: Gives the codes for a number of learners.
        learners: N where it does not vary.
        stragglers: k and delay where they do not vary; N is at least k.
        iterations: Number of rounds at the fewest learners; fewer at more.
    """
    sizes = [n for n in LEARNERS if n >= stragglers.k]
    count = {n: max(5, iterations * LEARNERS[0] // max(n, LEARNERS[0])) for n in sizes}

    def point(code: Code, late: FixedK, rounds: int) -> SweepPoint | None:
        return _point(cluster, code, partial(play, cluster, code, late, iterations=rounds))

    here = list(make(learners))
    most = max(1, learners // 2)
    return {
        "learners": _curves(
            (n, label, point(code, stragglers, count[n])) for n in sizes for label, code in make(n)
        ),
        "stragglers": _curves(
            (k, label, point(code, FixedK(k=k, delay_s=stragglers.delay_s), iterations))
            for k in range(most + 1)
            for label, code in here
        ),
        "delay, seconds": _curves(
            (delay_s, label, point(code, FixedK(k=stragglers.k, delay_s=delay_s), iterations))
            for delay_s in (factor * stragglers.delay_s for factor in DELAYS)
            for label, code in here
        ),
    }


def _point(cluster: Cluster, code: Code, play: Callable[[], SimulatedRounds]) -> SweepPoint | None:
    try:
        rounds = play()
    except NotDecodable:
        return None
    received = float(np.median([len(received) for received in rounds.received]))
    moved = cluster.payload.traffic(code.blocks)
    replies = float(np.median([moved.coded[learners].sum() for learners in rounds.received]))
    return SweepPoint(
        round_s=float(np.median(rounds.round_s)),
        link_s=max(rounds.sent_bytes, replies) / cluster.bandwidth,
        decode_s=2.0 * code.units * received * cluster.payload.vector_size / DECODE_RATE,
    )


def _curves(points: Iterable[tuple[float, str, SweepPoint | None]]) -> SweepCurves:
    curves: dict[str, dict[float, SweepPoint]] = {}
    for abscissa, label, point in points:
        if point is not None:
            curves.setdefault(label, {})[abscissa] = point
    return curves


def draw(swept: Mapping[str, SweepCurves], *, title: str) -> Figure:
    """One panel for each abscissa."""
    figure = blank(13, 4.6)
    figure.suptitle(title, fontsize=11)
    panels: Sequence[Axes] = figure.subplots(1, len(swept), sharey=True)
    labels = list(dict.fromkeys(label for curves in swept.values() for label in curves))
    colours = {label: f"C{index % 10}" for index, label in enumerate(labels)}
    for axes, (name, curves) in zip(panels, swept.items(), strict=True):
        _panel(axes, name, curves, colours)
    panels[0].set_ylabel("median round, seconds")
    panels[0].plot([], [], "--", color="grey", label="the controller's link alone")
    panels[0].plot([], [], ":", color="grey", label="the decode alone")
    figure.legend(loc="outside right center", frameon=False, fontsize=9)
    return figure


def _panel(axes: Axes, name: str, curves: SweepCurves, colours: Mapping[str, str]) -> None:
    for label, points in curves.items():
        abscissae = sorted(points)
        first = axes.figure.axes[0] is axes
        axes.plot(
            abscissae,
            [points[abscissa].round_s for abscissa in abscissae],
            "o-",
            color=colours[label],
            markersize=3,
            label=label if first else None,
        )
        for style, bound in (("--", "link_s"), (":", "decode_s")):
            limits = [getattr(points[abscissa], bound) for abscissa in abscissae]
            if name == "learners" and max(limits) > 0.0:
                axes.plot(abscissae, limits, style, color=colours[label], alpha=0.5, linewidth=1)
    axes.set_xlabel(name)
    axes.set_yscale("log")
    if name != "stragglers":
        axes.set_xscale("log")
    tidy(axes)
