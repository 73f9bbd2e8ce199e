"""The page on [Wang21]."""

from collections.abc import Collection, Mapping, Sequence

from fullrank.common.types import JSON
from fullrank_reproduction import (
    claim_results,
    claims,
    decoding_cost,
    fig3,
    learning,
    page,
    payload,
    timing,
    wang21,
)
from fullrank_reproduction.claim_results import ClaimResult
from fullrank_reproduction.claims import TimeTable
from fullrank_reproduction.learning import Wang21Budget
from fullrank_reproduction.scales import ReportPart, Wang21Scale
from fullrank_reproduction.wang21 import EVERY

PUBLISHED, PAPERS, HERE, REAL = "published", "paper's machines", "this machine", "processes"
"""Sources of times."""


TITLES = {
    PAPERS: ("times-paper.png", "Predicted for the paper's machines; dashes: published"),
    HERE: ("times-here.png", "Predicted for learners like this machine"),
    REAL: ("times-processes.png", "Measured on processes with emulated computing"),
}
"""Pictures of times by source: file and title."""


def predicted(results: Mapping[str, JSON], source: str) -> TimeTable:
    """Times of the predicted cells of a source."""
    times = {
        setting: results[f"predicted-{source}-{setting.task.name}-{setting.agents}"].get(
            setting.name
        )
        for setting in timing.settings()
    }
    return claims.table({setting: time for setting, time in times.items() if time is not None})


def text(
    scale: Wang21Scale,
    parts: Collection[ReportPart],
    results: Mapping[str, JSON],
    *,
    tables: Mapping[str, TimeTable],
    judged: Mapping[str, Sequence[ClaimResult]],
) -> str:
    """The page as Markdown, lines of any length."""
    written = _introduction(scale, parts, judged)
    if ReportPart.FIG3 in parts:
        written += _learning(scale.budget, results)
    if ReportPart.PAYLOAD in parts:
        written += _payload(scale.budget, results)
    if tables:
        written += _times(scale, results, tables)
    if ReportPart.CODES in parts:
        written += _codes(results)
    return written


def _introduction(
    scale: Wang21Scale, parts: Collection[ReportPart], judged: Mapping[str, Sequence[ClaimResult]]
) -> str:
    only = "" if set(parts) == set(ReportPart) else f" --only {','.join(sorted(parts))}"
    return f"""# Coded MADDPG, reproduced ({scale.name} scale)

`fullrank reproduce coded-maddpg --scale {scale.name}{only}`. Tasks in the `openai` variant
(dynamics and rewards of the original particle environments), M = 8 or 10, K = M / 2 adversaries in
the competitive ones unless said, N = {wang21.LEARNERS}; an uncoded run has M learners.

## Claims

{claim_results.as_list(judged)}

Times count as equal within {claims.SLACK:.0%} of the delay, or of each other. *Published* judges
the authors' own numbers by the same rules. In brackets: whose claim it is, and how strong the test.

"""


def _learning(budget: Wang21Budget, results: Mapping[str, JSON]) -> str:
    return f"""## Fig. 3: learning curves

{budget.seeds} seeds, {budget.iterations} iterations centralised, {budget.cyclic} with `cyclic`,
{budget.compared} with each other code (first seed), batch {budget.batch}. Every coded run is a run
of its own with k stragglers in every iteration; the curves lie on each other because the bits are
the same. Bands: 95 % over the seeds.

![Learning curves](learning.png)
{fig3.table(results, budget.panels, seeds=budget.seeds)}

Mean return of {learning.EPISODES} episodes by the trained policies, which act greedily (the most
probable action), softly (the probabilities as a mixture of forces), or exploring as in training:

{fig3.played(results, budget.panels, seeds=budget.seeds)}

Errors of a code that cannot be exact, decoding in the state of the centralised run:

{page.distances(results, budget.panels)}

"""


def _payload(budget: Wang21Budget, results: Mapping[str, JSON]) -> str:
    return f"""## The paper's payload: coded parameters

Learners of the paper return combinations of updated parameters in float32 with rows of a
Vandermonde matrix (`vandermonde`, the authors' nodes), and the controller solves the first M that
arrive. Here the parameters of a centralised run pass through that code after each of
{budget.payload} iterations; errors are relative to the largest parameter, returns are means of the
last {EVERY} iterations.
Fullrank codes gradients on a grid instead, decodes them exactly, and keeps Adam at the controller.

![Learning through coded parameters](payload.png)

{payload.table(results, budget)}

"""


def _times(scale: Wang21Scale, results: Mapping[str, JSON], tables: Mapping[str, TimeTable]) -> str:
    pictures = "\n".join(
        f"![{title}]({name})" for source, (name, title) in TITLES.items() if source in tables
    )
    return f"""## Figs. 4 and 5: time against stragglers

Seconds for {wang21.TOTALLED} iterations, cells by k.

* *Paper's machines*: virtual time with three numbers (seconds per unit, per learner, and shared by
  all codes), solved from the published cells of `uncoded`, `mds` and `replication` without
  stragglers. Every other cell is a prediction.
* *This machine*: virtual time with the computing time measured here.
* *Processes*: real services, {timing.EMULATED_UNIT_S} s per unit emulated, {scale.real_rounds - 1}
  rounds.

`cyclic` is ours; its tolerance is the largest k of the task, N - M at most. `auto` is ours too: the
planner chooses family and tolerance from its observations; the first {timing.LEARNT} iterations, in
which it gets to know the learners, are left out.

{_agreement(results, tables)}
{pictures}
{page.times(tables)}

"""


def _agreement(results: Mapping[str, JSON], tables: Mapping[str, TimeTable]) -> str:
    if PAPERS not in tables:
        return ""
    published, simpler = tables[PUBLISHED], predicted(results, "simpler")
    return f"""Distance of predicted from published times; the cells from which they were solved are
left out. Keep away's published cells are doubtful.

{page.agreement(tables[PAPERS], published, timing.INPUTS)}

Without the cost of a learner, solved from two cells a row:

{page.agreement(simpler, published, timing.INPUTS[:2])}

"""


def _codes(results: Mapping[str, JSON]) -> str:
    return f"""## P(decodable | k)

Exact, over all sets of k lost rows of {wang21.LEARNERS}; `cyclic` with tolerance 2.

{page.probabilities()}

## Cost of decoding

`ldpc`, vectors of {decoding_cost.LENGTH:,} entries, rows in random order until they can be peeled.

{decoding_cost.table(results[decoding_cost.CELL])}
"""
