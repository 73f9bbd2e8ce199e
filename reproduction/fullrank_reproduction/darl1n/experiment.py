"""The reproduction of [DARL1N]: cells, then pictures, results of the claims and the page."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path

from fullrank.common.types import JSON
from fullrank_reproduction import claim_results
from fullrank_reproduction.cells import Cell, CellOrigin, Clock, kept, path_of, run
from fullrank_reproduction.claim_results import ClaimResult
from fullrank_reproduction.darl1n import (
    lemma_1,
    noise,
    table_v,
    tables,
    times,
    vandermonde,
)
from fullrank_reproduction.darl1n.claims_table import judge_noise, judge_published, judge_table
from fullrank_reproduction.darl1n.claims_times import judge_convergence, judge_figure
from fullrank_reproduction.darl1n.guidelines import judge_guidelines
from fullrank_reproduction.darl1n.published import AGENTS, CYCLIC, LEARNERS, SCHEMES, TOTALLED
from fullrank_reproduction.darl1n.results import Results
from fullrank_reproduction.darl1n.scales import Darl1nPart, Darl1nScale
from fullrank_reproduction.darl1n.straggler_models import StragglerModel
from fullrank_reproduction.darl1n.training import claims, report, stages

PAGE = "README.md"


def cells(scale: Darl1nScale) -> list[Cell]:
    """Cells about codes."""
    machines = times.published_machines()
    return [
        lemma_1.cell(),
        *(table_v.cell(scheme, trials=scale.trials, sets=scale.sets) for scheme in SCHEMES),
        vandermonde.cell(sets=scale.exact_sets),
        *noise.cells(samples=scale.samples),
        *(
            times.cell(scheme, machines, draws=scale.draws, rounds=scale.rounds)
            for scheme in times.SCHEMES
        ),
    ]


def weights(scale: Darl1nScale, part: Darl1nPart) -> dict[str, float]:
    """Seconds of a part's cells by name, in order of magnitude."""
    if part is Darl1nPart.CODES:
        return {cell.name: cell.weight for cell in cells(scale)}
    return stages.weights(scale.budget, part)


def work(scale: Darl1nScale, parts: Collection[Darl1nPart]) -> float:
    """Sum of the weights of all cells of some parts."""
    spent = {name: weight for part in parts for name, weight in weights(scale, part).items()}
    return sum(spent.values())


def plan(scale: Darl1nScale, parts: Collection[Darl1nPart], directory: Path) -> list[str]:
    """A line for each part that lacks cells: their number, and an estimate of their minutes."""
    lines = []
    for part in parts:
        spent = weights(scale, part)
        left = {
            name: weight for name, weight in spent.items() if not path_of(name, directory).exists()
        }
        if left:
            minutes = math.ceil(sum(left.values()) / 60.0)
            lines.append(
                f"{part}: {len(left)} of {len(spent)} cells to compute, some {minutes} min"
            )
    return lines


def reproduce(
    scale: Darl1nScale,
    directory: Path,
    *,
    clock: Clock,
    done: Callable[[Cell, CellOrigin], None],
    parts: Collection[Darl1nPart] = tuple(Darl1nPart),
    workers: int = 1,
) -> Path:
    """Compute missing cells of some parts, then write pictures and the page of what there is.

    Args:
        scale: The scale.
        directory: Directory of results, pictures and page; existing results are reused.
        clock: Processor clock.
        done: Called with each cell when its result is available.
        parts: What is computed; results of others count if they are there.
        workers: Processes for training.
    """
    results: dict[str, JSON] = {}

    def gather(find: Callable[[Darl1nPart], Sequence[Cell]]) -> None:
        found = {part: find(part) for part in Darl1nPart}
        chosen = [cell for part in found if part in parts for cell in found[part]]
        others = [cell for part in found if part not in parts for cell in found[part]]
        missing = {cell.name: cell for cell in chosen if cell.name not in results}
        results.update(run(list(missing.values()), directory, done=done, workers=workers))
        results.update(kept(others, directory))

    gather(
        lambda part: (
            cells(scale)
            if part is Darl1nPart.CODES
            else stages.first_cells(scale.budget, part, directory, clock)
        )
    )
    gather(lambda part: stages.later_cells(scale.budget, part, results, directory, clock))
    return write(scale, directory, results)


def write(scale: Darl1nScale, directory: Path, results: Results) -> Path:
    """Write pictures and the page of some results; returns its path."""
    if _coded(scale, results):
        tables.draw_noise(results, directory / "noise.png")
        tables.draw_times(results, directory / "times.png")
    report.draw(results, scale.budget, directory)
    path = directory / PAGE
    path.write_text(_page(scale, directory, results), encoding="utf-8")
    return path


def _coded(scale: Darl1nScale, results: Results) -> bool:
    """True if all cells about codes are there."""
    return all(cell.name in results for cell in cells(scale))


def _judged(scale: Darl1nScale, results: Results) -> Mapping[str, Sequence[ClaimResult]]:
    """Results by source; those about codes if all their cells are there."""
    of_codes: dict[str, Callable[[Results], list[ClaimResult]]] = {
        "Sec. III": lemma_1.judge_lemma,
        "published numbers": judge_published,
        "Table V, ours": judge_table,
        "noise": judge_noise,
        "Fig. 7, independent stragglers": partial(judge_figure, model=StragglerModel.BERNOULLI),
        "Fig. 7, fixed number": partial(judge_figure, model=StragglerModel.FIXED),
        "Table VI": partial(judge_convergence, machines=times.published_machines()),
        "Sec. VI-B3": judge_guidelines,
    }
    judges = of_codes if _coded(scale, results) else {}
    codes = {source: judge(results) for source, judge in judges.items()}
    return {**codes, **claims.judged(results, scale.budget)}


def _page(scale: Darl1nScale, directory: Path, results: Results) -> str:
    of_codes = (_codes, _noise, _times) if _coded(scale, results) else ()
    sections = (
        _introduction(scale, directory, results),
        *(section(scale, results) for section in of_codes),
        report.text(results, scale.budget),
    )
    return "".join(sections)


def _introduction(scale: Darl1nScale, directory: Path, results: Results) -> str:
    missing = "".join(f"* {line}\n" for line in plan(scale, tuple(Darl1nPart), directory))
    missing = f"Not here yet:\n\n{missing}\n" if missing else ""
    return f"""# DARL1N and Coded DARL1N, reproduced ({scale.name} scale)

`fullrank reproduce darl1n --scale {scale.name}`: codes with M = {AGENTS} agents and N = {LEARNERS}
learners, then training.
`mds` is ours (the best of some orthonormal frames); the paper has a Vandermonde matrix of unknown
nodes.
`random_sparse` is drawn again until no row is empty.

{missing}## Claims

{claim_results.as_list(_judged(scale, results))}

"""


def _codes(scale: Darl1nScale, results: Results) -> str:
    return f"""## Table V: overhead and success

{tables.of_success(results)}

*Fixed*: exactly round(eta N) stragglers; *independent*: each learner with probability eta. Monte
Carlo over {scale.trials} trials with standard errors, a new matrix for each trial where it is
random.

## Table V: average V

{tables.of_variance(results)}

V = ln det of the covariance of the least-squares decode (eq. 16), over {scale.sets} random sets J
that decode at most; "-" where fewer than {table_v.LEAST_SETS} of {scale.trials} random sets do.
`vandermonde` has the nodes of the authors' earlier code (0.1 to 0.5): over {scale.exact_sets} sets
in rational arithmetic, since float64 cannot decode it.

"""


def _noise(scale: Darl1nScale, results: Results) -> str:
    return f"""## Noise against rows received

The variance of the decoded gradients, mean over the units, in that of one learner's own gradient;
generalised least squares over all rows received. **Median** over those of {scale.samples} random
sets J that decode, the middle 80 %, median condition, and the share that decodes.

![Noise and decodability against rows received](noise.png)

{tables.of_noise(results)}

"""


def _times(scale: Darl1nScale, results: Results) -> str:
    machines = times.published_machines()
    return f"""## Fig. 7: time against stragglers

Virtual time: a learner needs {machines.unit_s:.3f} s for a unit, and {machines.shared_s:.2f} s of
each iteration do not depend on the code. Both, and the {machines.iterations:.0f} iterations of
Table VI, are solved from three of its cells: uncoded at eta = 0 and 0.2, MDS at eta = 0. Seconds
for {TOTALLED} iterations at eta = 0 / 0.2 / 0.5, {scale.draws * scale.rounds} rounds behind each;
`{CYCLIC.name}` is ours.

![Time against the rate of stragglers](times.png)

{tables.of_times(results)}

## Noise against time: the cost of waiting

Seconds of an iteration and, in brackets, mean rows received at eta = 0 / 0.2 / 0.5, Delta = 1 s,
committed at rank M, as in the paper, or once the predicted variance, mean over the units, is at
most {times.MAX_VARIANCE:g} times that of one learner's own gradient, or all rows are there.

{tables.of_waiting(results)}

## Table VI: time to convergence, and V of the gradients

Delta = 1 s, eta = 0 / 0.2 / 0.5. Times are {machines.iterations:.0f} iterations in virtual time; V
is of the rows that were there at the commit.

{tables.of_convergence(results, machines)}

"""
