"""Samples, updates and acting of DARL1N."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import pytest
import torch
from torch.nn.functional import linear, relu

from fullrank.algorithms import Algorithm, EnvironmentSpec, algorithms, environment_spec
from fullrank.algorithms.darl1n import DARL1N
from fullrank.common.errors import ConfigError
from fullrank.common.seeding import stream
from fullrank.common.types import FloatArray, IntArray, UnitIndex
from fullrank.environments import make_environment
from fullrank.environments.neighbourhood import (
    Samples,
    from_episodes,
    from_resets,
    make_neighbourhood,
)
from fullrank.networks.fused.darl1n import MOST, act_individually
from fullrank.networks.fused.mlp import Mlp
from fullrank.networks.fused.network_group import NetworkGroup
from fullrank.networks.heads import keys_of
from fullrank.networks.parameters import GroupedParameters

NOTHING = np.empty((0, 0), np.float32)


def make(
    environment: str,
    agents: int,
    *,
    batch: int = 40,
    samples: Literal["resets", "episodes"] = "resets",
    **params: bool,
) -> Algorithm:
    config = DARL1N(batch_size=batch, hidden=16, clip_norm=1e6, samples=samples)
    team = make_environment(environment, agents=agents, copies=1).agents
    spec = EnvironmentSpec(
        agents=tuple(team),
        neighbourhoods=lambda: make_neighbourhood(environment, agents=agents, **params),
    )
    return config.make(spec, seed=0, device="cpu")


def up(who: IntArray, observation: FloatArray) -> FloatArray:
    """Actions that identify their agent."""
    return np.stack([who, np.ones_like(who)], axis=1).astype(np.float32)


def samples(agent: int, *, size: int = 5) -> Samples:
    world = make_neighbourhood("ising", agents=16)
    return from_resets(world, agent, size, generator=stream(0, "x"), act=up, act_next=up)


def test_a_critic_sees_the_own_action_first_and_then_its_neighbours_by_index() -> None:
    made = samples(5)
    assert made.seen.shape == made.seen_next.shape == (5, 5 + 5 * 2)
    for seen in (made.seen, made.seen_next):
        assert np.array_equal(seen[:, 5:].reshape(5, 5, 2)[0, :, 0], [5, 1, 4, 6, 9])


def test_samples_of_episodes_go_on_where_the_last_step_led() -> None:
    world, generator = make_neighbourhood("ising", agents=9), np.random.default_rng(0)

    def act(who: IntArray, observation: FloatArray) -> FloatArray:
        return generator.dirichlet(np.ones(2), size=len(who)).astype(np.float32)

    made = from_episodes(world, 4, 70, generator=stream(0, "x"), act=act, act_next=up)
    copies = 3  # 70 samples of 25 steps
    before, after = (seen[:, :5] for seen in (made.seen, made.seen_next))
    assert len(before) == len(made.reward) == 70
    assert np.array_equal(after[:-copies], before[copies:])
    assert not np.array_equal(after, before)


def test_samples_of_episodes_begin_anew_with_every_key() -> None:
    world = make_neighbourhood("food_collection", agents=3)

    def made(key: int) -> Samples:
        def act(who: IntArray, observation: FloatArray) -> FloatArray:
            return np.full((len(who), 5), 0.2, np.float32)

        return from_episodes(world, 1, 30, generator=stream(0, "x", key), act=act, act_next=act)

    one, same, other = made(1), made(1), made(2)
    assert np.array_equal(one.seen, same.seen)
    assert np.array_equal(one.seen_next, same.seen_next)
    assert np.array_equal(one.reward, same.reward)
    assert not np.array_equal(one.seen, other.seen)
    assert not np.array_equal(one.reward, other.reward)


def test_absent_neighbours_leave_zeros_in_the_critic_s_input() -> None:
    world = make_neighbourhood("food_collection", agents=3, distance=0.0)
    made = from_resets(
        world,
        1,
        7,
        generator=stream(0, "x"),
        act=lambda who, observation: np.ones((len(who), 5), np.float32),
        act_next=lambda who, observation: np.full((len(who), 5), 2.0, np.float32),
    )
    observed = world.agents[0].observation_size
    assert (made.seen[:, observed : observed + 5] == 1.0).all()
    assert (made.seen_next[:, observed : observed + 5] == 2.0).all()
    assert not made.seen[:, observed + 5 :].any()


def test_each_row_is_acted_on_by_the_policy_of_its_agent() -> None:
    policy, generator = Mlp(0, 3, 8, 2), np.random.default_rng(0)
    parameters = torch.from_numpy(generator.standard_normal((4, policy.end), dtype=np.float32))
    who = np.concatenate([np.full(MOST + 3, 2), generator.integers(0, 4, 50)])
    generator.shuffle(who)
    observation = generator.standard_normal((len(who), 3), dtype=np.float32)
    actions = act_individually(
        policy,
        parameters,
        who,
        observation,
        lambda outputs: outputs,
        rows=np.arange(len(parameters)),
    )
    for agent, seen, action in zip(who, observation, actions, strict=True):
        expected = perceptron(policy, parameters[agent], torch.from_numpy(seen)[None])[0]
        np.testing.assert_allclose(action, expected.numpy(), rtol=1e-4, atol=1e-4)


def test_no_two_threads_share_the_matrix_of_a_few_rows() -> None:
    policy, before, pieces = Mlp(0, 3, 8, 2), torch.get_num_threads(), list[int]()
    parameters = torch.ones((4, policy.end))

    def choose(outputs: torch.Tensor) -> torch.Tensor:
        pieces.append(len(outputs))
        return outputs

    torch.set_num_threads(2)
    try:
        for who in ([2], [1, 3, 3], [0, 1, 2, 3]):
            observation = np.ones((len(who), 3), np.float32)
            actions = act_individually(
                policy,
                parameters,
                np.array(who),
                observation,
                choose,
                rows=np.arange(len(parameters)),
            )
            assert len(actions) == len(who)
    finally:
        torch.set_num_threads(before)
    assert pieces == [2, 2, 4]


def perceptron(net: Mlp, row: torch.Tensor, inputs: torch.Tensor) -> torch.Tensor:
    """The same network by PyTorch's layers, on a flat row."""
    for number, layer in enumerate(net.layers):
        whole = layer.of(row[None])[0]
        inputs = linear(inputs, whole[:, :-1], whole[:, -1])
        inputs = relu(inputs) if number < 2 else inputs
    return inputs


def computed(algorithm: Algorithm, units: Sequence[UnitIndex]) -> dict[UnitIndex, bytes]:
    updates = algorithm.gradients.compute(NOTHING, units, iteration=2)
    return {unit: update.tobytes() for unit, update in updates}


@pytest.mark.integration
def test_a_learner_needs_the_policies_of_those_near_its_unit_alone() -> None:
    algorithm, blind = make("ising", 25), make("ising", 25)
    needed = {algorithm.problem.sections[section] for section in algorithm.problem.needs(12)}
    assert len([section for section in needed if section.role == "policy"]) == 13
    assert [section.agents[0] for section in needed if section.role == "critic"] == [12]
    for section in set(blind.problem.sections) - needed:
        blind.parameters.view(section.id)[:] = np.nan
    assert computed(blind, [12]) == computed(algorithm, [12])


@pytest.mark.parametrize("samples", ["resets", "episodes"])
@pytest.mark.parametrize(
    ("environment", "agents", "params"),
    [("wireless", 9, {"simultaneous": True}), ("grassland", 6, {"contacts": True})],
)
def test_the_other_tasks_of_neighbours_learn_too(
    environment: str, agents: int, params: dict[str, bool], samples: Literal["resets", "episodes"]
) -> None:
    algorithm = make(environment, agents, samples=samples, **params)
    together = computed(algorithm, range(agents))
    assert computed(algorithm, [1])[1] == together[1]
    assert all(np.frombuffer(update, np.float32).any() for update in together.values())


def test_an_environment_without_local_interaction_is_refused() -> None:
    config = algorithms.build("darl1n")
    agents = make_environment("cooperative_navigation", agents=3, copies=1).agents
    with pytest.raises(ConfigError, match="cooperative_navigation has no neighbour interaction"):
        config.problem(
            environment_spec(agents, environment="cooperative_navigation", count=3, params={})
        )


def independent(
    *, clip_norm: float = 0.5, batch: int = 40, samples: Literal["resets", "episodes"] = "resets"
) -> Algorithm:
    config = DARL1N(
        batch_size=batch, hidden=16, clip_norm=clip_norm, samples=samples, data="independent"
    )
    team = make_environment("ising", agents=9, copies=1).agents
    environment = environment_spec(team, environment="ising", count=9, params={})
    return config.make(environment, seed=0, device="cpu")


def of_row(algorithm: Algorithm, row: int, units: Sequence[UnitIndex]) -> dict[UnitIndex, bytes]:
    updates = algorithm.gradients.compute(NOTHING, units, iteration=2, row=row)
    return {unit: update.tobytes() for unit, update in updates}


@pytest.mark.parametrize("samples", ["resets", "episodes"])
def test_each_row_has_samples_of_its_own_and_the_same_ones_again(
    samples: Literal["resets", "episodes"],
) -> None:
    algorithm = independent(samples=samples)
    first, second = (of_row(algorithm, row, range(9)) for row in (0, 1))
    assert all(first[unit] != second[unit] for unit in range(9))
    assert of_row(independent(samples=samples), 0, [7, 2]) == {u: first[u] for u in (7, 2)}


@pytest.mark.parametrize("samples", ["resets", "episodes"])
def test_an_update_of_a_row_is_that_of_nobody_in_particular_but_for_every_draw(
    samples: Literal["resets", "episodes"], monkeypatch: pytest.MonkeyPatch
) -> None:
    algorithm, keys = independent(samples=samples), []
    expected = computed(algorithm, [4])

    def without_the_row(seed: int, purpose: str, *key: int) -> np.random.Generator:
        keys.append((purpose, key))
        return stream(seed, purpose, key[0], key[-1])

    def keys_without_the_row(
        seed: int, purpose: str, *indices: int, last: Sequence[int]
    ) -> torch.Tensor:
        keys.extend((purpose, (*indices, each)) for each in last)
        return keys_of(seed, purpose, indices[0], last=last)

    monkeypatch.setattr("fullrank.networks.fused.darl1n.stream", without_the_row)
    monkeypatch.setattr("fullrank.networks.fused.gradients.keys_of", keys_without_the_row)
    assert of_row(algorithm, 6, [4]) == expected
    drawn = {purpose for purpose, _ in keys}
    assert drawn == {"local_world", "local_action", "target_action", "policy_action"}
    assert all(key == (2, 6, 4) for _, key in keys)


def test_independent_updates_are_clipped_once_they_are_decoded() -> None:
    free, clipped = independent(clip_norm=1e6), independent(clip_norm=1e-3)
    assert of_row(free, 3, [0, 5]) == of_row(clipped, 3, [0, 5])
    updates = free.gradients.compute(NOTHING, range(9), iteration=2, row=3)
    decoded = np.stack([update for _, update in updates])
    before = decoded.copy()
    clipped.optimiser.step(decoded)
    assert np.array_equal(decoded, before)
    free.optimiser.step(by_hand(free, decoded, norm=1e-3))
    for name, moment in free.optimiser.state().items():
        state = clipped.optimiser.state()
        np.testing.assert_allclose(state[name], moment, rtol=1e-4, atol=1e-9)


def by_hand(algorithm: Algorithm, decoded: FloatArray, *, norm: float) -> FloatArray:
    """Weights and biases of each layer clipped separately."""
    assert isinstance(algorithm.parameters, GroupedParameters)
    (group,), clipped = algorithm.parameters.groups, decoded.copy()
    assert isinstance(group, NetworkGroup)
    for layer in (*group.critic.layers, *group.policy.layers):
        view = clipped[:, layer.start : layer.end].reshape(-1, layer.outputs, layer.inputs + 1)
        for part in (view[:, :, :-1], view[:, :, -1:]):
            part *= np.minimum(1.0, norm / np.sqrt((part**2).sum(axis=(1, 2), keepdims=True)))
        clipped[:, layer.start : layer.end] = view.reshape(len(view), -1)
    return clipped
