"""EPC ([Long20]): a curriculum of all teams of a task, and from scratch.

A team's seconds are those of its own stage; [DARL1N, Sec. VI-A] must count likewise, since its 16
spins take a quarter of the time of 9. The seconds of earlier stages are recorded separately. The
runs of a stage stand for the paper's seeds, although they share parents from the second stage on.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from fullrank.algorithms.actor_critic import Hyperparameters
from fullrank.common.types import JSON
from fullrank_reproduction.baselines.epc.curriculum import Curriculum, Stage
from fullrank_reproduction.baselines.epc.population import TrainedTeam, train
from fullrank_reproduction.baselines.epc.practice import Practice
from fullrank_reproduction.cells import Cell, Clock
from fullrank_reproduction.darl1n.results import Results
from fullrank_reproduction.darl1n.training.budget import Darl1nBudget
from fullrank_reproduction.darl1n.training.policies import digest_of
from fullrank_reproduction.darl1n.training.published import (
    EPC,
    EPISODES,
    SCRATCH,
    Darl1nTask,
    Size,
)
from fullrank_reproduction.darl1n.training.trials import WARM_UP, Trial

BATCH = 32
"""Transitions of an update; the authors' number in Ising."""
SELECTED = 2
"""Most parents of a stage."""


def names(task: Darl1nTask, size: Size) -> dict[str, str]:
    """Cells of a team by method; from scratch, the smallest team uses EPC's own cell."""
    methods = [method for method in (EPC, SCRATCH) if method in task.printed]
    first = size.agents == task.sizes[0].agents
    return {method: _name(EPC if first else method, task.name, size.agents) for method in methods}


def before_s(results: Results, task: Darl1nTask, size: Size) -> float:
    """Seconds of all runs in the stages before a team's own."""
    return float(results[names(task, size)[EPC]]["before"])


def cells(budget: Darl1nBudget, task: Darl1nTask, directory: Path, clock: Clock) -> list[Cell]:
    """One cell for each team and method in a task without adversaries.

    Args:
        budget: The training budget.
        task: The task.
        directory: Holds finished runs in ``epc``; later stages continue from them.
        clock: Processor clock.
    """
    sizes = budget.grown_sizes(task)
    if not sizes:
        return []
    parts = stages(EPC, curriculum(budget, task, sizes), directory, clock)
    if SCRATCH in task.printed and budget.grown is None:
        for size in sizes[1:]:
            parts += stages(SCRATCH, curriculum(budget, task, [size]), directory, clock)
    return parts


def curriculum(
    budget: Darl1nBudget,
    task: Darl1nTask,
    sizes: Sequence[Size],
    *,
    both: bool = False,
    make: Callable[..., Curriculum] = Curriculum,
) -> Curriculum:
    """A curriculum whose teams observe, play and are evaluated as in the other methods.

    Its training episodes are also one step longer, since there is only one environment.

    Args:
        budget: The training budget.
        task: The task.
        sizes: Sizes, smallest first.
        both: Whether both sides of a contest learn, each against the other.
        make: Called with the keywords of ``Curriculum``.
    """
    trials = [Trial(task=task, size=size, method=EPC, budget=budget, both=both) for size in sizes]
    return make(
        environment=task.name,
        params=trials[0].evaluated(),
        stages=tuple(
            Stage(
                agents=trial.size.agents,
                iterations=trial.iterations,
                params={"horizon": trial.size.horizon},
            )
            for trial in trials
        ),
        runs=budget.seeds,
        selected=min(SELECTED, budget.seeds),
        practice=Practice(
            warmup=WARM_UP * BATCH,
            evaluate_every=trials[0].every,
            episodes=EPISODES,
            learning=Hyperparameters(batch_size=BATCH),
        ),
    )


def stages(method: str, whole: Curriculum, directory: Path, clock: Clock) -> list[Cell]:
    """A cell for each stage."""
    parts = list[Cell]()
    for number, stage in enumerate(whole.stages, 1):
        until = replace(whole, stages=whole.stages[:number])
        parts.append(
            Cell(
                name=_name(method, whole.environment, stage.agents),
                settings=until.facts(),
                compute=partial(_train, until, place(whole, directory), clock),
                weight=weight(whole, stage),
                beside=True,
                after=parts[-1].name if parts else None,
            )
        )
    return parts


def place(whole: Curriculum, directory: Path) -> Path:
    """Directory of a curriculum's runs."""
    digest = digest_of([json.dumps(whole.facts())])
    return directory / "epc" / f"{whole.environment}-{digest}"


def weight(whole: Curriculum, stage: Stage) -> float:
    """Seconds of a stage's runs, in order of magnitude."""
    return whole.runs * stage.iterations * stage.agents**2 / 1_000


def _name(method: str, environment: str, agents: int) -> str:
    return f"grow-{environment}-{agents}-{method}"


def _train(curriculum: Curriculum, directory: Path, clock: Clock) -> JSON:
    """Curves of the last stage's runs, and the seconds of earlier stages."""
    runs = list(train(curriculum, directory, clock=clock))
    last = runs[-1].stage
    return {
        "runs": [_curve(run) for run in runs if run.stage == last],
        "before": sum(run.points[-1].seconds for run in runs if run.stage < last),
    }


def _curve(run: TrainedTeam) -> JSON:
    iterations, seconds, returns = map(list, zip(*run.points, strict=True))
    return {"iterations": iterations, "seconds": seconds, "returns": returns}
