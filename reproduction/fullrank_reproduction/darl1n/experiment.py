"""The reproduction of [DARL1N]: cells, then pictures, results of the claims and the page."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fullrank_reproduction import claim_results
from fullrank_reproduction.cells import Cell, CellOrigin, Clock, run
from fullrank_reproduction.claim_results import ClaimResult
from fullrank_reproduction.darl1n import (
    noise,
    table_v,
    tables,
    times,
    vandermonde,
)
from fullrank_reproduction.darl1n.claims_table import judge_noise, judge_published, judge_table
from fullrank_reproduction.darl1n.claims_times import judge_convergence, judge_figure
from fullrank_reproduction.darl1n.published import AGENTS, CYCLIC, LEARNERS, SCHEMES, TOTALLED
from fullrank_reproduction.darl1n.results import Results
from fullrank_reproduction.darl1n.straggler_models import StragglerModel
from fullrank_reproduction.darl1n.training import claims, report, stages
from fullrank_reproduction.darl1n.training.budget import Darl1nBudget
from fullrank_reproduction.narrow import narrow

PAGE = "README.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class Darl1nScale:
    """Scale of the reproduction."""

    name: str
    budget: Darl1nBudget
    trials: int
    """Trials of each probability in Table V."""
    sets: int
    """Sets J behind each average V."""
    exact_sets: int
    """The same for the Vandermonde matrix, where each set takes a third of a second."""
    samples: int
    """Sets J of each size in the noise study."""
    draws: int
    """Drawn matrices of a random code whose rounds are simulated."""
    rounds: int
    """Simulated rounds with each matrix."""


SMOKE = Darl1nScale(
    name="smoke",
    budget=Darl1nBudget(
        sizes=1,
        iterations=200,
        every=10,
        batch=256,
        seeds=1,
        timed=3,
        draws=1,
        episodes=300,
    ),
    trials=2_000,
    sets=100,
    exact_sets=10,
    samples=2_000,
    draws=5,
    rounds=20,
)
"""Takes minutes; as many sets J as in the paper, and its smallest teams."""

PAPER = Darl1nScale(
    name="paper",
    budget=Darl1nBudget(
        sizes=4,
        iterations=3_000,
        every=30,
        batch=1_024,
        seeds=3,
        timed=10,
        draws=5,
        episodes=2_000,
    ),
    trials=20_000,
    sets=1_000,
    exact_sets=100,
    samples=20_000,
    draws=10,
    rounds=60,
)
"""The paper's teams, iterations, seeds and rounds; takes days on two cores."""

SCALES = {scale.name: scale for scale in (SMOKE, PAPER)}


def cells(scale: Darl1nScale) -> list[Cell]:
    """Cells about codes."""
    machines = times.published_machines()
    return [
        *(table_v.cell(scheme, trials=scale.trials, sets=scale.sets) for scheme in SCHEMES),
        vandermonde.cell(sets=scale.exact_sets),
        *noise.cells(samples=scale.samples),
        *(
            times.cell(scheme, machines, draws=scale.draws, rounds=scale.rounds)
            for scheme in times.SCHEMES
        ),
    ]


def work(scale: Darl1nScale) -> float:
    """Sum of the weights of all cells."""
    return sum(cell.weight for cell in cells(scale)) + stages.work(scale.budget)


def reproduce(
    scale: Darl1nScale, directory: Path, *, clock: Clock, done: Callable[[Cell, CellOrigin], None]
) -> Path:
    """Compute missing cells, then write pictures and the page; returns its path.

    Args:
        scale: The scale.
        directory: Directory of results, pictures and page; existing results are reused.
        clock: Processor clock.
        done: Called with each cell when its result is available.
    """
    first = [*cells(scale), *stages.first_cells(scale.budget, directory, clock)]
    results = run(first, directory, done=done)
    results |= run(
        stages.later_cells(scale.budget, results, directory, clock), directory, done=done
    )
    tables.draw_noise(results, directory / "noise.png")
    tables.draw_times(results, directory / "times.png")
    report.draw(results, scale.budget, directory)
    path = directory / PAGE
    path.write_text(narrow(_page(scale, results)), encoding="utf-8")
    return path


def _judged(scale: Darl1nScale, results: Results) -> Mapping[str, Sequence[ClaimResult]]:
    """Results by source."""
    return {
        "published numbers": judge_published(results),
        "Table V, ours": judge_table(results),
        "noise": judge_noise(results),
        "Fig. 7, independent stragglers": judge_figure(results, StragglerModel.BERNOULLI),
        "Fig. 7, fixed number": judge_figure(results, StragglerModel.FIXED),
        "Table VI": judge_convergence(results, times.published_machines()),
        **claims.judged(results, scale.budget),
    }


def _page(scale: Darl1nScale, results: Results) -> str:
    sections = (
        _introduction(scale, results),
        _codes(scale, results),
        _noise(scale, results),
        _times(scale, results),
        report.text(results, scale.budget),
    )
    return "".join(sections)


def _introduction(scale: Darl1nScale, results: Results) -> str:
    return f"""# DARL1N and Coded DARL1N, reproduced ({scale.name} scale)

`fullrank reproduce darl1n --scale {scale.name}`: codes with M = {AGENTS} agents and N = {LEARNERS}
learners, then training.
`mds` is ours (the best of some orthonormal frames); the paper has a Vandermonde matrix of unknown
nodes.
`random_sparse` is drawn again until no row is empty.

## Claims

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
