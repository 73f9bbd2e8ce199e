"""Tables I to IV: this reproduction's numbers next to the paper's."""

from collections.abc import Sequence

from fullrank_reproduction.darl1n.results import Results
from fullrank_reproduction.darl1n.training import epc_runs
from fullrank_reproduction.darl1n.training.budget import Darl1nBudget
from fullrank_reproduction.darl1n.training.convergence import LearningCurve, fixed_return
from fullrank_reproduction.darl1n.training.published import EPC, METHODS, TASKS, Darl1nTask
from fullrank_reproduction.darl1n.training.runs import TeamSpec, curves, seeds, trained

_HEADS = (
    "M",
    "method",
    "converged, s: published",
    "ours",
    "to the fixed return, s",
    "reward: published",
    "ours",
    "at the end",
    "s an iteration",
)


def of_learning(results: Results, budget: Darl1nBudget) -> str:
    """A table for each task."""
    every = trained(results, budget)
    parts = [
        _of_task(results, budget, task, [team for team in every if team.task is task])
        for task in TASKS
        if any(team.task is task for team in every)
    ]
    return "\n".join(parts)


def _of_task(
    results: Results, budget: Darl1nBudget, task: Darl1nTask, columns: Sequence[TeamSpec]
) -> str:
    lines = [
        f"\n**Table {task.table}**: {task.name}\n",
        "| " + " | ".join(_HEADS) + " |",
        "|" + "---|" * len(_HEADS),
    ]
    for team in columns:
        learnt = curves(results, budget, team)
        fixed = fixed_return(list(learnt.values()))
        for method in (name for name in METHODS if name in task.printed):
            said = team.printed(method)
            measured = _measured_cells(learnt.get(method), fixed)
            cells = (
                str(team.size.agents),
                method,
                f"{said.seconds:g}",
                *measured[:2],
                f"{said.reward:g}",
                *measured[2:],
            )
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join([*lines, *_before(results, columns), *_fewer(results, budget, columns)])


def _fewer(results: Results, budget: Darl1nBudget, columns: Sequence[TeamSpec]) -> list[str]:
    """Teams with fewer seeds than they are to have; empty if there are none."""
    there = {team.size.agents: len(seeds(results, budget, team)) for team in columns}
    few = [f"{found} with M = {agents}" for agents, found in there.items() if found < budget.seeds]
    return [f"\nOf {budget.seeds} seeds there are {', '.join(few)}."] if few else []


def _before(results: Results, columns: Sequence[TeamSpec]) -> list[str]:
    """Seconds of the stages before the teams of EPC; empty if there are none."""
    spent = {
        team.size.agents: epc_runs.before_s(results, team.task, team.size)
        for team in columns
        if epc_runs.names(team.task, team.size)[EPC] in results
    }
    said = [f"{seconds:.0f} s before M = {agents}" for agents, seconds in spent.items() if seconds]
    return [f"\nEPC's earlier stages took, all runs together: {', '.join(said)}."] if said else []


def _measured_cells(curve: LearningCurve | None, fixed: float) -> tuple[str, ...]:
    """Times to convergence and to the fixed return, returns then and at the end, and pace."""
    if curve is None:
        return ("-",) * 5
    settled, reached = curve.settled(), curve.reached(fixed)
    return (
        _when(curve, settled),
        _when(curve, reached),
        "-" if settled is None else f"{curve.returns[settled]:.1f}",
        f"{curve.end:.1f}",
        f"{curve.iteration_s:.3f}",
    )


def _when(curve: LearningCurve, index: int | None) -> str:
    if index is None:
        return "-"
    return f"{curve.seconds[index]:.1f} ({curve.iterations[index]:.0f})"
