"""The pictures of training."""

from pathlib import Path

from matplotlib.axes import Axes

from fullrank.reproduction import pictures
from fullrank.reproduction.darl1n.training.plan import Found, Team, curves, teams
from fullrank.reproduction.darl1n.training.published import OURS
from fullrank.reproduction.darl1n.training.trials import Effort

COLOURS = {"maddpg": "#0072b2", "mfac": "#e69f00", "darl1n": "#009e73"}


def draw_learning(found: Found, effort: Effort, path: Path) -> None:
    """Returns against processor seconds: a line for each task, a column for each size."""
    every = teams(effort)
    columns = effort.sizes if effort.sizes > 1 else 2
    lines = -(-len(every) // columns)
    figure = pictures.blank(width=max(11.0, 4.2 * columns), height=3.1 * lines + 0.6)
    for axes, team in zip(figure.subplots(lines, columns).flat, every, strict=True):
        _draw_team(axes, found, effort, team)
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    figure.savefig(path, dpi=pictures.DPI)


def _draw_team(axes: Axes, found: Found, effort: Effort, team: Team) -> None:
    learnt = curves(found, effort, team)
    for method in OURS:
        curve = learnt[method]
        axes.plot(curve.seconds, curve.returns, color=COLOURS[method], linewidth=1.8, label=method)
    axes.set_title(str(team).replace("_", " "), fontsize=11)
    axes.set_xlabel("processor seconds")
    axes.set_ylabel("return of the learners' side")
    pictures.tidy(axes)
