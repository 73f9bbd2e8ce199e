"""The reproduction of [CMARL]: cells, then pictures, results of the claims and the page."""

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path

from fullrank.common.types import JSON
from fullrank_reproduction import claim_results
from fullrank_reproduction.cells import Cell, CellOrigin, kept, run
from fullrank_reproduction.claim_results import ClaimResult
from fullrank_reproduction.cmarl import claims, collection, learning, queues, report
from fullrank_reproduction.cmarl.collection import Observe
from fullrank_reproduction.cmarl.learning import Courses
from fullrank_reproduction.cmarl.scales import CmarlScale

PAGE = "README.md"


class CmarlPart(StrEnum):
    """Parts of the reproduction, quick ones first."""

    QUEUES = "queues"
    """Waits at replay, and group commit."""
    SERVICES = "services"
    """Collection by one, two and three collectors."""
    LEARNING = "learning"
    """Learning at equal virtual time."""


def cells_of(scale: CmarlScale, part: CmarlPart, observe: Observe) -> list[Cell]:
    """Cells of a part.

    Args:
        scale: The scale.
        part: The part.
        observe: Trains on real services.
    """
    match part:
        case CmarlPart.QUEUES:
            return queues.cells(seconds=scale.seconds, turns=scale.turns)
        case CmarlPart.SERVICES:
            return collection.cells(
                step_s=scale.step_s, iterations=scale.iterations, observe=observe
            )
        case CmarlPart.LEARNING:
            return learning.cells(scale.learning)


def work(scale: CmarlScale, parts: Sequence[CmarlPart], observe: Observe) -> float:
    """Sum of the weights of all cells of some parts."""
    return sum(cell.weight for part in parts for cell in cells_of(scale, part, observe))


def reproduce(
    scale: CmarlScale,
    directory: Path,
    *,
    observe: Observe,
    done: Callable[[Cell, CellOrigin], None],
    parts: Sequence[CmarlPart] = tuple(CmarlPart),
) -> Path:
    """Compute missing cells of some parts, then write pictures and the page of what there is.

    Args:
        scale: The scale.
        directory: Directory of results, pictures and page; existing results are reused.
        observe: Trains on real services.
        done: Called with each cell when its result is available.
        parts: What is computed; results of others count if they are there.
    """
    results: dict[str, JSON] = {}
    for part in CmarlPart:
        cells = cells_of(scale, part, observe)
        results |= run(cells, directory, done=done) if part in parts else kept(cells, directory)
    return write(scale, directory, results)


def write(scale: CmarlScale, directory: Path, results: Mapping[str, JSON]) -> Path:
    """Write pictures and the page of some results; return its path."""
    courses = Courses(results, scale.learning)
    if courses.computed:
        report.draw_learning(courses, scale.learning, directory / "learning.png")
        report.draw_systems(courses, directory / "systems.png")
    if rates := collection.rates(results):
        report.draw_collection(rates, directory / "collection.png")
    path = directory / PAGE
    path.write_text(_page(scale, results), encoding="utf-8")
    return path


def judged(scale: CmarlScale, results: Mapping[str, JSON]) -> dict[str, Sequence[ClaimResult]]:
    """Results by source."""
    courses = Courses(results, scale.learning)
    return {
        **claims.judge_learning(courses, scale.learning),
        "Sec. 2.1": [queues.judge_queues(results)],
        "Sec. 2.2": [claims.judge_share(courses)],
        "Sec. 2": [collection.judge_collection(results)],
    }


def _page(scale: CmarlScale, results: Mapping[str, JSON]) -> str:
    budget, courses = scale.learning, Courses(results, scale.learning)
    durations, computed = budget.durations, courses.computed
    total = len(learning.cells(budget))
    pictures = (
        "\n![Learning at equal time](learning.png)\n\n![Systems](systems.png)\n" if computed else ""
    )
    services = (
        "\n![Collection by containers](collection.png)\n" if collection.rates(results) else ""
    )
    return f"""# CMARL [CMARL], reproduced ({scale.name} scale)

In CMARL containers of actors learn heads of their own and hand their best episodes over to a
centraliser. This page is written by the command, which keeps what it has computed:

```console
$ fullrank reproduce cmarl                      # some 20 minutes on two cores
$ fullrank reproduce cmarl --scale standard     # more seeds, 120 s each; a day
$ fullrank reproduce cmarl --only queues        # one part: queues, services, learning
```

The paper compares systems after equal hours on 39 games of StarCraft II and a GPU. Here they are
compared after equal **virtual time** ([containers that learn](../learning-containers.md)): episodes
and gradients are real, durations are numbers. The games are those of SMAC-lite, a model of SMAC's
battles: **no number here is one of StarCraft II**.

## Claims

{claim_results.as_list(judged(scale, results))}

## Learning at equal time

{computed} of {total} runs: {budget.seeds} seeds on {", ".join(budget.maps)}, {budget.until_s:g}
virtual seconds each. A step takes {durations.step_s:g} s, the choice of a container's actions
{durations.acting_s:g} s, an update of the centraliser or of QMIX {durations.update_s:g} s, one of a
container {durations.container_update_s:g} s. Every {budget.until_s / budget.points:g} s the greedy
policy plays {budget.episodes} episodes. Settings besides those of the topologies:
`{" ".join(budget.settings)}`, for QMIX-BETA-v2
`{" ".join(budget.v2_settings)}`; containers draw {budget.containers.batch_size} episodes and
exchange trunks and heads every {budget.containers.every_s:g} s.
{pictures}
The mean return is that of all evaluations of a run as a share of 20, the return of a victory; with
the least and the greatest run. A team that never wins earns for damage, too.

{report.table(courses)}

Mean return and share won at the end, by map:

{report.table_by_map(courses, budget)}

A container updates its head less often than the centraliser updates its network, which in the paper
it does not: containers act with heads that have learnt less, and that counts against C5. APE-X has
10 cores; with 30 actors each step takes three times as long, but its learner is not slowed down,
which in the paper it is, and that counts against the second comparison of C6. CMARL, its ablations
and QMIX-BETA have a core for each actor. Every system draws uniformly from replay;
`--topology apex` would draw by reward.

The rate, width and batch were chosen by trials of five systems on 3m and two on 5m_vs_6m with seed
1, which are runs of the comparison, too. C1 and C7 are judged by a paired interval, which is
stricter than the ratio; that C3 to C6 are judged by mean returns was fixed before the runs. C6 was
one claim at first, undecided as a whole, and was divided into its comparisons after the runs.
{scale.outlook}
## Collection by services

Real controller, replay service, learner and one, two and three collectors of
{collection.ACTORS} copies, which hand everything over and do not learn; a step takes
{scale.step_s:g} s by sleep.
{services}"""
