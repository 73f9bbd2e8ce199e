"""Style shared by the figures of all papers."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

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
    "hedged": "#222222",
}
"""Colours by code."""
DPI = 130


@contextmanager
def panels(
    path: Path,
    titles: Sequence[str],
    *,
    columns: int = 2,
    size: tuple[float, float] = (5.5, 3.4),
    beneath: int = 0,
    title: str = "",
) -> Iterator[list[Axes]]:
    """A picture of panels, which is written at the end.

    Args:
        path: File of the picture.
        titles: Titles of the panels.
        columns: Panels in a row.
        size: Width and height of a panel in inches.
        beneath: Columns of one legend of all panels beneath them; 0: no such legend.
        title: Title of the picture.
    """
    columns = min(columns, len(titles))
    rows = -(-len(titles) // columns)
    figure = Figure(figsize=(size[0] * columns, size[1] * rows), layout="constrained")
    FigureCanvasAgg(figure)
    if title:
        figure.suptitle(title, fontsize=12)
    every = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axes in every[len(titles) :]:
        axes.set_axis_off()
    every = every[: len(titles)]
    for axes, text in zip(every, titles, strict=True):
        axes.set_title(text, fontsize=10)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", alpha=0.25, linewidth=0.6)
    yield every
    if beneath:
        drawn = {
            label: handle
            for axes in every
            for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
        }
        figure.legend(drawn.values(), drawn.keys(), loc="outside lower center", ncols=beneath)
    figure.savefig(path, dpi=DPI)
