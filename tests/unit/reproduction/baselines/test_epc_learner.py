"""Learning of an EPC team: losses, gradients and targets."""

import numpy as np
import pytest
import torch
from torch import Tensor

from fullrank.algorithms.actor_critic import Hyperparameters
from fullrank.algorithms.base import layout_of
from fullrank.common.errors import ConfigError
from fullrank.common.types import FloatArray
from fullrank.environments import Environment, make_environment
from fullrank.environments.base import AgentSpec, Continuous
from fullrank.training.evaluation import Greedy
from fullrank.training.rollouts import Rollout
from fullrank_reproduction.baselines.epc import practice as module
from fullrank_reproduction.baselines.epc.networks import HIDDEN
from fullrank_reproduction.baselines.epc.practice import Learner
from fullrank_reproduction.baselines.epc.team import Team
from fullrank_reproduction.entities import entities_of

SEED = 2


def spins() -> Environment:
    return make_environment("ising", agents=9, copies=8)


def team_of(world: Environment) -> Team:
    return Team(world.agents, entities_of(world, "ising"), seed=SEED)


def played(world: Environment, team: Team, steps: int) -> FloatArray:
    rows = Rollout(world, team, layout_of(world.agents), seed=SEED).collect(steps, 0).rows
    assert not np.array_equal(rows[0], rows[1])
    return rows


def learner_of(world: Environment, team: Team, *, discount: float = 0.95) -> Learner:
    config = Hyperparameters(discount=discount)
    return Learner(team, layout_of(world.agents), config, seed=SEED)


def values(team: Team, learner: Learner, rows: FloatArray) -> Tensor:
    """Values of transitions by the critics, shape (M, B)."""
    data = learner._transitions(rows, 0)
    joint = data.observation.with_actions(data.action)
    parameters = {name: own.rows.online for name, own in team.networks.items()}
    others = team.encode(parameters["encoder"], joint)
    return team.values(parameters["critic"], joint, others)


@pytest.mark.thorough
def test_a_team_learns_what_pays_and_does_it() -> None:
    world = spins()
    team, layout = team_of(world), layout_of(world.agents)
    rows = played(world, team, 4)
    first = rows[:, layout.action].reshape(len(rows), 9, 2)[..., 0]
    rows[:, layout.reward] = np.where(np.arange(9) < 4, first, -first)
    learner = learner_of(world, team, discount=0.0)
    for iteration in range(40):
        learner.update(rows, iteration=iteration)
    error = values(team, learner, rows) - torch.from_numpy(rows[:, layout.reward]).t()
    assert float(error.abs().mean()) < 0.1
    chosen = Greedy(team)(rows[:, layout.observation]).reshape(len(rows), 9, 2)
    assert (chosen[:, :4, 0] == 1).all()
    assert (chosen[:, 4:, 1] == 1).all()


def test_what_targets_say_of_the_next_state_is_discounted() -> None:
    world = spins()
    team = team_of(world)
    rows = played(world, team, 2)
    learner = learner_of(world, team, discount=0.5)
    critics = team.networks["critic"].rows.target
    critics.zero_()
    critics[:, -1] = torch.arange(9.0)  # the bias of the value
    expected = learner._expected(learner._transitions(rows, 0))
    reward = torch.from_numpy(rows[:, layout_of(world.agents).reward]).t()
    torch.testing.assert_close(expected, reward + 0.5 * torch.arange(9.0)[:, None])


def test_an_agent_learns_from_its_own_reward_alone() -> None:
    world = spins()
    layout = layout_of(world.agents)
    rows = played(world, team_of(world), 2)
    richer = rows.copy()
    richer[:, layout.reward][:, 3] += 1.0
    teams = []
    for batch in (rows, richer):
        teams.append(team_of(world))
        learner_of(world, teams[-1]).update(batch, iteration=0)
    for name in ("encoder", "critic"):
        one, other = (team.parameters()[name] for team in teams)
        changed = (one != other).any(axis=1)
        assert changed.tolist() == [agent == 3 for agent in range(9)]


def test_the_update_does_not_depend_on_how_transitions_are_chunked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = spins()
    rows, gradients = played(world, team_of(world), 2), []
    for entries in (module.CHUNK_ENTRIES, 5 * 9 * 9 * 5 * HIDDEN):
        monkeypatch.setattr(module, "CHUNK_ENTRIES", entries)
        team = team_of(world)
        learner_of(world, team).update(rows, iteration=0)
        gradients.append([own.rows.moment for own in team.networks.values()])
    for whole, chunked in zip(*gradients, strict=True):
        assert whole.abs().max() > 1e-4
        torch.testing.assert_close(whole, chunked, atol=1e-6, rtol=1e-3)


def test_losses_are_means_over_transitions() -> None:
    world = spins()
    rows, moments = played(world, team_of(world), 2), []
    for batch in (rows, np.concatenate([rows, rows])):
        team = team_of(world)
        learner_of(world, team, discount=0.0).update(batch, iteration=0)
        moments.append(team.networks["encoder"].rows.moment)
    assert moments[0].abs().max() > 1e-4
    torch.testing.assert_close(moments[0], moments[1], atol=1e-6, rtol=1e-3)


def test_an_update_does_not_move_a_variable_by_more_than_its_clip() -> None:
    world = spins()
    team, layout = team_of(world), layout_of(world.agents)
    rows = played(world, team, 2)
    rows[:, layout.reward] = 1e4
    learner_of(world, team).update(rows, iteration=0)
    for part in team.networks["critic"]._parts(team.networks["critic"].rows.moment).values():
        # The first moment is a tenth of the gradient.
        lengths = 10 * part.flatten(1).norm(dim=1)
        assert (lengths <= 0.5 + 1e-5).all()
    assert lengths.min() > 0.49


def test_continuous_actions_are_refused() -> None:
    world = spins()
    spec = AgentSpec(name="a", observation_size=5, action=Continuous((0.0,), (1.0,)))
    with pytest.raises(ConfigError, match="discrete"):
        Team([spec] * 9, entities_of(world, "ising"), seed=0)
