"""Tables I to IV: this reproduction's numbers next to the paper's."""

from collections.abc import Sequence

from fullrank_reproduction.darl1n.results import Results
from fullrank_reproduction.darl1n.training import epc_runs
from fullrank_reproduction.darl1n.training.budget import Budget
from fullrank_reproduction.darl1n.training.convergence import Curve, fixed_return
from fullrank_reproduction.darl1n.training.published import METHODS, TASKS, Task
from fullrank_reproduction.darl1n.training.runs import Team, curves, teams

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


def of_learning(found: Results, budget: Budget) -> str:
    """A table for each task."""
    every = teams(budget)
    parts = [
        _of_task(found, budget, task, [each for each in every if each.task is task])
        for task in TASKS
    ]
    return "\n".join(parts)


def _of_task(found: Results, budget: Budget, task: Task, columns: Sequence[Team]) -> str:
    lines = [
        f"\n**Table {task.table}**: {task.name}\n",
        "| " + " | ".join(_HEADS) + " |",
        "|" + "---|" * len(_HEADS),
    ]
    for team in columns:
        learnt = curves(found, budget, team)
        fixed = fixed_return(list(learnt.values()))
        for method in (each for each in METHODS if each in task.printed):
            said = team.printed(method)
            ours = _ours(learnt.get(method), fixed)
            cells = (
                str(team.size.agents),
                method,
                f"{said.seconds:g}",
                *ours[:2],
                f"{said.reward:g}",
                *ours[2:],
            )
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join([*lines, *_before(found, columns)])


def _before(found: Results, columns: Sequence[Team]) -> list[str]:
    """Seconds of the stages before the teams of EPC; empty if there are none."""
    spent = {team.size.agents: epc_runs.before_s(found, team.task, team.size) for team in columns}
    said = [f"{seconds:.0f} s before M = {agents}" for agents, seconds in spent.items() if seconds]
    return [f"\nEPC's earlier stages took, all runs together: {', '.join(said)}."] if said else []


def _ours(curve: Curve | None, fixed: float) -> tuple[str, ...]:
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


def _when(curve: Curve, index: int | None) -> str:
    if index is None:
        return "-"
    return f"{curve.seconds[index]:.1f} ({curve.iterations[index]:.0f})"
