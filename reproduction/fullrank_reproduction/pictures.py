"""Style shared by the figures of all reproductions."""

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

COLOURS = {
    "uncoded": "#9aa5b1",
    "mds": "#0072b2",
    "harmonic": "#003f5c",
    "random_sparse": "#56b4e9",
    "replication": "#e69f00",
    "ldpc": "#cc79a7",
    "ldgm": "#cc79a7",
    "cyclic": "#009e73",
    "auto": "#d55e00",
}
"""Colours by code."""
DPI = 130


def blank(*, width: float, height: float) -> Figure:
    """An empty figure, size in inches, without a display."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def tidy(axes: Axes) -> None:
    """Remove the box and draw faint horizontal lines."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", alpha=0.25, linewidth=0.6)
