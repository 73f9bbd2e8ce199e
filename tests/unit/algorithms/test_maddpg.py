"""Configuration, initial parameters, acting and learning of MADDPG, and learning of MFAC."""

import numpy as np
import pytest

from fullrank.algorithms import Algorithm, EnvironmentSpec
from fullrank.algorithms.maddpg import MADDPG
from fullrank.algorithms.mfac import MFAC
from fullrank.common.errors import ConfigError
from fullrank.common.types import FloatArray
from fullrank.environments import AgentSpec, Continuous, Discrete
from fullrank.replay.layout import Layout


def team(agents: int = 2, *, relaxed: bool = True) -> tuple[AgentSpec, ...]:
    return tuple(
        AgentSpec(name=f"agent_{i}", observation_size=4, action=Discrete(3, relaxed=relaxed))
        for i in range(agents)
    )


def make(specs: tuple[AgentSpec, ...], *, seed: int = 0, **params: float) -> Algorithm:
    config = MADDPG(**{"batch_size": 64, "hidden": 16, **params})  # type: ignore[arg-type]
    return config.make(EnvironmentSpec(agents=specs), seed=seed, device="cpu")


def view(algorithm: Algorithm, role: str) -> FloatArray:
    """The first agent's network."""
    sections = algorithm.problem.sections
    return algorithm.parameters.view(
        next(s.id for s in sections if (s.role, s.agents) == (role, (0,)))
    )


def explore(algorithm: Algorithm, observation: FloatArray, *, iteration: int = 0) -> FloatArray:
    alive = np.ones((len(observation), len(algorithm.problem.units)), bool)
    actions, _ = algorithm.actor.act(observation, (), iteration=iteration, step=0, alive=alive)
    return actions


@pytest.mark.parametrize(
    "params",
    [{"batch_size": 0}, {"hidden": 0}, {"hidden_layers": 0}, {"clip_norm": 0.0}],
)
def test_impossible_configurations_are_refused(params: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=next(iter(params))):
        MADDPG(**params)  # type: ignore[arg-type]


def test_a_side_that_nobody_plays_for_cannot_learn_by_ddpg() -> None:
    config = MADDPG(ddpg_sides=("taem",))
    for build in (
        config.problem,
        lambda environment: config.make(environment, seed=0, device="cpu"),
    ):
        with pytest.raises(ConfigError, match="no agent plays for 'taem'; did you mean 'team'"):
            build(EnvironmentSpec(agents=team()))


def test_ddpg_needs_nothing_of_the_other_agents() -> None:
    problem = MADDPG(ddpg_sides=("team",), hidden=16).problem(EnvironmentSpec(agents=team(4)))
    for unit in range(4):
        needed = [problem.sections[section] for section in problem.needs(unit)]
        assert {section.agents for section in needed} == {(unit,)}
        roles = sorted(section.role for section in needed)
        assert roles == ["critic", "policy", "target_critic", "target_policy"]


def test_a_mean_field_critic_grows_with_observations_alone() -> None:
    environments = {agents: EnvironmentSpec(agents=team(agents)) for agents in (3, 4)}
    config = MFAC(hidden=16)
    sizes = {
        agents: config.problem(environment).unit_sizes[0]
        for agents, environment in environments.items()
    }
    assert sizes[4] - sizes[3] == 16 * 4


def test_targets_start_equal_and_agents_start_different() -> None:
    algorithm = make(team())
    views = {
        (s.role, *s.agents): algorithm.parameters.view(s.id) for s in algorithm.problem.sections
    }
    for unit in range(2):
        for net in ("policy", "critic"):
            assert np.array_equal(views[net, unit], views[f"target_{net}", unit])
    assert not np.array_equal(views["policy", 0], views["policy", 1])
    other = make(team(), seed=1)
    assert not np.array_equal(algorithm.parameters.view(0), other.parameters.view(0))


def test_an_agent_keeps_its_initial_policy_when_others_join() -> None:
    assert np.array_equal(view(make(team(2)), "policy"), view(make(team(3)), "policy"))


def test_only_relaxed_environments_are_given_soft_actions() -> None:
    observation = np.zeros((50, 8), np.float32)
    soft = explore(make(team()), observation)
    hard = explore(make(team(relaxed=False)), observation)
    assert ((soft > 0) & (soft < 1)).any()
    assert set(np.unique(hard)) == {0.0, 1.0}
    assert np.array_equal(soft.reshape(50, 2, 3).argmax(2), hard.reshape(50, 2, 3).argmax(2))


def test_the_gumbel_sample_follows_the_policy() -> None:
    algorithm = make(team(1, relaxed=False))
    policy = view(algorithm, "policy")
    policy[:] = 0.0
    policy[[-1, -1 - 17]] = np.log([4.0, 2.0])  # biases of the last two of three outputs
    algorithm.parameters.written()
    observation = np.zeros((20_000, 4), np.float32)
    taken = explore(algorithm, observation)
    np.testing.assert_allclose(taken.mean(0), [1 / 7, 2 / 7, 4 / 7], atol=0.02)


def test_continuous_exploration_has_the_configured_spread() -> None:
    specs = (AgentSpec(name="a", observation_size=4, action=Continuous((-2.0,), (6.0,))),)
    algorithm = make(specs, exploration_noise=0.05)
    view(algorithm, "policy")[:] = 0.0
    algorithm.parameters.written()
    observation = np.zeros((20_000, 4), np.float32)
    taken = explore(algorithm, observation)
    assert taken.mean() == pytest.approx(2.0, abs=0.01)
    assert taken.std() == pytest.approx(0.05 * 4, rel=0.05)
    greedy, _ = algorithm.actor.act_greedily(observation, ())
    assert (greedy == 2.0).all()


def bandit(actions: FloatArray, generator: np.random.Generator) -> FloatArray:
    """One-step episodes: both agents are paid for the share of action 1 among all actions."""
    layout = Layout(observation_sizes=(4, 4), action_sizes=(3, 3))
    rows = np.zeros((len(actions), layout.row_size), np.float32)
    rows[:, layout.observation] = generator.standard_normal((len(actions), 8))
    rows[:, layout.action] = actions
    rows[:, layout.reward] = (actions[:, 1] + actions[:, 4])[:, None]
    rows[:, layout.terminated] = 1.0
    rows[:, layout.alive] = 1.0
    return rows


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("kind", [MADDPG, MFAC])
def test_training_learns_which_action_pays(kind: type[MADDPG], layers: int) -> None:
    config = kind(batch_size=64, hidden=16, hidden_layers=layers, learning_rate=0.01)
    algorithm = config.make(EnvironmentSpec(agents=team()), seed=0, device="cpu")
    generator = np.random.default_rng(0)
    observation = generator.standard_normal((64, 8), dtype=np.float32)
    for iteration in range(150):
        soft = explore(algorithm, observation, iteration=iteration)
        decoded = np.zeros((2, algorithm.problem.vector_size), np.float32)
        for unit, update in algorithm.gradients.compute(
            bandit(soft, generator), [0, 1], iteration=iteration
        ):
            decoded[unit] = update
        algorithm.optimiser.step(decoded)
    greedy, _ = algorithm.actor.act_greedily(observation, ())
    assert greedy[:, [1, 4]].mean() > 0.95
