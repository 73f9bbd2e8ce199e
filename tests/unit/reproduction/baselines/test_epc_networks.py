"""The networks of EPC accept any number of entities in any order, and ignore absent ones."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.func import functional_call

from fullrank.environments import make_environment
from fullrank.environments.arena.environment import Arena
from fullrank_reproduction.baselines.epc.entity_observations import (
    EntityObservations,
    ObservationParser,
    Others,
)
from fullrank_reproduction.baselines.epc.networks import WIDTH, Critic, EntityNetwork, SideEncoders
from fullrank_reproduction.baselines.epc.team import Copies, Team
from fullrank_reproduction.entities import entities_of

SIDES = [slice(0, 2), slice(2, 5)]


def drawn(network: nn.Module) -> nn.Module:
    """A network with all parameters drawn, so that none is zero by initialisation."""
    generator = torch.Generator().manual_seed(0)
    for part in network.parameters():
        nn.init.normal_(part, std=0.3, generator=generator)
    return network


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def observations(seed: int = 0) -> EntityObservations:
    """Views of five agents in three observations: four entities of one kind, six of another."""
    present = numbers(3, 5, 6, seed=seed + 1) > 0
    return EntityObservations(
        numbers(3, 5, 4, seed=seed),
        (
            Others(numbers(3, 5, 4, 2, seed=seed + 2), torch.ones(3, 5, 4, dtype=torch.bool)),
            Others(numbers(3, 5, 6, 3, seed=seed + 3), present),
        ),
    )


def team(name: str, agents: int) -> Team:
    params = {} if name == "ising" else {"distance": 100.0}
    world = make_environment(name, agents=agents, copies=1, **params)
    return Team(world.agents, entities_of(world, name), seed=1)


@given(order=st.permutations(range(6)))
def test_the_order_of_entities_does_not_matter(order: list[int]) -> None:
    network, seen = drawn(EntityNetwork(4, [2, 3], 5)), observations()
    features, present = seen.kinds[1]
    shuffled = Others(features[:, :, order], present[:, :, order])
    changed = network(seen._replace(kinds=(seen.kinds[0], shuffled)))
    torch.testing.assert_close(changed, network(seen))
    moved = Others(features[:, :, order] + 0.1, present[:, :, order])
    assert not torch.allclose(network(seen._replace(kinds=(seen.kinds[0], moved))), changed)


def test_what_is_not_there_has_no_influence() -> None:
    network, seen = drawn(EntityNetwork(4, [2, 3], 5)), observations()
    features, present = seen.kinds[1]
    noise = torch.where(present.unsqueeze(-1), features, 1e6 * numbers(3, 5, 6, 3, seed=9))
    changed = network(seen._replace(kinds=(seen.kinds[0], Others(noise, present))))
    assert torch.equal(changed, network(seen))


def test_empty_places_have_no_influence() -> None:
    network, seen = drawn(EntityNetwork(4, [2, 3], 5)), observations()
    features, present = seen.kinds[1]
    empty = torch.zeros(3, 5, 7, dtype=torch.bool)
    longer = Others(
        torch.cat([features, torch.ones(3, 5, 7, 3)], 2), torch.cat([present, empty], 2)
    )
    changed = network(seen._replace(kinds=(seen.kinds[0], longer)))
    torch.testing.assert_close(changed, network(seen))


def test_where_nobody_is_there_outputs_and_gradients_are_numbers() -> None:
    network, seen = drawn(EntityNetwork(4, [2], 5)), observations()
    features, present = seen.kinds[0]
    alone = EntityObservations(seen.own, (Others(features, torch.zeros_like(present)),))
    outputs = network(alone)
    outputs.sum().backward()
    assert outputs.isfinite().all()
    assert all(
        part.grad is not None and part.grad.isfinite().all() for part in network.parameters()
    )


def test_a_critic_is_not_told_of_itself_and_cannot_tell_those_of_a_side_apart() -> None:
    network, mine = drawn(Critic(SIDES, 4, [2, 3])), torch.arange(5) == 2
    own = EntityObservations(
        observations().own[:, 2], tuple(Others(f[:, 2], p[:, 2]) for f, p in observations().kinds)
    )
    others = numbers(3, 5, WIDTH, seed=5)
    value = network(own, others, mine)
    torch.testing.assert_close(network(own, others[:, [1, 0, 2, 4, 3]], mine), value)
    assert not torch.allclose(network(own, others[:, [3, 1, 2, 0, 4]], mine), value)
    assert torch.equal(network(own, torch.where(mine[:, None], 1e3, others), mine), value)


def test_a_critic_attends_to_each_side_without_the_agent_itself() -> None:
    network, mine = Critic(SIDES, 4, [2, 3]), torch.arange(5) == 2
    asked: list[list[bool]] = []
    for pool in network.pools:
        pool.register_forward_pre_hook(lambda _, given: asked.append(given[2].tolist()))
    own = EntityObservations(
        observations().own[:, 2], tuple(Others(f[:, 2], p[:, 2]) for f, p in observations().kinds)
    )
    network(own, numbers(3, 5, WIDTH), mine)
    assert asked == [[True, True], [False, True, True]]


def test_the_parser_masks_the_absent() -> None:
    arena = make_environment("food_collection", agents=8, copies=2, distance=0.9, half_width=1.0)
    assert isinstance(arena, Arena)
    parser = ObservationParser(entities_of(arena, ""), agents=8)
    food, others = parser.parse(torch.from_numpy(arena.reset([1, 2], [0, 1]))).kinds
    assert food.present.all()
    place = np.moveaxis(arena.crowd.position, 0, -1)
    near = np.linalg.norm(place[:, :, None] - place[:, None], axis=-1) <= 0.9
    assert 0 < near.mean() < 1
    assert others.present.sum(-1).tolist() == (near.sum(-1) - 1).tolist()
    lattice = make_environment("wireless", agents=9, copies=1)
    (users,) = (
        ObservationParser(entities_of(lattice, ""), agents=9).parse(torch.zeros(1, 9 * 18)).kinds
    )
    assert users.present.sum(-1).tolist() == [[3, 5, 3, 5, 8, 5, 3, 5, 3]]


def test_what_everybody_does_is_encoded_agent_by_agent_with_the_network_of_its_side() -> None:
    encoders = SideEncoders(SIDES, 4, [2, 3])
    drawn(encoders)
    whole = encoders(observations())
    for agent in range(5):
        seen = EntityObservations(
            observations().own[:, agent],
            tuple(Others(f[:, agent], p[:, agent]) for f, p in observations().kinds),
        )
        alone = encoders.encoders[int(agent >= 2)](seen)
        torch.testing.assert_close(whole[:, agent], alone)


def test_agents_together_compute_what_each_would_alone() -> None:
    def make() -> nn.Module:
        return EntityNetwork(4, [2, 3], 5)

    copies = Copies(make, 5)
    copies.initialise(3, "policy")
    together = copies.compute(copies.rows.online, observations(), along=[1])
    network = make()
    shapes = {name: part.shape for name, part in network.named_parameters()}
    for agent, row in enumerate(copies.rows.online):
        parts = row.split([shape.numel() for shape in shapes.values()])
        named = {name: part.view(shapes[name]) for name, part in zip(shapes, parts, strict=True)}
        own = EntityObservations(
            observations().own[:, agent],
            tuple(Others(f[:, agent], p[:, agent]) for f, p in observations().kinds),
        )
        torch.testing.assert_close(together[agent], functional_call(network, named, (own,)))


@pytest.mark.parametrize(
    ("name", "small", "large"), [("food_collection", 3, 6), ("grassland", 4, 8), ("ising", 9, 16)]
)
def test_an_agent_has_as_many_parameters_in_a_team_of_any_size(
    name: str, small: int, large: int
) -> None:
    for before, after in zip(
        team(name, small).parameters().values(),
        team(name, large).parameters().values(),
        strict=True,
    ):
        assert before.shape[1] == after.shape[1]
        assert (len(before), len(after)) == (small, large)
