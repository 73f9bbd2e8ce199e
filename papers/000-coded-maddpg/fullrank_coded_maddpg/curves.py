"""Fig. 3 of [Wang21]: learning curves beside those that the authors saved, and coded parameters."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from fullrank.common.seeding import stream
from fullrank.common.types import Array, Interval
from fullrank_coded_maddpg.learning import (
    CENTRALISED,
    EXACT,
    PARAMETERS,
    name_of,
    panels,
    payload_panels,
)
from fullrank_coded_maddpg.published import EVERY, MATRIX, PublishedPanel, Wang21Scale
from fullrank_papers import claims, pictures
from fullrank_papers.cells import Results
from fullrank_papers.claims import ClaimResult, Whose, by_samples, judge
from fullrank_papers.paper import table

CLOSE = 0.03
"""Distance, as a share of the gain over untrained teams, within which returns count as equal."""
UNTRAINED = 3
"""Iterations whose returns are those of an untrained team."""
RESAMPLES = 2_000
POINTS = 20
"""Points of a drawn curve, each the mean of an interval, if there are fewer published ones."""


def _returns(runs: Results, panel: PublishedPanel, kind: str, seed: int) -> Array:
    return np.array(runs[name_of(panel, kind, seed)]["returns"], dtype=np.float64)


def points(runs: Results, panel: PublishedPanel, *, seeds: Sequence[int]) -> Array:
    """Means over 250 iterations, as the authors saved them, shape (seeds, whole intervals)."""
    curves = [_returns(runs, panel, CENTRALISED, seed) for seed in seeds]
    whole = len(curves[0]) // EVERY
    return np.stack(
        [np.nanmean(curve[: whole * EVERY].reshape(whole, EVERY), axis=1) for curve in curves]
    )


def untrained(runs: Results, panel: PublishedPanel, *, seeds: Sequence[int]) -> float:
    """Mean return of the first iterations, whose policies have hardly learnt."""
    first = [_returns(runs, panel, CENTRALISED, seed)[:UNTRAINED] for seed in seeds]
    return float(np.nanmean(first))


def judge_published(
    runs: Results, panel: PublishedPanel, *, seeds: Sequence[int]
) -> list[ClaimResult]:
    """Judge if the curve is the authors', by its distance in their largest gain.

    No result if a run is shorter than a point of theirs.
    """
    ours = points(runs, panel, seeds=seeds)
    if not ours.size:
        return []
    kind = CENTRALISED if CENTRALISED in panel.published else "coded"
    published = np.array(panel.published[kind])[: ours.shape[1]]
    gain = float(np.abs(published - untrained(runs, panel, seeds=seeds)).max())
    apart = (ours[:, : len(published)] - published) / gain
    return [
        by_samples(
            f"Every point lies within {CLOSE:.0%} of the authors' gain of theirs: {panel.name}.",
            {f"to {(point + 1) * EVERY}": 100 * values for point, values in enumerate(apart.T)},
            low=-100 * CLOSE,
            high=100 * CLOSE,
            whose=Whose.OURS,
            said=f"in % of {gain:.0f}, the gain of their {kind} curve",
        )
    ]


def judge_learning(runs: Results, panel: PublishedPanel, *, seeds: Sequence[int]) -> ClaimResult:
    """Claim (v): coded and centralised runs learn alike; here they are compared bit by bit."""
    claim = f"(v) Coded training learns what centralised training learns: {panel.name}."
    compared, iterations, differing, elsewhere = 0, 0, [], []
    for seed in seeds:
        reference = runs[name_of(panel, CENTRALISED, seed)]
        for code in EXACT:
            run = runs.get(name_of(panel, code, seed))
            if run is None:
                continue
            if run["digests"] == reference["digests"][: len(run["digests"])]:
                compared, iterations = compared + 1, iterations + len(run["digests"])
            elif run.get("computed_on") == reference.get("computed_on"):
                differing.append(f"{code} (seed {seed})")
            else:
                elsewhere.append(f"{code} (seed {seed})")
    if elsewhere and not differing:
        reason = f"computed on another processor than the centralised run: {elsewhere}"
        return claims.undecided(claim, reason, claims.EXACT)
    grounds = f"{compared} coded runs with stragglers: all {iterations} update digests are equal"
    against = [f"bits differ: {differing}"] if differing else []
    return judge(claim, against, grounds=grounds, strength=claims.EXACT)


def judge_payload(runs: Results, panel: PublishedPanel, scale: Wang21Scale) -> ClaimResult:
    """Claim (v) for the payload and the code of the paper, by the last returns of every seed."""
    plain, coded = (_last(runs, panel, scale, kind) for kind in (CENTRALISED, PARAMETERS))
    gain = np.abs(plain.mean() - untrained(runs, panel, seeds=scale.seeds))
    return by_samples(
        "(v) Training through MDS in Vandermonde form, parameters in float32, learns what "
        f"centralised training learns: {panel.name}.",
        {"": 100 * (coded - plain) / gain},
        low=-100 * CLOSE,
        high=100 * CLOSE,
        said=f"in % of the centralised gain, bound {CLOSE:.0%}",
    )


def _last(runs: Results, panel: PublishedPanel, scale: Wang21Scale, kind: str) -> Array:
    """Mean return of the last iterations of each seed, shape (seeds,)."""
    curves = [_returns(runs, panel, kind, seed)[: scale.payload] for seed in scale.seeds]
    return np.array([np.nanmean(curve[-EVERY:]) for curve in curves])


def curves_table(runs: Results, scale: Wang21Scale) -> str:
    """Published and own points of every panel; empty if runs are too short."""
    parts = []
    for panel in panels(scale):
        ours = points(runs, panel, seeds=scale.curve_seeds(panel))
        heads = ["iterations to", *(f"authors, {kind}" for kind in panel.published)]
        rows = [
            [
                (index + 1) * EVERY,
                *(
                    f"{curve[index]:.1f}" if index < len(curve) else "-"
                    for curve in panel.published.values()
                ),
                "/".join(f"{value:.1f}" for value in values),
            ]
            for index, values in enumerate(ours.T)
        ]
        own = "ours, by seed"
        if rows:
            parts.append(f"\n**{panel.name}**\n\n{table([*heads, own], rows)}")
    return "\n".join(parts)


def played_table(runs: Results, scale: Wang21Scale) -> str:
    """Returns of the trained policies by the way they act."""
    ways = ("greedy", "soft", "exploring")
    found = {
        (panel.name, seed): runs[name_of(panel, CENTRALISED, seed)]["played"]
        for panel in panels(scale)
        for seed in scale.seeds
    }
    return table(
        ["task", "seed", *ways],
        ([*run, *(Interval(**played[way]) for way in ways)] for run, played in found.items()),
    )


def distances_table(runs: Results, scale: Wang21Scale) -> str:
    """Errors of updates decoded with ``vandermonde``."""
    rows = []
    for panel in panels(scale):
        found = runs[f"{panel.name}-{MATRIX}-distance"]
        errors = np.array(found["errors"])
        refused = f"{found['refused']} of {len(errors)}"
        rows.append([panel.name, f"{np.median(errors):.1e}", f"{errors.max():.1e}", refused])
    heads = ("task", "median relative error", "largest", "refused by the certificate")
    return table(heads, rows)


def payload_table(runs: Results, scale: Wang21Scale) -> str:
    """Returns and errors of the runs with coded parameters."""
    rows = []
    for panel in payload_panels(scale):
        plain, coded = (_last(runs, panel, scale, kind) for kind in (CENTRALISED, PARAMETERS))
        for seed, *ends in zip(scale.seeds, plain, coded, strict=True):
            errors = runs[name_of(panel, PARAMETERS, seed)]["errors"]
            returns = [f"{end:.1f}" for end in ends]
            rows.append(
                [panel.name, seed, *returns, f"{np.median(errors):.1e}", f"{max(errors):.1e}"]
            )
    heads = ("task", "seed", "centralised", "through the code", "median error", "largest error")
    return table(heads, rows)


def draw_curves(runs: Results, scale: Wang21Scale, path: Path) -> None:
    """Returns by iteration, mean over seeds with a 95 % bootstrap band, and published points."""
    shown = panels(scale)
    titles = [f"{panel.name.replace('_', ' ')}, K = {panel.adversaries}" for panel in shown]
    with pictures.panels(path, titles, beneath=4) as every:
        for axes, panel in zip(every, shown, strict=True):
            for kind, seeds, colour, style in (
                (CENTRALISED, scale.curve_seeds(panel), "#333333", "-"),
                ("cyclic", scale.seeds, "#d55e00", "--"),
            ):
                values = np.stack([_returns(runs, panel, kind, seed) for seed in seeds])
                _draw_band(axes, values, label=kind, color=colour, linestyle=style)
            if scale.iterations >= EVERY:
                for (kind, curve), marker in zip(panel.published.items(), "ox", strict=False):
                    at = EVERY * (np.arange(len(curve)) + 0.5)
                    label = f"authors, {kind}"
                    axes.plot(at, curve, marker, color="#0072b2", markersize=4, label=label)
            axes.set(xlabel="iteration", ylabel="episode return, all agents")


def _draw_band(axes: Axes, values: Array, **style: str) -> None:
    length = values.shape[1]
    parts = min(max(POINTS, length // EVERY), length)
    at, means = _parted(values, parts)
    picked = stream(0, "band").integers(len(means), size=(RESAMPLES, len(means)))
    low, high = np.percentile(means[picked].mean(axis=1), [2.5, 97.5], axis=0)
    axes.fill_between(at, low, high, color=style["color"], alpha=0.15, linewidth=0)
    axes.plot(at, means.mean(axis=0), linewidth=1.8, **style)  # type: ignore[arg-type]


def _parted(values: Array, parts: int) -> tuple[list[float], Array]:
    """Middles of equal parts of the iterations, and means of the returns there."""
    places = np.array_split(np.arange(values.shape[-1]), parts)
    means = np.stack([np.nanmean(values[..., part], axis=-1) for part in places], axis=-1)
    return [float(part.mean()) for part in places], means


def draw_payload(runs: Results, scale: Wang21Scale, path: Path) -> None:
    """Returns by iteration with and without the code, a line for each seed."""
    kinds = {
        CENTRALISED: ("#333333", "centralised; exact codes have the same bits"),
        PARAMETERS: ("#0072b2", "parameters in float32 through MDS (Vandermonde)"),
    }
    shown = payload_panels(scale)
    titles = [panel.name.replace("_", " ") for panel in shown]
    with pictures.panels(path, titles, beneath=2) as every:
        for axes, panel in zip(every, shown, strict=True):
            for kind, (colour, label) in kinds.items():
                for seed in scale.seeds:
                    values = _returns(runs, panel, kind, seed)[: scale.payload]
                    at, means = _parted(values, min(40, len(values)))
                    axes.plot(at, means, color=colour, label=label)
            axes.set(xlabel="iteration", ylabel="episode return, all agents")
