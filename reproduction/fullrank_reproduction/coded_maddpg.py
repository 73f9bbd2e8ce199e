"""The reproduction of [Wang21]: cells, then tables, pictures and the page."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fullrank.common.types import JSON
from fullrank_reproduction import claim_results, claims, learning, page, timing, wang21
from fullrank_reproduction.cells import Cell, Clock, Origin, run
from fullrank_reproduction.claim_results import ClaimResult
from fullrank_reproduction.claims import TimeTable
from fullrank_reproduction.learning import Wang21Budget
from fullrank_reproduction.narrow import narrow
from fullrank_reproduction.timing import Setting, Train

PAGE = "README.md"


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
    budget=Wang21Budget(iterations=60, compared=15, seeds=2, batch=128, warmup=2560),
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

PAPER = Wang21Scale(
    name="paper",
    budget=Wang21Budget(iterations=4000, compared=400, seeds=5, batch=1024, warmup=25_600),
    repeats=30,
    real=tuple(timing.settings()),
    real_rounds=51,
)
"""The paper's numbers of iterations; takes about a day on two cores."""

SCALES = {scale.name: scale for scale in (SMOKE, PAPER)}


def cells(scale: Wang21Scale, train: Train, clock: Clock) -> list[Cell]:
    """All cells, quick ones first.

    Args:
        scale: The scale.
        train: Trains on real services.
        clock: Processor clock.
    """
    return [
        *(
            timing.measured_compute(task, agents, repeats=scale.repeats, clock=clock)
            for task in wang21.TASKS
            for agents in wang21.AGENTS
        ),
        *(timing.real(setting, rounds=scale.real_rounds, train=train) for setting in scale.real),
        *(cell for task in wang21.TASKS for cell in learning.cells(task, scale.budget)),
    ]


PREDICTED = 2 * len(wang21.TASKS) * len(wang21.AGENTS)
"""Number of predicted cells."""


def predictions(results: Mapping[str, JSON]) -> list[Cell]:
    """Cells in virtual time, for the paper's machines and for learners like this one."""
    rows = [(task, agents) for task in wang21.TASKS for agents in wang21.AGENTS]
    published = {row: timing.published_compute(*row) for row in rows}
    here = {(task, agents): results[f"compute-{task.name}-{agents}"] for task, agents in rows}
    return [
        *(
            timing.predicted("paper", *row, unit_s=published[row][0], shared_s=published[row][1])
            for row in rows
        ),
        *(timing.predicted("here", *row, **here[row]) for row in rows),
    ]


def reproduce(
    scale: Wang21Scale,
    directory: Path,
    *,
    train: Train,
    clock: Clock,
    done: Callable[[Cell, Origin], None],
) -> Path:
    """Compute missing cells, then write pictures and the page; returns its path.

    Args:
        scale: The scale.
        directory: Directory of results, pictures and page; existing results are reused.
        train: Trains on real services.
        clock: Processor clock.
        done: Called with each cell when its result is available.
    """
    results = run(cells(scale, train, clock), directory, done=done)
    results |= run(predictions(results), directory, done=done)
    tables = _tables(scale, results)
    page.draw_learning(results, seeds=scale.budget.seeds, path=directory / "learning.png")
    _draw_times(tables, directory)
    judged = {
        "published": claims.judge_times(tables["published"], rounds=claims.LEAST_ROUNDS),
        "paper's machines": claims.judge_times(tables["paper's machines"], rounds=timing.ROUNDS),
        "this machine": claims.judge_times(tables["this machine"], rounds=timing.ROUNDS),
        "processes": claims.judge_times(tables["processes"], rounds=scale.real_rounds),
        "runs": [
            claims.judge_learning(results, task, seeds=scale.budget.seeds) for task in wang21.TASKS
        ],
    }
    text = _page(scale, results, tables=tables, judged=judged)
    (directory / PAGE).write_text(narrow(text), encoding="utf-8")
    return directory / PAGE


def _tables(scale: Wang21Scale, results: Mapping[str, JSON]) -> dict[str, TimeTable]:
    """Times by source."""
    every = timing.settings()
    published = {
        setting: setting.task.published[setting.agents][setting.code][
            setting.task.stragglers.index(setting.stragglers)
        ]
        for setting in every
        if setting.code in wang21.CODES
    }
    paper, here = (
        {
            setting: results[f"predicted-{source}-{setting.task.name}-{setting.agents}"][
                setting.name
            ]
            for setting in every
        }
        for source in ("paper", "here")
    )
    real = {setting: results[f"real-{setting.name}"]["seconds"] for setting in scale.real}
    sources = {
        "published": published,
        "paper's machines": paper,
        "this machine": here,
        "processes": real,
    }
    return {source: claims.table(cells_) for source, cells_ in sources.items()}


def _draw_times(tables: Mapping[str, TimeTable], directory: Path) -> None:
    page.draw_times(
        tables["paper's machines"],
        title="Predicted for the paper's machines; dashes: published",
        path=directory / "times-paper.png",
        beside=tables["published"],
    )
    page.draw_times(
        tables["this machine"],
        title="Predicted for learners like this machine",
        path=directory / "times-here.png",
    )
    page.draw_times(
        tables["processes"],
        title="Measured on processes with emulated computing",
        path=directory / "times-processes.png",
    )


def _page(
    scale: Wang21Scale,
    results: Mapping[str, JSON],
    *,
    tables: Mapping[str, TimeTable],
    judged: Mapping[str, Sequence[ClaimResult]],
) -> str:
    sections = (
        _introduction(scale, judged),
        _learning(scale.budget, results),
        _times(scale, tables),
        _probabilities(),
    )
    return "".join(sections)


def _introduction(scale: Wang21Scale, judged: Mapping[str, Sequence[ClaimResult]]) -> str:
    return f"""# Coded MADDPG, reproduced ({scale.name} scale)

`fullrank reproduce coded-maddpg --scale {scale.name}`. Tasks in the `openai` variant (dynamics and
rewards of the original particle environments), M = {", ".join(map(str, wang21.AGENTS))}, K = M / 2
adversaries in the competitive ones, N = {wang21.LEARNERS}; an uncoded run has M learners.

## Claims

{claim_results.as_list(judged)}

Times count as equal within {claims.SLACK:.0%} of the delay. *Published* judges the authors' own
numbers by the same rules.

"""


def _learning(budget: Wang21Budget, results: Mapping[str, JSON]) -> str:
    return f"""## Fig. 3: learning curves

{budget.seeds} seeds, {budget.iterations} iterations centralised and `cyclic`, {budget.compared}
with each other code (first seed), batch {budget.batch}. Every coded run is a run of its own with k
stragglers in every iteration; the curves lie on each other because the bits are the same.

![Learning curves](learning.png)

Errors of a code that cannot be exact, decoding in the state of the centralised run:

{page.distances(results)}

"""


def _times(scale: Wang21Scale, tables: Mapping[str, TimeTable]) -> str:
    return f"""## Figs. 4 and 5: time against stragglers

Seconds for {wang21.TOTALLED} iterations, cells by k.

* *Paper's machines*: virtual time with the two numbers (seconds per unit, seconds shared by all
  codes) that the published cells of `uncoded` and `mds` without stragglers give. Every other cell
  is a prediction.
* *This machine*: virtual time with the computing time measured here.
* *Processes*: real services, {timing.EMULATED_UNIT_S} s per unit emulated, {scale.real_rounds - 1}
  rounds.

`cyclic` is ours; its tolerance is the largest k of the task, N - M at most. `auto` is ours too: the
planner chooses family and tolerance from its observations; the first {timing.LEARNT} iterations, in
which it gets to know the learners, are left out.

{page.agreement(tables["paper's machines"], tables["published"])}

![Predicted and published times](times-paper.png)
![Predicted times with the computing times of this machine](times-here.png)
![Measured times](times-processes.png)
{page.times(tables)}

"""


def _probabilities() -> str:
    return f"""## P(decodable | k)

Exact, over all sets of k lost rows of {wang21.LEARNERS}; `cyclic` with tolerance 2.

{page.probabilities()}
"""
