"""Tables and pictures of the reproduction of multi-GPU MADDPG."""

from itertools import product
from pathlib import Path

import numpy as np

from fullrank.algorithms import algorithms
from fullrank.config.plugins import spec_of
from fullrank.training.ranks import received_bytes
from fullrank_reproduction import pictures
from fullrank_reproduction.darl1n.results import Results
from fullrank_reproduction.multi_gpu.claims import (
    BOUNDS,
    NOISE,
    differences,
    overlap_bounds,
    ratio,
    returns,
    shares,
)
from fullrank_reproduction.multi_gpu.measurements import (
    SPLITS,
    TASKS,
    VARIANTS,
    MultiGpuBudget,
    tower,
)
from fullrank_reproduction.multi_gpu.prediction import PAPERS, flop_of, speed_up

PAPERS_FIGURE = {
    (32, 512): "below 1",
    (32, 1024): "below 1",
    (32, 2048): "above 1",
    (32, 4096): "above 1, up to 1.5",
    (8, 4096): "up to 1.5",
    (64, 4096): "up to 1.5",
}
"""What the paper says of its Fig. 6, whose bars have no numbers, by agents and minibatch."""
COLOURS = {"transitions": "#0072b2", "agents": "#009e73"}


def text(results: Results, budget: MultiGpuBudget) -> str:
    """The sections below the claims."""
    wide = shares(results, budget, play="wide_play_s")
    return f"""## Phases of an iteration

T_DC: 100 transitions played by 4 copies in 25 steps, as the original algorithm does, and by 100
copies in one step, as this engine does by default. T_MU: the update at B = {budget.batch}. *Bound*:
(T_DC + T_MU) / max(T_DC, T_MU), which overlap cannot exceed.

![Phases of an iteration](phases.png)

{_phases(results, budget)}

With wide collection the update's share is {min(wide):.2f} or more for every team: most of what
overlap gains is gone before it begins.

## Two ranks against one process

Agent-updates per second of several ranks, relative to one process that computes whole minibatches;
and megabytes that a rank receives in an update, beside the formula. Ranks that divide transitions,
the paper's split, add the gradients of their micro-batches exactly, in float64; ranks that divide
agents, ours, compute whole minibatches and exchange policies. Measured twice on a busy machine,
ratios differed by up to 0.14; {NOISE} counts as noise.

![Two ranks against one process](ranks.png)

{_ranks(results, budget)}

Predicted from the curve of one process alone, without any cost of adding: T_MU(B) / T_MU(B / 2) by
transitions. What is missing is the price of exact sums, in float64 and by sockets, which every
update pays once, whatever B is.

{_predicted_here(results, budget)}

## Two devices, predicted

Two H100 by PCIe, as two numbers: {PAPERS.flops / 1e12:.0f} TFLOP/s and {PAPERS.bandwidth / 1e9:.0f}
GB/s, which were assumed before any card was at hand; the kernels of an update of 32 agents with
B = 4096 have since reached 36 on an H200 (docs/measurements.md). They give the paper's own crossing
near B = 1024 and about its 1.5 times, and test neither. Rates relative to one device, and what a
device receives in an update: by transitions gradients, added in float32, by agents policies alone.
*The paper*: its own rates by transitions, as far as its text says them.

{_predicted_there()}

## Lag and micro-batches

Greedy return of {budget.seeds} paired seeds with B = {budget.learning_batch} after
{budget.iterations} iterations, relative to updates that wait for collection and use one batch: on
cooperative communication (`speaker_listener`), the paper's task, and on cooperative navigation,
whose seeds scatter less. A claim of equivalence is held if the whole of Student's 90 % interval
lies within the bound, the paper's own figure, and undecided if only a part does. Micro-batches are
draws of their own here as in the paper, since replay draws with replacement. They differ from one
batch in noise and in what is clipped.

![Lag and micro-batches against one batch](learning.png)

{_learning(results, budget)}
"""


def _phases(results: Results, budget: MultiGpuBudget) -> str:
    rows = ["| agents | T_DC | wide | T_MU | share | bound | bound, wide |", "|---" * 7 + "|"]
    bounds = overlap_bounds(results, budget)
    wide = overlap_bounds(results, budget, play="wide_play_s")
    for row, agents in enumerate(budget.agents):
        found = results[f"phases-{agents}"]
        times = (f"{1e3 * found[name]:.1f} ms" for name in ("play_s", "wide_play_s", "update_s"))
        share = shares(results, budget)[row]
        rows.append(
            f"| {agents} | {' | '.join(times)} | {share:.2f} | {bounds[row]:.2f} | "
            f"{wide[row]:.2f} |"
        )
    return "\n".join(rows)


def _ranks(results: Results, budget: MultiGpuBudget) -> str:
    second = budget.ranked_agents[1]
    cells = [(2, second, batch) for batch in budget.batches]
    cells += [(2, agents, budget.largest) for agents in budget.ranked_agents]
    cells.append((4, budget.ranked_agents[0], budget.largest))
    head = "| ranks | agents | B | transitions | MB (formula) | agents' split | MB (formula) |"
    rows = [head, "|---" * 7 + "|"]
    for ranks, agents, batch in dict.fromkeys(cells):
        name = f"ranks-{ranks}-{agents}-{batch}"
        columns = []
        for split in SPLITS:
            found = results[name][split]
            columns += [
                f"{ratio(results, name, split):.2f}",
                f"{found['bytes'] / 1e6:.2f} ({found['formula'] / 1e6:.2f})",
            ]
        rows.append(f"| {ranks} | {agents} | {batch} | {' | '.join(columns)} |")
    return "\n".join(rows)


def _curve(results: Results, budget: MultiGpuBudget, batch: int) -> float:
    return float(results[f"curve-{budget.ranked_agents[1]}-{batch}"]["update_s"])


def _predicted_here(results: Results, budget: MultiGpuBudget) -> str:
    second = budget.ranked_agents[1]
    rows = ["| B | T_MU(B) | predicted | measured |", "|---" * 4 + "|"]
    for batch in budget.batches:
        whole, half = (_curve(results, budget, size) for size in (batch, batch // 2))
        measured = ratio(results, f"ranks-2-{second}-{batch}", "transitions")
        rows.append(f"| {batch} | {1e3 * whole:.1f} ms | {whole / half:.2f} | {measured:.2f} |")
    return "\n".join(rows)


def _predicted_there() -> str:
    head = "| agents | B | the paper | transitions | GB | agents' split | GB |"
    rows = [head, "|---" * 7 + "|"]
    sized = MultiGpuBudget(
        hidden=1024,
        agents=(),
        batch=0,
        ranked_agents=(),
        batches=(),
        repeats=0,
        seeds=0,
        iterations=0,
        learning_batch=0,
    )
    for (agents, batch), said in PAPERS_FIGURE.items():
        config = tower(sized, agents, batch, "algorithm.micro_batches=2")
        problem = algorithms.build("maddpg", **config.algorithm.params).problem(spec_of(config))
        curve = PAPERS.curve(flop_of(problem))
        columns = [said]
        for split in SPLITS:
            gain = speed_up(curve, problem, batch, split, PAPERS.bandwidth, exact=False)
            moved = received_bytes(problem, 2, split, exact=False) / 1e9
            columns += [f"{gain:.2f}", f"{moved:.3f}"]
        rows.append(f"| {agents} | {batch} | {' | '.join(columns)} |")
    return "\n".join(rows)


def _learning(results: Results, budget: MultiGpuBudget) -> str:
    head = "| task | | return | s.d. of seeds | difference | 90 % interval | bound |"
    rows = [head, "|---" * 7 + "|"]
    for task, variant in product(TASKS, VARIANTS):
        values = returns(results, budget, task, variant)
        row = f"| {task} | {variant} | {values.mean():.1f} | {values.std(ddof=1):.1f} |"
        if variant in BOUNDS:
            found = differences(results, budget, task, variant)
            row += (
                f" {100 * found.mean:+.1f} % | {100 * found.low:+.1f} to {100 * found.high:+.1f} % "
                f"| {100 * BOUNDS[variant]:.0f} % |"
            )
        else:
            row += " | | |"
        rows.append(row)
    return "\n".join(rows)


def draw_phases(results: Results, budget: MultiGpuBudget, path: Path) -> None:
    """Shares of the phases by team, and the largest gain of overlap."""
    figure = pictures.blank(width=9.0, height=3.4)
    left, right = figure.subplots(1, 2)
    places = np.arange(len(budget.agents))
    share = shares(results, budget)
    left.bar(places, share, 0.6, color="#0072b2", label="update, T_MU")
    left.bar(places, [1 - s for s in share], 0.6, bottom=share, color="#9aa5b1", label="T_DC")
    left.set_title("Share of an iteration, 4 x 25 (C1)", fontsize=10)
    left.set_ylim(0, 1.25)
    left.legend(ncols=2, loc="upper left", frameon=False)
    for play, style, label in (("play_s", "-o", "4 x 25"), ("wide_play_s", "--s", "100 x 1")):
        bounds = overlap_bounds(results, budget, play=play)
        right.plot(places, bounds, style, color="#0072b2", label=label)
    right.set_title("Largest gain of overlap (C3)", fontsize=10)
    right.set_ylim(0.95, None)
    right.legend(title="copies x steps", frameon=False)
    for axes in (left, right):
        axes.set_xticks(places, [str(agents) for agents in budget.agents])
        axes.set_xlabel("agents")
        pictures.tidy(axes)
    figure.savefig(path, dpi=pictures.DPI)


def draw_learning(results: Results, budget: MultiGpuBudget, path: Path) -> None:
    """Relative differences of returns with their intervals, and the bounds of equivalence."""
    figure = pictures.blank(width=9.0, height=2.6)
    for axes, task in zip(figure.subplots(1, 2, sharey=True), TASKS, strict=True):
        for place, (variant, bound) in enumerate(BOUNDS.items()):
            found = differences(results, budget, task, variant)
            low, mean, high = (100 * value for value in (found.low, found.mean, found.high))
            axes.barh(place, 200 * bound, 0.7, left=-100 * bound, color="#cfe8dd")
            axes.plot([low, high], [place, place], color="#0072b2", linewidth=2)
            axes.plot(mean, place, "o", color="#0072b2")
        axes.use_sticky_edges = False  # the bound is no edge
        axes.axvline(0.0, color="black", linewidth=0.8)
        axes.set_yticks(range(len(BOUNDS)), [*BOUNDS])
        axes.set_xlabel("difference of the return, %; shaded: the bound")
        axes.set_title(f"cooperative {task} (C2, C4)", fontsize=10)
        pictures.tidy(axes)
        axes.grid(visible=False)
    axes.invert_yaxis()
    figure.savefig(path, dpi=pictures.DPI)


def draw_ranks(results: Results, budget: MultiGpuBudget, path: Path) -> None:
    """Rate of two ranks relative to one process, by minibatch and by team."""
    second = budget.ranked_agents[1]
    panels = (
        ("B", budget.batches, [f"ranks-2-{second}-{batch}" for batch in budget.batches]),
        (
            "agents",
            budget.ranked_agents,
            [f"ranks-2-{agents}-{budget.largest}" for agents in budget.ranked_agents],
        ),
    )
    titles = (f"{second} agents (C6)", f"B = {budget.largest} (C7, C8)")
    figure = pictures.blank(width=9.0, height=3.4)
    cells = figure.subplots(1, 2, sharey=True)
    for axes, (label, values, names), title in zip(cells, panels, titles, strict=True):
        places = np.arange(len(values))
        for split in SPLITS:
            gains = [ratio(results, name, split) for name in names]
            axes.plot(places, gains, "-o", color=COLOURS[split], label=f"by {split}")
        axes.axhline(1.0, color="black", linewidth=0.8)
        axes.set_xticks(places, [str(value) for value in values])
        axes.set_xlabel(label)
        axes.set_title(title, fontsize=10)
        pictures.tidy(axes)
    cells[0].set_ylabel("two ranks / one process")
    cells[0].legend(frameon=False)
    figure.savefig(path, dpi=pictures.DPI)
