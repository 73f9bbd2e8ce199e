"""Tables I to IV: ours beside the paper's."""

from collections.abc import Sequence

from fullrank_reproduction.darl1n.readings import Found
from fullrank_reproduction.darl1n.training import growing
from fullrank_reproduction.darl1n.training.convergence import Curve, fixed_return
from fullrank_reproduction.darl1n.training.effort import Effort
from fullrank_reproduction.darl1n.training.plan import Team, curves, teams
from fullrank_reproduction.darl1n.training.published import METHODS, TASKS, Task

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


def of_learning(found: Found, effort: Effort) -> str:
    """A table for each task."""
    every = teams(effort)
    parts = [
        _of_task(found, effort, task, [each for each in every if each.task is task])
        for task in TASKS
    ]
    return "\n".join(parts)


def _of_task(found: Found, effort: Effort, task: Task, columns: Sequence[Team]) -> str:
    lines = [
        f"\n**Table {task.table}**: {task.name}\n",
        "| " + " | ".join(_HEADS) + " |",
        "|" + "---|" * len(_HEADS),
    ]
    for team in columns:
        learnt = curves(found, effort, team)
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


def _before(found: Found, columns: Sequence[Team]) -> list[str]:
    """What the stages before the teams of EPC took, where there are any."""
    spent = {team.size.agents: growing.before_s(found, team.task, team.size) for team in columns}
    said = [f"{seconds:.0f} s before M = {agents}" for agents, seconds in spent.items() if seconds]
    return [f"\nEPC's earlier stages took, all runs together: {', '.join(said)}."] if said else []


def _ours(curve: Curve | None, fixed: float) -> tuple[str, ...]:
    """Time to convergence and to the fixed return, the reward then, and last, and the pace."""
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
