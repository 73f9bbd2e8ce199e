"""Teams that see images: how rows hold them, what convolutions compute, and what is learned."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fullrank.algorithms import EnvironmentSpec
from fullrank.algorithms.roles import RecurrentLayers
from fullrank.common.errors import ConfigError
from fullrank.common.types import Array, FloatArray
from fullrank.config import load
from fullrank.config.plugins import ON_POLICY
from fullrank.environments import AgentSpec, Discrete, make_environment
from fullrank.export.parity import LIMIT, check_recurrent
from fullrank.export.policy import Form
from fullrank.export.recurrent import PlayStep, RecurrentGraph, RecurrentPolicy, RecurrentTensors
from fullrank.local import LocalRun
from fullrank.networks.images import ImageEncoder, image_of, layers_for, unpacked
from fullrank.replay.episodes import packed
from fullrank.training.evaluation import Greedy, evaluate
from fullrank.training.heads import Heads
from fullrank.wiring.containers import container_of, head_size_of

GAMES = "tests.unit.environments.games"
TINY: dict[str, Any] = {
    "iterations": 4,
    "environment.name": f"{GAMES}:Screens",
    "environment.copies": 4,
    "algorithm.hidden": 16,
    "algorithm.batch_size": 4,
    "algorithm.micro_batches": 2,
}


def run(**options: Any) -> LocalRun:
    chosen = {key.replace("__", "."): value for key, value in options.items()}
    name = chosen["algorithm.name"]
    on_policy = {"algorithm.epochs": 4} if name != "coma" else {}
    more = on_policy if name in ON_POLICY else {"collect.warmup": 100}
    return LocalRun(load(options=TINY | more | chosen).check().config, coded=False)


def viewer(*shape: int, name: str = "viewer") -> AgentSpec:
    image = (shape[0], shape[1], shape[2]) if shape else None
    size = int(np.prod(shape)) if shape else 3
    return AgentSpec(name=name, observation_size=size, action=Discrete(2), image=image)


@pytest.mark.parametrize("shape", [(5, 5, 3), (5, 7, 1), (2, 2, 2)])
def test_every_byte_of_an_image_comes_back_from_its_row(shape: tuple[int, int, int]) -> None:
    bytes_ = np.random.default_rng(0).integers(0, 256, (4, int(np.prod(shape))))
    entries = packed(bytes_.astype(np.float32))
    assert entries.shape[1] == -(-bytes_.shape[1] // 3)
    np.testing.assert_array_equal(unpacked(torch.from_numpy(entries), shape).numpy(), bytes_)


@pytest.mark.parametrize("shape", [(9, 6, 2), (40, 36, 3)])
def test_features_are_those_of_two_convolutions_and_a_layer(shape: tuple[int, int, int]) -> None:
    torch.manual_seed(0)
    encoder = ImageEncoder(shape, 6)
    images = np.random.default_rng(0).integers(0, 256, (3, *shape))
    entries = packed(images.reshape(3, -1).astype(np.float32))
    found = encoder(torch.from_numpy(entries)).detach().numpy()
    signal = images / 255.0
    for (_, side, stride), layer in zip(layers_for(shape), encoder.convolutions, strict=True):
        weight, bias = (part.detach().numpy().astype(float) for part in layer.parameters())
        signal = np.maximum(convolved(signal, weight, side, stride) + bias, 0.0)
    weight, bias = (part.detach().numpy().astype(float) for part in encoder.last.parameters())
    flat = signal.transpose(0, 3, 1, 2).reshape(3, -1)
    np.testing.assert_allclose(found, np.maximum(flat @ weight.T + bias, 0.0), rtol=1e-4, atol=1e-5)


def convolved(images: Array, weight: Array, side: int, stride: int) -> Array:
    """The products of (rows, height, width, channels) with (outputs, channels, side, side)."""
    _, height, width, _ = images.shape
    return np.stack(
        [
            np.stack(
                [
                    np.einsum("nyxc,ocyx->no", images[:, y : y + side, x : x + side], weight)
                    for x in range(0, width - side + 1, stride)
                ],
                1,
            )
            for y in range(0, height - side + 1, stride)
        ],
        1,
    )


def test_convolutions_see_images_of_one_shape_that_are_large_enough() -> None:
    small, large, other = viewer(4, 9, 3), viewer(9, 9, 3), viewer(9, 8, 3, name="other")
    assert image_of("auto", [large, large]) == (9, 9, 3)
    assert image_of("mlp", [large]) is None
    assert image_of("gru", [large]) is None
    for agents in ([small], [large, other], [large, viewer()]):
        assert image_of("auto", agents) is None
        with pytest.raises(ConfigError, match=r"algorithm\.model = 'cnn' needs .* use 'mlp'"):
            image_of("cnn", agents)


@pytest.mark.parametrize("name", ["ippo", "mappo", "coma", "pqn", "vdn", "iql"])
def test_rows_hold_the_images_that_were_played_in_a_third_of_their_entries(name: str) -> None:
    played = run(algorithm__name=name)
    layout = played.training.problem.episodes
    assert layout is not None
    collected = played.training.collector.collection.collect(0).rows
    size = 8 * 9 * 2
    assert layout.observation == slice(0, 2 * size // 3) == layout.state
    seen: FloatArray = collected[:, layout.observation].reshape(-1, size // 3)
    images = unpacked(torch.from_numpy(seen), (8, 9, 2)).numpy().reshape(-1, 8, 9, 2)
    bright = images.reshape(-1, 2, 4, 9, 2)[..., :8, :].reshape(-1, 2, 4, 2, 4, 2)
    quarters = bright.mean((2, 4, 5)).reshape(-1, 4)
    assert (np.sort(quarters, 1)[:, 2] < 70).all()
    assert (quarters.max(1) > 150).all()


def test_images_of_several_shapes_are_kept_as_they_are() -> None:
    played = run(algorithm__name="ippo", environment__name=f"{GAMES}:MixedScreens")
    layout = played.training.problem.episodes
    assert layout is not None
    assert layout.observation_sizes == (8 * 9 * 2, 8 * 8 * 2)
    assert not layout.image_sizes
    assert len(played.train()) == 4


@pytest.mark.parametrize(
    "options",
    [
        {"algorithm__name": "pqn", "algorithm__mixer": "monotonic"},
        {"algorithm__name": "qmix"},
        {"algorithm__name": "qplex"},
    ],
)
def test_a_mixer_by_the_state_is_refused_where_there_are_images_alone(
    options: dict[str, Any],
) -> None:
    with pytest.raises(ConfigError, match=r"mixes by a global state, .* use vdn, iql, or pqn"):
        run(**options)
    flat = run(**options, algorithm__model="mlp").training.problem.episodes
    assert flat is not None
    assert flat.observation_sizes == (8 * 9 * 2,) * 2


def test_containers_learn_from_images_as_numbers_alone() -> None:
    config, heads = load(options=TINY | {"algorithm.name": "vdn"}).config, Heads(1)
    seen = EnvironmentSpec(agents=(viewer(9, 9, 3),))
    with pytest.raises(ConfigError, match=r"images: set algorithm\.model = 'mlp'"):
        head_size_of(config, seen)
    with pytest.raises(ConfigError, match=r"images: set algorithm\.model = 'mlp'"):
        container_of(config, seen, number=0, heads=heads)
    flat = replace(config.algorithm, params={**config.algorithm.params, "model": "mlp"})
    assert head_size_of(replace(config, algorithm=flat), seen) == 2 * (16 + 1)


@pytest.mark.integration
@pytest.mark.parametrize(
    "options",
    [
        {"algorithm__name": "ippo", "algorithm__batch_size": 16},
        pytest.param(
            {
                "algorithm__name": "mappo",
                "algorithm__batch_size": 16,
                "algorithm__layer_norm": True,
                "algorithm__share": "none",
            },
            marks=pytest.mark.thorough,
        ),
        {
            "algorithm__name": "pqn",
            "algorithm__discount": 0.5,
            "algorithm__exploration_steps": 1000,
        },
        pytest.param(
            {
                "iterations": 400,
                "algorithm__name": "coma",
                "algorithm__hidden": 32,
                "algorithm__discount": 0.0,
            },
            marks=pytest.mark.thorough,
        ),
        pytest.param(
            {
                "algorithm__name": "vdn",
                "algorithm__batch_size": 16,
                "algorithm__discount": 0.5,
                "algorithm__exploration_steps": 1000,
            },
            marks=pytest.mark.thorough,
        ),
    ],
)
def test_a_team_learns_from_what_it_sees(options: dict[str, Any]) -> None:
    """Two viewers of six steps: blind play earns 3, a team that sees the quarters 12."""
    chosen = {"iterations": 160, "environment__copies": 16, "algorithm__learning_rate": 0.003}
    learned = run(**chosen | options)
    learned.train()
    environment = make_environment(f"{GAMES}:Screens", copies=4)
    played = evaluate(environment, Greedy(learned.training.algorithm.actor), 16, seed=1)
    assert played.returns.mean() > 10.0


@pytest.mark.parametrize(
    "options",
    [
        {"algorithm__name": "ippo", "algorithm__layer_norm": True},
        {"algorithm__name": "mappo", "algorithm__recurrent": True},
        {"algorithm__name": "coma", "algorithm__layer_norm": True, "algorithm__recurrent": True},
        {"algorithm__name": "pqn", "algorithm__last_action": True},
        {"algorithm__name": "iql", "algorithm__layer_norm": True},
    ],
    ids=["ippo", "memory", "coma", "pqn", "iql"],
)
@pytest.mark.parametrize("form", [RecurrentTensors, RecurrentGraph])
def test_policies_that_see_images_are_exported(
    form: Form[RecurrentPolicy, PlayStep], options: dict[str, Any], tmp_path: Path
) -> None:
    learned = run(**options)
    learned.train()
    actor, plays = learned.training.algorithm.actor, []
    policies = []
    for number, agent in enumerate(learned.training.collector.agents):
        layers = actor.policy(number)
        assert isinstance(layers, RecurrentLayers)
        policies.append(RecurrentPolicy(agent=agent, layers=layers))
        form.save(policies[-1], tmp_path / str(number), facts={"kind": "test"})
        plays.append(form.load(policies[-1], tmp_path / str(number)))
    assert check_recurrent(policies, plays, actor, seed=0) < LIMIT
