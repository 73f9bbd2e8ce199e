"""``fullrank render``: animation of an episode of a run's policies."""

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from PIL import Image

from fullrank.cli.drawing import Moment, as_gif, frames
from fullrank.cli.options import InitialSeedOption, RunArgument, TrustOption
from fullrank.cli.policies import trained
from fullrank.cli.progress import counting
from fullrank.cli.runs import find_run, runnable_config
from fullrank.cli.say import say
from fullrank.common.errors import ConfigError, FullrankError
from fullrank.common.seeding import derive
from fullrank.config.tree import RunConfig
from fullrank.environments import variant_of
from fullrank.environments.particle.scene import Drawable
from fullrank.training.episodes import Episodes, team_returns
from fullrank.training.evaluation import Act, EpisodePlayer, Greedy, random_actions
from fullrank.wiring import environment_of

FRAME_MS = 120
LAST_FRAME_MS = 1500


def render(
    run: RunArgument,
    output: Annotated[
        Path | None,
        typer.Option("--output", help="GIF or MP4 to write; default: <run>/episode.gif."),
    ] = None,
    episode: Annotated[
        int, typer.Option(help="Index of the episode among those of `fullrank eval`.", min=0)
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
    if picture.suffix.lower() not in _WRITERS:
        raise FullrankError(f"cannot write {picture}: name it .gif or .mp4")
    environment = _environment(config)
    if with_random:
        who, act = "random", random_actions(environment.agents, seed=seed)
    else:
        policies = trained(directory, config)
        who, act = f"after {policies.iteration + 1} iterations", Greedy(policies.algorithm.actor)
    start = derive(seed, "evaluation", episode)
    moments = list(play(environment, act, seed=start))
    variant = variant_of(config.environment.name, config.environment.params)
    title = f"{config.environment.name} ({variant}) · {who}"
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


def play(environment: Drawable, act: Act, *, seed: int) -> Iterator[Moment]:
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


def save(pictures: list[Image.Image], path: Path) -> None:
    """Write an animation that pauses on its last picture, in the format of the path's suffix.

    Raises:
        ConfigError: The encoder is not installed.
        FullrankError: It cannot be written.
    """
    try:
        _WRITERS[path.suffix.lower()](pictures, path)
    except OSError as error:
        raise FullrankError(f"cannot write {path}: {error.strerror}") from error


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
