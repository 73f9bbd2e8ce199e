"""``fullrank render``: the episode drawn, the contents of a frame, and refusals."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import av
import numpy as np
import pytest
from PIL import Image, ImageSequence

from fullrank.algorithms import Player
from fullrank.algorithms.roles import Memory
from fullrank.cli.render import Moment, frames, moments_of
from fullrank.common.types import BoolArray, FloatArray
from fullrank.environments import make_environment
from fullrank.environments.particle.cooperative_navigation import CooperativeNavigation
from fullrank.environments.particle.environment import ParticleEnvironment
from fullrank.environments.particle.rover_tower import RoverTower
from fullrank.environments.particle.scene import Drawable, Scene
from fullrank.training.evaluation import Greedy, random_actions

from .conftest import Command, finished

SIDES = {"agent", "adversary"}


@pytest.fixture
def chase(tmp_path: Path) -> Path:
    return finished(tmp_path, environment__name="predator_prey", environment__horizon=3)


def test_an_episode_is_written_into_the_run_step_by_step(fullrank: Command, chase: Path) -> None:
    assert fullrank("render", str(chase)) == (0, f"{chase / 'episode.gif'}\n", "")
    with Image.open(chase / "episode.gif") as animation:
        assert animation.format == "GIF"
        assert len(list(ImageSequence.Iterator(animation))) == 4  # the start, and three steps
        assert animation.info["loop"] == 0


@pytest.mark.integration
def test_an_mp4_has_the_same_pictures_and_rests_on_the_last(fullrank: Command, chase: Path) -> None:
    film = chase / "episode.mp4"
    assert fullrank("render", str(chase), "--output", str(film)) == (0, f"{film}\n", "")
    fullrank("render", str(chase))
    with av.open(film) as container, Image.open(chase / "episode.gif") as animation:
        assert container.streams.video[0].codec_context.name == "h264"
        shown = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
        pictures = [np.array(each.convert("RGB")) for each in ImageSequence.Iterator(animation)]
    assert len(shown) == 4 + 11
    nearest = [
        int(np.argmin([np.abs(frame - picture.astype(float)).mean() for picture in pictures]))
        for frame in shown
    ]
    assert nearest == [*range(4), *[3] * 11]


def test_as_numbers_an_episode_has_every_moment_and_the_looks_of_what_is_in_it(
    fullrank: Command, chase: Path
) -> None:
    numbers = chase / "episode.json"
    assert fullrank("render", str(chase), "--output", str(numbers)) == (0, f"{numbers}\n", "")
    episode = json.loads(numbers.read_text())
    assert episode["title"].startswith("predator_prey (")
    assert set(episode["styles"]) == {"agent", "adversary", "obstacle"}
    assert len(episode["moments"]) == 4  # the start, and three steps
    for moment in episode["moments"]:
        assert len(moment["kinds"]) == len(moment["size"]) == len(moment["position"])
        assert np.abs(moment["position"]).max() < 10 * episode["half_width"]
    assert episode["moments"][-1]["earned"].keys() == {"predator", "prey"}


def test_without_the_extra_an_mp4_says_what_to_install(
    fullrank: Command, chase: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "av", None)
    code, _, error = fullrank("render", str(chase), "--output", str(chase / "film.mp4"))
    assert (code, "pip install 'fullrank[video]'" in error) == (2, True)


def test_the_episode_drawn_is_the_one_that_eval_plays(
    fullrank: Command, chase: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Moment] = []

    def keep(moments: list[Moment], *, title: str) -> Iterator[Image.Image]:
        seen.extend(moments)
        return frames(moments[:1], title=title)

    monkeypatch.setattr("fullrank.cli.render.frames", keep)
    assert fullrank("render", str(chase)).code == 0
    played = fullrank("eval", str(chase), "--episodes", "1", "--no-random", "--json").output
    sides = json.loads(played)["trained"]["sides"]
    assert seen[-1].earned == pytest.approx({side: sides[side]["mean"] for side in sides})


class Remembering:
    """An actor that counts its steps in its memory and does nothing."""

    def __init__(self) -> None:
        self.steps: list[float] = []

    def memory(self, copies: int) -> Memory:
        return (np.zeros((copies, 1), np.float32),)

    def act_greedily(
        self, observation: FloatArray, memory: Memory, *, available: BoolArray | None = None
    ) -> tuple[FloatArray, Memory]:
        (steps,) = memory
        self.steps += steps[:, 0].tolist()
        return np.zeros((len(observation), 15), np.float32), (steps + 1,)


def test_an_actor_keeps_its_memory_through_the_episode_drawn() -> None:
    environment = CooperativeNavigation(horizon=4).make(agents=3, copies=1)
    actor = Remembering()
    for _ in range(2):
        moments = list(moments_of(environment, Greedy(cast(Player, actor)), seed=1))
    assert len(moments) == 5
    assert actor.steps == [0, 1, 2, 3] * 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--output", "film.avi"), "cannot write film.avi: name it .gif, .mp4 or .json"),
        (("--output", "/nowhere/film.gif"), "cannot write /nowhere/film.gif: No such file"),
        (("--output", "/nowhere/film.mp4"), "cannot write /nowhere/film.mp4: No such file"),
    ],
)
def test_a_picture_that_cannot_be_written_is_one_line(
    fullrank: Command, chase: Path, words: tuple[str, str], message: str
) -> None:
    code, output, error = fullrank("render", str(chase), *words)
    assert (code, output) == (1, "")
    assert error.startswith(f"fullrank: {message}")
    assert len(error.splitlines()) == 1


def test_a_battle_explains_its_marks_and_shows_what_the_living_have_left() -> None:
    environment = make_environment("smac_lite", copies=1, map="2s3z")
    inner = random_actions(environment.agents, seed=1)
    *moments, last = moments_of(cast(Drawable, environment), inner, seed=3)
    assert any(moment.scene.shots for moment in moments)
    for scene in (moment.scene for moment in moments):
        living = {entity for entity, kind in enumerate(scene.kinds) if kind in SIDES}
        assert set(scene.bars) == set(scene.labels) == living
        assert {entity for entity, _ in scene.shots} <= living
        assert {*scene.labels.values(), *SIDES} <= set(scene.key)
        assert all(0.0 <= share <= 1.0 for shares in scene.bars.values() for share in shares)
    assert all(shares == (1.0, 1.0) for shares in moments[0].scene.bars.values())
    (plain,) = frames([Moment(Scene(("agent",), np.ones(1), np.zeros((1, 2))), {})], title="")
    (explained,) = frames([last], title="")
    assert explained.height > plain.height


def scene(*positions: tuple[float, float], kinds: tuple[str, ...]) -> Scene:
    return Scene(kinds=kinds, size=np.full(len(kinds), 0.2), position=np.array(positions))


def colour_at(picture: Image.Image, x: float, y: float, half: float) -> tuple[int, ...]:
    """Colour at the point (x, y) of the plane, in a picture of [-half, half] squared."""
    width, height = picture.size
    side = 0.96 * width
    column = 0.02 * width + (x + half) / (2 * half) * side
    row = height - (0.02 * height + (y + half) / (2 * half) * side)
    pixel = picture.getpixel((round(column), round(row)))
    assert isinstance(pixel, tuple)
    return pixel


def test_bodies_are_drawn_where_they_are_in_their_true_size() -> None:
    kinds = ("agent", "adversary", "goal")
    moment = Moment(scene((-0.5, 0), (0.5, 0), (0, 0.6), kinds=kinds), {"team": 0.0})
    (picture,) = frames([moment], title="")
    half = 1.1 * 1.03
    agent, adversary, goal, ground = (
        colour_at(picture, x, y, half)
        for x, y in ((-0.5, 0.0), (0.5, 0.0), (0.0, 0.6), (0.0, -0.5))
    )
    assert agent[2] > agent[0]  # blue
    assert adversary[0] > adversary[2]  # red
    assert goal[1] > max(goal[0], goal[2])  # green
    assert ground == (255, 255, 255)
    assert colour_at(picture, -0.5 + 0.17, 0, half) == agent
    assert colour_at(picture, -0.5 + 0.23, 0, half) == ground


def test_whoever_leaves_the_square_stays_in_the_picture() -> None:
    near = scene((0.0, 0.0), kinds=("agent",))
    left = scene((1.5, 0.0), kinds=("agent",))
    first, last = frames([Moment(near, {}), Moment(left, {})], title="")
    half = (1.5 + 0.2) * 1.03
    assert colour_at(first, 0.0, 0.0, half) == colour_at(last, 1.5, 0.0, half) != (255, 255, 255)


def test_rovers_are_linked_with_their_towers_and_goals() -> None:
    guidance: ParticleEnvironment = RoverTower().make(agents=4, copies=1)
    moments = list(moments_of(guidance, random_actions(guidance.agents, seed=0), seed=3))
    links = moments[0].scene.links
    assert sorted(rover for _, rover in links[:2]) == [0, 1]
    assert [tower for tower, _ in links[:2]] == [2, 3]
    assert {moments[0].scene.kinds[goal] for _, goal in links[2:]} == {"goal"}
    assert moments[0].scene.labels == {}
    assert set(moments[1].scene.labels) == {2, 3}


@pytest.mark.integration
def test_an_arena_can_be_drawn_and_a_lattice_cannot(fullrank: Command, tmp_path: Path) -> None:
    arena = finished(tmp_path / "arena", environment__name="food_collection")
    assert fullrank("render", str(arena)).code == 0
    lattice = finished(
        tmp_path / "lattice",
        environment__name="ising",
        environment__agents=9,
        learners=10,
        code__name="uncoded",
    )
    code, _, error = fullrank("render", str(lattice))
    assert (code, "ising cannot be drawn" in error) == (1, True)
