"""``fullrank render``: animation of an episode of a run's policies, of worlds in the plane."""

import json
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from io import BytesIO
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Circle, Patch, Rectangle
from numpy.typing import NDArray
from PIL import Image

from fullrank.cli.options import MOST_KEY, InitialSeedOption, RunArgument, TrustOption
from fullrank.cli.policies import trained
from fullrank.cli.progress import counting
from fullrank.cli.runs import find_run, runnable_config
from fullrank.cli.say import say
from fullrank.common.durable import rename, writing
from fullrank.common.errors import ConfigError, FullrankError
from fullrank.common.seeding import derive
from fullrank.common.text import decimal, drawn
from fullrank.common.types import JSON
from fullrank.config.tree import RunConfig
from fullrank.environments import variant_of
from fullrank.environments.particle.scene import Drawable, Scene
from fullrank.training.episodes import Episodes, team_returns
from fullrank.training.evaluation import Act, EpisodePlayer, Greedy, random_actions
from fullrank.wiring.plugins import environment_of


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
    "wall": Style("#c8cdd3", 1.0, 1),
}
BARS = ("#009e73", "#56b4e9")
"""Colours of the bars of health and of shield."""
NARROWEST, WIDEST = 1.1, 2.0
"""Bounds of half the side of the visible square; a larger arena is shown whole."""
TRAIL = 12
"""Length of a trail, in steps."""
INCHES, DOTS = 4.0, 100
"""Side of the picture, and dots per inch."""
KEY = 0.1
"""Height of the key below the picture, as a share of the side."""
COLOURS, SAMPLED = 128, 6
"""Size of a GIF's palette, and about the number of pictures from which it is chosen."""


class Moment(NamedTuple):
    """One step of an episode."""

    scene: Scene
    earned: Mapping[str, float]
    """Return of each side up to this step."""


def frames(moments: Sequence[Moment], *, title: str) -> Iterator[Image.Image]:
    """One picture per moment, all of the same part of the plane."""
    half = _half_width([moment.scene for moment in moments])
    for step in range(len(moments)):
        recent = moments[max(0, step - TRAIL) : step + 1]
        yield _frame(recent, half, drawn(f"{title} · step {step}"))


def _half_width(scenes: Sequence[Scene]) -> float:
    """Half the side of a square around the origin that shows every body but far outliers.

    Walls count only as far as bodies come near them.
    """
    bodies = [kind != "wall" for kind in scenes[0].kinds]
    reach = max(
        float((np.abs(scene.position[bodies]).max(1) + scene.size[bodies]).max())
        for scene in scenes
    )
    if not all(bodies):
        reach += 1.0
    return 1.03 * min(max(reach, NARROWEST), max(WIDEST, scenes[0].half_width))


def _frame(recent: Sequence[Moment], half: float, title: str) -> Image.Image:
    below = INCHES * KEY if recent[-1].scene.key else 0.0
    height = INCHES * 1.1 + below
    figure = Figure(figsize=(INCHES, height), dpi=DOTS)
    FigureCanvasAgg(figure)
    margin = 0.022 * INCHES
    axes = figure.add_axes((0.02, (margin + below) / height, 0.96, 0.96 * INCHES / height))
    axes.set(xlim=(-half, half), ylim=(-half, half), xticks=[], yticks=[], aspect="equal")
    axes.spines[:].set_color("#c8cdd3")
    now = recent[-1]
    first, second = (1.0 - inches / height for inches in (0.154, 0.343))
    figure.text(0.02, first, title, fontsize=8.5, color="#222222", va="center")
    earned = drawn("   ".join(f"{side} {decimal(value)}" for side, value in now.earned.items()))
    figure.text(0.02, second, f"return   {earned}", fontsize=8, color="#555555", va="center")
    _draw_ground(axes, now.scene)
    _draw_trails(axes, [moment.scene for moment in recent])
    _draw_shots(axes, now.scene)
    _draw_bodies(axes, now.scene)
    _draw_bars(axes, now.scene, half)
    if now.scene.key:
        _draw_key(figure, now.scene)
    png = BytesIO()
    figure.savefig(png, format="png")
    return Image.open(png).convert("RGB")


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


def _draw_shots(axes: Axes, scene: Scene) -> None:
    """Draw a line in the colour of its side from each entity that acts on another."""
    ends = [scene.position[list(shot)] for shot in scene.shots]
    colours = [STYLES[scene.kinds[entity]].colour for entity, _ in scene.shots]
    axes.add_collection(LineCollection(ends, colors=colours, linewidths=1.6, zorder=3))


def _draw_bars(axes: Axes, scene: Scene, half: float) -> None:
    """Draw the remaining shares of each entity above it, one bar for each."""
    height = half / 50
    for entity, shares in scene.bars.items():
        (x, y), size = scene.position[entity], float(scene.size[entity])
        width = max(2.2 * size, half / 12)
        for number, (share, colour) in enumerate(zip(shares, BARS, strict=False)):
            place = (float(x) - width / 2, float(y) + size + height * (1 + 1.4 * number))
            axes.add_patch(Rectangle(place, width, height, fc="#dfe3e7", lw=0, zorder=7))
            axes.add_patch(Rectangle(place, width * share, height, fc=colour, lw=0, zorder=8))


def _draw_key(figure: Figure, scene: Scene) -> None:
    """Explain kinds, shots, bars and labels below the picture."""
    kinds = [kind for kind in scene.key if kind in STYLES]
    handles: list[Artist] = [
        Line2D([], [], marker="o", ls="", color=STYLES[kind].colour, alpha=STYLES[kind].alpha)
        for kind in kinds
    ]
    names = [scene.key[kind] for kind in kinds]
    handles.append(Line2D([], [], color="#222222", lw=1.6))
    names.append("fires or heals")
    for colour, name in zip(BARS, ("health", "shield"), strict=True):
        if name == "health" or any(len(shares) > 1 for shares in scene.bars.values()):
            handles.append(Patch(fc=colour))
            names.append(name)
    letters = "   ".join(f"{mark} {text}" for mark, text in scene.key.items() if mark not in kinds)
    figure.legend(
        handles, names, loc="lower center", bbox_to_anchor=(0.5, 0.035), ncols=len(names),
        frameon=False, fontsize=7, handlelength=1.0, handletextpad=0.4, columnspacing=1.0,
    )  # fmt: skip
    figure.text(0.5, 0.022, letters, fontsize=7, color="#555555", ha="center", va="center")


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
        if kind == "wall":
            corner = (float(place[0]) - size, float(place[1]) - size)
            axes.add_patch(
                Rectangle(corner, 2 * size, 2 * size, fc=style.colour, zorder=style.order, lw=0)
            )
            continue
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


FRAME_MS = 120
LAST_FRAME_MS = 1500


def render(
    run: RunArgument,
    output: Annotated[
        Path | None,
        typer.Option("--output", help="GIF, MP4 or JSON to write; default: <run>/episode.gif."),
    ] = None,
    episode: Annotated[
        int,
        typer.Option(
            help="Index of the episode among those of `fullrank eval`.", min=0, max=MOST_KEY
        ),
    ] = 0,
    seed: InitialSeedOption = 1000,
    with_random: Annotated[
        bool, typer.Option("--random", help="Play the random policy, from the same initial state.")
    ] = False,
    trust: TrustOption = None,
) -> None:
    """Render an episode, played greedily by a run's newest policies."""
    directory = find_run(run)
    config = runnable_config(directory, trust)
    picture = output or directory / "episode.gif"
    if picture.suffix.lower() not in (NUMBERS, *_WRITERS):
        raise FullrankError(f"cannot write {picture}: name it .gif, .mp4 or {NUMBERS}")
    environment = _environment(config)
    if with_random:
        who, act = "random", random_actions(environment.agents, seed=seed)
    else:
        policies = trained(directory, config)
        who, act = f"after {policies.iteration + 1} iterations", Greedy(policies.algorithm.actor)
    start = derive(seed, "evaluation", episode)
    moments = list(moments_of(environment, act, seed=start))
    variant = variant_of(config.environment.name, config.environment.params)
    title = f"{config.environment.name} ({variant}) · {who}"
    if picture.suffix.lower() == NUMBERS:
        with writing(picture):
            picture.write_text(json.dumps({"title": title, **numbers_of(moments)}))
        say(picture)
        return
    pictures = []
    with counting("drawing", len(moments), "pictures") as told:
        for each in frames(moments, title=title):
            pictures.append(each)
            told(len(pictures))
    save(pictures, picture)
    say(picture)


def _environment(config: RunConfig) -> Drawable:
    """One copy of the run's environment.

    Raises:
        FullrankError: The environment cannot be drawn.
    """
    environment = environment_of(config, copies=1)
    if not isinstance(environment, Drawable):
        environment.close()
        raise FullrankError(
            f"{config.environment.name} cannot be drawn; Fullrank's own worlds in the plane can"
        )
    return environment


def moments_of(environment: Drawable, act: Act, *, seed: int) -> Iterator[Moment]:
    """The moments of one episode, including the initial one."""
    player = EpisodePlayer(environment, act)
    episodes = player.episodes
    player.begin(np.array([0]), [seed])
    yield _moment(environment, episodes)
    while not episodes.ended[0]:
        player.advance()
        yield _moment(environment, episodes)


def _moment(environment: Drawable, episodes: Episodes) -> Moment:
    _, sides = team_returns(environment, episodes.earned)
    return Moment(environment.scene(0), {side: float(earned[0]) for side, earned in sides.items()})


NUMBERS = ".json"
"""Suffix of an episode as numbers, which the page of the dashboard draws."""
DIGITS = 4
"""Decimals of coordinates, which are of the order of 1."""


def numbers_of(moments: Sequence[Moment]) -> JSON:
    """The moments of an episode, the looks of its entities, and the part of the plane to show."""
    kinds = {kind for moment in moments for kind in moment.scene.kinds}
    return {
        "half_width": _half_width([moment.scene for moment in moments]),
        "styles": {kind: STYLES[kind]._asdict() for kind in sorted(kinds)},
        "bars": BARS,
        "moments": [
            {
                **moment.scene._asdict(),
                "earned": moment.earned,
                "size": moment.scene.size.round(DIGITS).tolist(),
                "position": moment.scene.position.round(DIGITS).tolist(),
            }
            for moment in moments
        ],
    }


def save(pictures: list[Image.Image], path: Path) -> None:
    """Write an animation that pauses on its last picture, in the format of the path's suffix.

    Raises:
        ConfigError: The encoder is not installed.
        FullrankError: It cannot be written.
    """
    scratch = path.with_name(f".{path.name}")
    with writing(path):
        try:
            _WRITERS[path.suffix.lower()](pictures, scratch)
            rename(scratch, path)
        finally:
            scratch.unlink(missing_ok=True)


def _gif(pictures: list[Image.Image], path: Path) -> None:
    """Write a GIF that repeats for ever."""
    first, *rest = as_gif(pictures)
    shown_ms = [FRAME_MS] * len(rest) + [LAST_FRAME_MS]
    first.save(path, save_all=True, append_images=rest, duration=shown_ms, loop=0)


def _mp4(pictures: list[Image.Image], path: Path) -> None:
    """Write H.264, which every browser plays."""
    try:
        import av
    except ImportError:
        raise ConfigError("MP4 needs PyAV: pip install 'fullrank[video]'") from None

    rest = [pictures[-1]] * (LAST_FRAME_MS // FRAME_MS - 1)
    with av.open(path, "w") as container:
        stream = container.add_stream("h264", rate=Fraction(1000, FRAME_MS))
        stream.width, stream.height = pictures[0].size
        stream.pix_fmt = "yuv420p"
        for picture in [*pictures, *rest]:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(np.asarray(picture))))
        container.mux(stream.encode())


_WRITERS = {".gif": _gif, ".mp4": _mp4}
