"""The reproduction of multi-GPU MADDPG: cells, then pictures and the page."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fullrank_reproduction import claim_results
from fullrank_reproduction.cells import Cell, CellOrigin, Clock, run
from fullrank_reproduction.darl1n.results import Results
from fullrank_reproduction.multi_gpu import report
from fullrank_reproduction.multi_gpu.claims import judged
from fullrank_reproduction.multi_gpu.measurements import MultiGpuBudget, cells

PAGE = "README.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class MultiGpuScale:
    """Scale of the reproduction."""

    name: str
    budget: MultiGpuBudget


SMOKE = MultiGpuScale(
    name="smoke",
    budget=MultiGpuBudget(
        hidden=128,
        agents=(4, 8, 16, 32),
        batch=512,
        ranked_agents=(4, 8, 16),
        batches=(32, 128, 512, 2048),
        repeats=3,
        seeds=10,
        iterations=1500,
        learning_batch=256,
    ),
)
"""Takes half an hour on two cores."""

PAPER = MultiGpuScale(
    name="paper",
    budget=MultiGpuBudget(
        hidden=1024,
        agents=(4, 8, 16, 32, 64),
        batch=4096,
        ranked_agents=(8, 32, 64),
        batches=(512, 1024, 2048, 4096),
        repeats=5,
        seeds=10,
        iterations=6000,
        learning_batch=1024,
    ),
)
"""The paper's sizes and seeds; takes a day on two cores."""

SCALES = {scale.name: scale for scale in (SMOKE, PAPER)}


def work(scale: MultiGpuScale, clock: Clock) -> float:
    """Sum of the weights of all cells."""
    return sum(cell.weight for cell in cells(scale.budget, clock))


def reproduce(
    scale: MultiGpuScale, directory: Path, *, clock: Clock, done: Callable[[Cell, CellOrigin], None]
) -> Path:
    """Compute missing cells, then write pictures and the page; returns its path.

    Args:
        scale: The scale.
        directory: Directory of results, pictures and page; existing results are reused.
        clock: Processor clock.
        done: Called with each cell when its result is available.
    """
    results = run(cells(scale.budget, clock), directory, done=done)
    report.draw_phases(results, scale.budget, directory / "phases.png")
    report.draw_ranks(results, scale.budget, directory / "ranks.png")
    report.draw_learning(results, scale.budget, directory / "learning.png")
    path = directory / PAGE
    path.write_text(page(scale, results), encoding="utf-8")
    return path


def page(scale: MultiGpuScale, results: Results) -> str:
    """The page as Markdown, lines of any length."""
    claims = claim_results.as_list(judged(results, scale.budget))
    budget = scale.budget
    return f"""# Multi-GPU MADDPG [Wiggins24], reproduced ({scale.name} scale)

In multi-GPU MADDPG an actor process plays beside the update, and each GPU computes the gradients of
all agents over a micro-batch of its own, which the GPUs add up. This page is written by the
command, which keeps what it has computed:

```console
$ fullrank reproduce multi-gpu                  # half an hour on two cores
$ fullrank reproduce multi-gpu --scale paper    # the paper's sizes and seeds; a day or more
```

**No CUDA device was used for this page.** A device is a process with one thread of a CPU: Rover
Tower, networks of width {budget.hidden}. Times are processor seconds, of {budget.repeats} repeats
or more; the time of a group is that of its busiest rank, which leaves out all waiting for the
others. Ratios are the result, not times; where the paper's claim is about GPUs, *in kind* says that
its shape alone is tested. `make gpu` tests and measures a card, for 8 to 64 agents and B = 512 to
4096, beside an update agent by agent and TorchRL's; docs/measurements.md has those of one H200.

## Claims

{claims}

{report.text(results, budget)}"""
