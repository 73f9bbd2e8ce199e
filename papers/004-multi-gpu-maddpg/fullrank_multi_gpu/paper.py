"""Paper 004: tables and pictures of its page, and the prediction for two devices.

Differences from the paper:

- A device is a process with one thread of a CPU, networks are narrower, and waiting for the others
  is left out, which is the cost that the paper's Fig. 6 is about.
- Gradients of ranks are added exactly, in float64 and by sockets, not in float32 between devices;
  division by agents is ours.
- Overlap is one update's lag, the same in every run; in one process it gained nothing on an H200.
"""

from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np

from fullrank.algorithms import Problem, algorithms
from fullrank.config.plugins import spec_of
from fullrank.training.ranks import Split, received_bytes
from fullrank_multi_gpu.claims import (
    BOUNDS,
    NOISE,
    by_batch,
    by_team,
    differences,
    judged,
    overlap_bounds,
    ratio,
    returns,
    shares,
)
from fullrank_multi_gpu.measurements import (
    PACKAGE,
    SCALES,
    SPLITS,
    TASKS,
    UNTRAINED,
    VARIANTS,
    MultiGpuScale,
    cells,
    compared_seeds,
    ranked_sizes,
    ranks_name,
    tower,
)
from fullrank_papers import pictures
from fullrank_papers.claims import Judgement, interval
from fullrank_papers.paper import Findings, Paper, table, toml

MultiGpuFindings: TypeAlias = Findings[MultiGpuScale]

PAPERS_FIGURE = toml(PACKAGE, "published.toml")["figure_6"]
"""What the paper says of its Fig. 6, whose bars have no numbers, by agents and minibatch."""
COLOURS = {"transitions": "#0072b2", "agents": "#009e73"}
TARGET_SHARE: Final = 0.07
"""Part of an update that every rank repeats when agents are divided: all target policies."""
FLOPS: Final = 36e12
"""Floating-point operations a second that an update reaches on an H100: 0.7 of its float32 peak,
and not measured."""
BANDWIDTH: Final = 25e9
"""Bytes a second that an H100 receives in a usual all-reduce over PCIe 5, not measured either."""


def speed_up(problem: Problem, batch: int, split: Split) -> float:
    """Predicted agent-updates per second of two H100, relative to one.

    Operations of a transition are six for each parameter of a critic and of a policy, forward and
    backward, two for each of their targets, and a critic's forward and backward pass for the
    policies' gradient. Gradients are added in float32.

    Args:
        problem: Sizes of the networks.
        batch: Size of the whole minibatch.
        split: Division of the update.
    """
    size = dict.fromkeys(("policy", "critic"), 0)
    for section in problem.sections:
        if section.role in size:
            size[section.role] += section.size
    alone_s = batch * ((6 + 2 + 4) * size["critic"] + (6 + 2) * size["policy"]) / FLOPS
    moved_s = received_bytes(problem, 2, split, exact=False) / BANDWIDTH
    share = 0.5 if split == "transitions" else 0.5 + TARGET_SHARE / 2
    return alone_s / (share * alone_s + moved_s)


def _judged(found: MultiGpuFindings) -> Judgement:
    return judged(found.results, found.scale) if found.whole else {}


def _values(found: MultiGpuFindings) -> Mapping[str, Any]:
    if not found.whole:
        return {}
    scale, results = found.scale, found.results
    return {
        "noise": NOISE,
        "seeds": len(scale.seeds),
        "least_wide": min(shares(results, scale, play="wide_play_s")),
        "phases": _phases(found),
        "ranks": _ranks(found),
        "predicted": _predicted_here(found),
        "devices": _predicted_there(),
        "learning": _learning(found),
    }


def _phases(found: MultiGpuFindings) -> str:
    scale, results = found.scale, found.results
    rows = []
    for agents, *values in zip(
        scale.agents,
        shares(results, scale),
        overlap_bounds(results, scale),
        overlap_bounds(results, scale, play="wide_play_s"),
        strict=True,
    ):
        phases = results[f"phases-{agents}"]
        times = [f"{1e3 * phases[name]:.1f} ms" for name in ("play_s", "wide_play_s", "update_s")]
        rates = [
            aps(agents, scale.batch, max(phases[play], phases["update_s"]))
            for play in ("play_s", "wide_play_s")
        ]
        rows.append([agents, *times, *rates, *(f"{value:.2f}" for value in values)])
    heads = ["agents", "T_DC", "wide", "T_MU", "APS", "APS, wide", "share", "bound", "bound, wide"]
    return table(heads, rows)


def aps(agents: int, batch: int, iteration_s: float) -> str:
    """Agent-updates a second, N B / T_iteration (eq. 1), in thousands."""
    return f"{agents * batch / iteration_s / 1e3:.1f}"


def _ranks(found: MultiGpuFindings) -> str:
    rows = []
    for sizes in ranked_sizes(found.scale):
        ranks, agents, batch = sizes
        measured = found.results[ranks_name(*sizes)]
        row: list[object] = [ranks, agents, batch, aps(agents, batch, measured["one_s"])]
        for split in SPLITS:
            own = measured[split]
            row.append(
                f"{aps(agents, batch, own['busiest_s'])}, {ratio(found.results, sizes, split):.2f}"
            )
            row.append(f"{own['bytes'] / 1e6:.2f} ({own['formula'] / 1e6:.2f})")
        rows.append(row)
    moved, times = "MB (formula)", ", and in that"
    heads = ["ranks", "agents", "B", "one", f"transitions{times}", moved, f"agents{times}", moved]
    return table(heads, rows)


def _predicted_here(found: MultiGpuFindings) -> str:
    second = found.scale.ranked_agents[1]
    rows = []
    for batch, measured in zip(
        found.scale.batches, by_batch(found.results, found.scale), strict=True
    ):
        whole, half = (
            found.results[f"curve-{second}-{size}"]["update_s"] for size in (batch, batch // 2)
        )
        rows.append([batch, f"{1e3 * whole:.1f} ms", f"{whole / half:.2f}", f"{measured:.2f}"])
    return table(["B", "T_MU(B)", "predicted", "measured"], rows)


def _predicted_there() -> str:
    rows = []
    for agents, batch, said in PAPERS_FIGURE:
        config = tower(SCALES["paper"], agents, batch, "algorithm.micro_batches=2")
        problem = algorithms.build("maddpg", **config.algorithm.params).problem(spec_of(config))
        row: list[object] = [agents, batch, said]
        for split in SPLITS:
            row.append(f"{speed_up(problem, batch, split):.2f}")
            row.append(f"{received_bytes(problem, 2, split, exact=False) / 1e9:.3f}")
        rows.append(row)
    return table(["agents", "B", "the paper", "transitions", "GB", "agents' split", "GB"], rows)


def _learning(found: MultiGpuFindings) -> str:
    rows = []
    for task, variant in product(TASKS, (UNTRAINED, *VARIANTS)):
        seeds = compared_seeds(found.scale, task, variant)
        values = returns(found.results, task, variant, seeds)
        row = [task, variant, len(seeds), f"{values.mean():.1f}", f"{values.std(ddof=1):.1f}"]
        if variant in BOUNDS:
            gap = interval(differences(found.results, found.scale, task, variant))
            row.append(f"{gap.mean:+.1f} %")
            row.append(f"{gap.low:+.1f} to {gap.high:+.1f} %")
            row.append(f"{100 * BOUNDS[variant]:.0f} %")
        rows.append([*row, *[""] * (8 - len(row))])
    heads = (
        "task",
        "",
        "seeds",
        "return",
        "s.d. of seeds",
        "of the gain",
        "95 % interval",
        "bound",
    )
    return table(heads, rows)


def _draw(found: MultiGpuFindings, directory: Path) -> None:
    if found.whole:
        _draw_phases(found, directory / "phases.png")
        _draw_ranks(found, directory / "ranks.png")
        _draw_learning(found, directory / "learning.png")


def _draw_phases(found: MultiGpuFindings, path: Path) -> None:
    """Shares of the phases by team, and the largest gain of overlap."""
    scale, results = found.scale, found.results
    titles = ("Share of an iteration, 4 x 25 (C1)", "Largest gain of overlap (C3)")
    with pictures.panels(path, titles, size=(4.5, 3.4)) as (left, right):
        places, share = np.arange(len(scale.agents)), shares(results, scale)
        left.bar(places, share, 0.6, color="#0072b2", label="update, T_MU")
        left.bar(places, [1 - s for s in share], 0.6, bottom=share, color="#9aa5b1", label="T_DC")
        left.set_ylim(0, 1.25)
        left.legend(ncols=2, loc="upper left", frameon=False)
        for play, style, label in (("play_s", "-o", "4 x 25"), ("wide_play_s", "--s", "100 x 1")):
            bounds = overlap_bounds(results, scale, play=play)
            right.plot(places, bounds, style, color="#0072b2", label=label)
        right.set_ylim(0.95, None)
        right.legend(title="copies x steps", frameon=False)
        for axes in (left, right):
            axes.set_xticks(places, [str(agents) for agents in scale.agents])
            axes.set_xlabel("agents")


def _draw_learning(found: MultiGpuFindings, path: Path) -> None:
    """Relative differences of returns with their intervals, and the bounds of equivalence."""
    titles = [f"cooperative {task} (C2, C4)" for task in TASKS]
    with pictures.panels(path, titles, size=(4.5, 2.6)) as every:
        for axes, task in zip(every, TASKS, strict=True):
            for place, (variant, bound) in enumerate(BOUNDS.items()):
                gap = interval(differences(found.results, found.scale, task, variant))
                axes.barh(place, 200 * bound, 0.7, left=-100 * bound, color="#cfe8dd")
                axes.plot([gap.low, gap.high], [place] * 2, color="#0072b2")
                axes.plot(gap.mean, place, "o", color="#0072b2")
            axes.use_sticky_edges = False  # the bound is no edge
            axes.axvline(0.0, color="black", linewidth=0.8)
            axes.set_yticks(range(len(BOUNDS)), [*BOUNDS])
            axes.set_xlabel("difference in % of the gain; shaded: the bound")
            axes.invert_yaxis()


def _draw_ranks(found: MultiGpuFindings, path: Path) -> None:
    """Rate of two ranks relative to one process, by minibatch and by team."""
    scale = found.scale
    titles = (f"{scale.ranked_agents[1]} agents (C6)", f"B = {scale.largest} (C7, C8)")
    columns = (("B", scale.batches, by_batch), ("agents", scale.ranked_agents, by_team))
    with pictures.panels(path, titles, size=(4.5, 3.4)) as every:
        for axes, (label, values, ratios) in zip(every, columns, strict=True):
            for split in SPLITS:
                gains = ratios(found.results, scale, split)
                axes.plot(gains, "-o", color=COLOURS[split], label=f"by {split}")
            axes.axhline(1.0, color="black", linewidth=0.8)
            axes.set_xticks(range(len(values)), [str(value) for value in values])
            axes.set(xlabel=label, ylabel="two ranks / one process")
        every[0].legend(frameon=False)


PAPER = Paper(
    folder="004-multi-gpu-maddpg",
    package=PACKAGE,
    scales=SCALES,
    parts={"all": cells},
    judged=_judged,
    modules=("fullrank_multi_gpu.paper", "fullrank.algorithms.maddpg"),
    values=_values,
    draw=_draw,
)
