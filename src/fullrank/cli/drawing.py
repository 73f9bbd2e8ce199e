"""Frames of particle worlds: bodies to scale, their trails and the returns so far."""

from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.patches import Circle, Rectangle
from numpy.typing import NDArray
from PIL import Image

from fullrank.environments.particle.scene import Scene


class Style(NamedTuple):
    """Appearance of one kind of entity."""

    colour: str
    alpha: float
    order: int
    """Drawing order; higher ones lie above."""


STYLES = {
    "agent": Style("#0072b2", 0.85, 4),
    "adversary": Style("#d55e00", 0.85, 4),
    "speaker": Style("#7b3fa0", 0.9, 4),
    "food": Style("#009e73", 0.95, 3),
    "dead": Style("#8a929b", 0.35, 4),
    "goal": Style("#009e73", 0.95, 3),
    "landmark": Style("#8a929b", 0.9, 3),
    "obstacle": Style("#4a4f55", 0.9, 2),
}
NARROWEST, WIDEST = 1.1, 2.0
"""Bounds of half the side of the visible square; a larger arena is shown whole."""
TRAIL = 12
"""Length of a trail, in steps."""
INCHES, DOTS = 4.0, 100
"""Side of the picture, and dots per inch."""
COLOURS, SAMPLED = 128, 6
"""Size of a GIF's palette, and about the number of pictures from which it is chosen."""


class Moment(NamedTuple):
    """One step of an episode."""

    scene: Scene
    earned: Mapping[str, float]
    """Return of each side up to this step."""


def frames(moments: Sequence[Moment], *, title: str) -> list[Image.Image]:
    """One picture per moment, all of the same part of the plane."""
    half = _half_width([moment.scene for moment in moments])
    return [
        _frame(moments[max(0, step - TRAIL) : step + 1], half, f"{title} · step {step}")
        for step in range(len(moments))
    ]


def _half_width(scenes: Sequence[Scene]) -> float:
    """Half the side of a square around the origin that shows every body but far outliers."""
    reach = max(float((np.abs(scene.position).max(1) + scene.size).max()) for scene in scenes)
    return 1.03 * min(max(reach, NARROWEST), max(WIDEST, scenes[0].half_width))


def _frame(recent: Sequence[Moment], half: float, title: str) -> Image.Image:
    figure = Figure(figsize=(INCHES, INCHES * 1.1), dpi=DOTS)
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0.02, 0.02, 0.96, 0.96 / 1.1))
    axes.set(xlim=(-half, half), ylim=(-half, half), xticks=[], yticks=[], aspect="equal")
    axes.spines[:].set_color("#c8cdd3")
    now = recent[-1]
    figure.text(0.02, 0.965, title, fontsize=8.5, color="#222222", va="center")
    earned = "   ".join(f"{side} {value:.1f}" for side, value in now.earned.items())
    figure.text(0.02, 0.922, f"return   {earned}", fontsize=8, color="#555555", va="center")
    _draw_ground(axes, now.scene)
    _draw_trails(axes, [moment.scene for moment in recent])
    _draw_bodies(axes, now.scene)
    drawn = BytesIO()
    figure.savefig(drawn, format="png")
    return Image.open(drawn).convert("RGB")


def _draw_ground(axes: Axes, scene: Scene) -> None:
    """Draw the square of initial positions, the zones of landmarks and the links of entities."""
    half = scene.half_width
    square = Rectangle((-half, -half), 2 * half, 2 * half, fill=False, ec="#dfe3e7", lw=1.0)
    square.set_linestyle((0, (4, 3)))
    axes.add_patch(square)
    for entity, radius in scene.zones.items():
        axes.add_patch(_circle(scene.position[entity], radius, fc="#009e73", alpha=0.10, lw=0))
    links = [scene.position[list(link)] for link in scene.links]
    axes.add_collection(LineCollection(links, colors="#9aa2ab", linewidths=0.8, linestyles=":"))


def _draw_trails(axes: Axes, scenes: Sequence[Scene]) -> None:
    """Draw fading trails of the entities that moved; food has none."""
    path = np.stack([scene.position for scene in scenes])
    food = np.array([kind == "food" for kind in scenes[-1].kinds])
    moved = np.flatnonzero((path != path[-1]).any(axis=(0, 2)) & ~food)
    steps = np.stack([path[:-1], path[1:]], axis=2)  # (steps, n, both ends, 2)
    fading = np.linspace(0.1, 0.6, len(steps))
    for entity in moved:
        colour = STYLES[scenes[-1].kinds[entity]].colour
        axes.add_collection(
            LineCollection(list(steps[:, entity]), colors=colour, alpha=fading, linewidths=1.6)
        )


def _draw_bodies(axes: Axes, scene: Scene) -> None:
    for entity, kind in enumerate(scene.kinds):
        style, place, size = STYLES[kind], scene.position[entity], float(scene.size[entity])
        axes.add_patch(
            _circle(place, size, fc=style.colour, alpha=style.alpha, zorder=style.order, lw=0)
        )
        if kind == "goal":
            axes.add_patch(_circle(place, size + 0.05, fill=False, ec=style.colour, lw=1.2))
        if text := scene.labels.get(entity):
            x, y = place
            axes.text(
                x, y, text, color="white", fontsize=7, ha="center", va="center_baseline", zorder=6
            )


def _circle(place: NDArray[np.float64], radius: float, **look: Any) -> Circle:
    x, y = place
    return Circle((float(x), float(y)), radius, **look)


def as_gif(pictures: Sequence[Image.Image]) -> list[Image.Image]:
    """The pictures with a common palette, which avoids flicker."""
    some = [np.asarray(picture) for picture in pictures[:: max(1, len(pictures) // SAMPLED)]]
    palette = Image.fromarray(np.concatenate(some)).quantize(COLOURS)
    return [picture.quantize(palette=palette, dither=Image.Dither.NONE) for picture in pictures]
