"""EPC: losses, networks for teams of any size, and the curriculum."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch

from fullrank.algorithms import Algorithm, EnvironmentSpec
from fullrank.common.errors import ConfigError
from fullrank.common.types import JSON, FloatArray
from fullrank.environments import make_environment
from fullrank.environments.arena.environment import Arena
from fullrank.local import LocalRun
from fullrank.replay.layout import Layout
from fullrank_darl1n import population, trials
from fullrank_darl1n.epc import EntityMADDPG, EntityNetwork, entities
from fullrank_darl1n.learning_claims import judge_learning
from fullrank_darl1n.population import Population, Team, begin, grown, networks_of
from fullrank_darl1n.published import EPC, FOOD, SCALES, TASKS, TeamSpec
from fullrank_darl1n.runs import learners
from fullrank_darl1n.trials import Trial
from fullrank_papers.claims import Held

TINY = replace(SCALES["smoke"], every=1, batch=4, grown=1, populations=1)
UNLIMITED = 100.0


def arena(agents: int, copies: int = 1, distance: float = UNLIMITED) -> Arena:
    made = make_environment("food_collection", agents=agents, copies=copies, distance=distance)
    assert isinstance(made, Arena)
    return made


def team(agents: int, *, seed: int = 0, discount: float = 0.95) -> tuple[Algorithm, Layout]:
    spec = EnvironmentSpec(agents=arena(agents).agents)
    config = EntityMADDPG(discount=discount)
    return config.make(spec, seed=seed, device="cpu"), spec.layout


def rows_of(agents: int, layout: Layout, count: int = 32) -> FloatArray:
    """Transitions of living agents from random states; one-hot actions, rewards of nothing."""
    generator, world = np.random.default_rng(0), arena(agents, count)
    rows = np.zeros((count, layout.row_size), np.float32)
    for part, seed in ((layout.observation, 0), (layout.next_observation, 1)):
        rows[:, part] = world.reset([seed * count + copy for copy in range(count)], range(count))
    choice = generator.integers(0, 5, (count, agents))
    rows[:, layout.action] = np.eye(5, dtype=np.float32)[choice].reshape(count, -1)
    rows[:, layout.alive] = 1.0
    return rows


def view(algorithm: Algorithm, role: str, agent: int) -> FloatArray:
    (section,) = [
        each for each in algorithm.problem.sections if (each.role, *each.agents) == (role, agent)
    ]
    return algorithm.parameters.view(section.id)


def test_losses_are_those_of_maddpg() -> None:
    """Critics that say the same of everything leave the formulas to be read off."""
    algorithm, layout = team(2)
    rows = rows_of(2, layout)
    rows[:, layout.reward] = 0.01 * np.arange(32)[:, None] * (1.0, -1.0)
    for role, value in (("critic", 3.0), ("target_critic", 3.1)):
        view(algorithm, role, 1)[:] = 0.0
        view(algorithm, role, 1)[-1] = value  # the bias of the last layer
    algorithm.parameters.written()
    ((_, update),) = algorithm.gradients.compute(rows, [1], iteration=0)
    critic, policy = np.split(update, [view(algorithm, "critic", 1).size])
    error = rows[:, layout.reward][:, 1].mean() + 0.95 * 3.1 - 3.0
    assert critic[-1] == pytest.approx(-2 * error, rel=1e-4)
    assert not critic[:-1].any()
    assert 0 < np.abs(policy).max() < 1e-2  # by the penalty alone: such a value has no slope
    view(algorithm, "policy", 1)[:] = 0.0
    algorithm.parameters.written()
    ((_, update),) = algorithm.gradients.compute(rows, [1], iteration=0)
    assert not update[critic.size :].any()


def test_an_agent_learns_from_its_own_reward_alone() -> None:
    algorithm, layout = team(3)
    rows = rows_of(3, layout)
    richer = rows.copy()
    richer[:, layout.reward.start + 1] += 1.0
    one, other = (
        dict(algorithm.gradients.compute(each, range(3), iteration=0)) for each in (rows, richer)
    )
    assert [not np.array_equal(one[unit], other[unit]) for unit in range(3)] == [False, True, False]


def test_units_have_the_bits_that_they_would_have_alone() -> None:
    algorithm, layout = team(3)
    rows = rows_of(3, layout)
    together = dict(algorithm.gradients.compute(rows, range(3), iteration=4))
    ((_, alone),) = algorithm.gradients.compute(rows, [2], iteration=4)
    assert np.array_equal(together[2], alone)


def test_a_team_learns_what_pays_and_does_it() -> None:
    algorithm, layout = team(2, discount=0.0)
    rows = rows_of(2, layout)
    first = rows[:, layout.action].reshape(len(rows), 2, 5)[..., 0]
    rows[:, layout.reward] = first * (1.0, -1.0)
    updates = np.zeros((2, algorithm.problem.vector_size), np.float32)
    for iteration in range(40):
        for unit, update in algorithm.gradients.compute(rows, [0, 1], iteration=iteration):
            updates[unit, : len(update)] = update
        algorithm.optimiser.step(updates)
    action, _ = algorithm.actor.act_greedily(rows[:, layout.observation], ())
    chosen = action.reshape(len(rows), 2, 5)
    assert (chosen[:, 0, 0] == 1).all()
    assert not chosen[:, 1, 0].any()


def test_entities_stand_where_the_arena_puts_them() -> None:
    world = arena(4)
    world.reset([3], [0])
    world.crowd.velocity[:] = np.random.default_rng(0).normal(size=(2, 1, 4))
    seen = torch.from_numpy(world.observation()).view(4, -1)
    own, food, others = (part.numpy() for part in entities(seen))
    position, velocity = world.crowd.position[:, 0].T, world.crowd.velocity[:, 0].T
    np.testing.assert_allclose(own, np.c_[velocity, position, np.ones(4)], rtol=1e-6)
    for agent in range(4):
        places = world.crowd.food[:, 0].T - position[agent]
        nearest = places[np.argsort((places**2).sum(axis=1))]
        np.testing.assert_allclose(food[agent], nearest, rtol=1e-5, atol=1e-6)
        around = [j for j in range(4) if j != agent]
        truth = np.c_[position[around] - position[agent], velocity[around], np.ones(3)]
        np.testing.assert_allclose(others[agent], truth, rtol=1e-5, atol=1e-6)


def test_empty_places_weigh_nothing_in_a_team_of_any_size() -> None:
    torch.manual_seed(0)
    network = EntityNetwork(0, 5)
    small = torch.randn(7, 3, 8 * 3)
    own, food, others = entities(small)
    large = torch.zeros(7, 3, 8 * 6)
    parts = (
        *(own, torch.cat([food, torch.zeros_like(food[..., :1])], -1).flatten(-2)),
        *(torch.zeros(7, 3, 9), others[..., :2].flatten(-2), torch.zeros(7, 3, 6)),
        *(others[..., 2:4].flatten(-2), torch.zeros(7, 3, 6), others[..., 4], torch.zeros(7, 3, 3)),
    )
    torch.cat(parts, -1, out=large)
    torch.testing.assert_close(network(large), network(small))
    alone = torch.zeros(7, 3, 8 * 6)
    alone[..., :5] = own
    assert network(alone).isfinite().all()
    assert not torch.allclose(network(alone), network(small))


def test_those_who_do_not_see_all_are_refused() -> None:
    nearsighted = make_environment("food_collection", agents=6, copies=1, food_seen=2)
    with pytest.raises(ConfigError, match="see all"):
        EntityMADDPG().make(EnvironmentSpec(agents=nearsighted.agents), seed=0, device="cpu")


def test_a_larger_team_begins_with_the_agents_of_its_parents_in_turn() -> None:
    first, second, child = team(3, seed=1)[0], team(3, seed=2)[0], team(6)[0]
    begin(child, [networks_of(first), networks_of(second)])
    for role in ("policy", "critic"):
        for agent in range(6):
            parent = first if agent < 3 else second
            assert np.array_equal(view(child, role, agent), view(parent, role, agent % 3))
            assert np.array_equal(view(child, f"target_{role}", agent), view(child, role, agent))


def test_pairs_of_the_best_runs_are_the_parents_of_the_next_stage(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scores = iter([0.0, 1.0, 9.0, 5.0, 9.0, 3.0, *[0.0, 1.0] * 3])  # before and after each run
    teams, parents = list[Team](), list[list[int]]()

    def trained(algorithm: Algorithm) -> Team:
        teams.append(networks_of(algorithm))
        return teams[-1]

    def begun(algorithm: Algorithm, pair: Sequence[Team]) -> None:
        parents.append([number for each in pair for number, t in enumerate(teams) if t is each])
        begin(algorithm, pair)

    monkeypatch.setattr(trials, "_return", lambda trial, run, number: next(scores))
    monkeypatch.setattr(population, "networks_of", trained)
    monkeypatch.setattr(population, "begin", begun)
    own = Population(TINY, 0)
    stages = own.cell().compute()
    assert parents == [[], [], [], [1, 1], [1, 2], [2, 2]]
    assert [run["returns"] for run in stages["3"]] == [[9.0, 5.0], [9.0, 3.0], [0.0, 1.0]]
    assert [run["iterations"] for run in stages["6"]] == [[0, 1]] * 3
    assert grown({own.name: stages}, TINY, TeamSpec(FOOD, FOOD.sizes[1])) == [stages["6"][0]]
    assert not grown({own.name: stages}, TINY, TeamSpec(FOOD, FOOD.sizes[2]))


def test_epc_collects_as_its_authors_do() -> None:
    scale = replace(SCALES["standard"], grown=30)
    trial = Trial(task=FOOD, size=FOOD.sizes[1], method=EPC, scale=scale)
    config = trial.config()
    assert (config.environment.copies, config.collect.steps) == (25, 4)
    assert config.collect.warmup == 25_600
    assert LocalRun(config, coded=False).training.algorithm.problem.data.batch_size == 1_024


def curve(end: float, pace: float) -> JSON:
    seconds = [0.0, pace, 2 * pace, 3 * pace]
    return {"iterations": [0, 30, 60, 90], "seconds": seconds, "returns": [-50.0, end, end, end]}


def judged(ends: Sequence[float], *, pace: float) -> list[Held]:
    """Verdicts where DARL1N ends at 0 after 3 s of each agent's machine, and EPC at ``ends``."""
    scale = replace(SCALES["paper"], replayed={}, sizes=2, grown=90, populations=len(ends))
    found: dict[str, JSON] = {
        each.name: curve(0.0, each.size.agents) for task in TASKS for each in learners(scale, task)
    }
    for seed, end in enumerate(ends):
        runs = {str(agents): [curve(end, pace * agents)] for agents in (3, 6)}
        found[Population(scale, seed).name] = runs
    return [each.held for each in judge_learning(found, scale) if "EPC" in each.claim][:2]


def test_claims_on_epc_are_judged_seed_by_seed_and_larger_teams_are_censored() -> None:
    assert judged([-30.0, -31.0, -29.0], pace=9.0) == [Held.UNDECIDED, Held.HELD]
    assert judged([30.0, 31.0, 29.0], pace=0.1) == [Held.NOT_HELD, Held.NOT_HELD]
    assert judged([-30.0], pace=0.1) == [Held.UNDECIDED] * 2
