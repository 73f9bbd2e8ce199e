"""Scalable actor-critic against its equations, agent by agent."""

from collections import defaultdict
from itertools import pairwise

import numpy as np
import pytest
import torch

from fullrank.common.errors import ConfigError
from fullrank.common.seeding import derive, stream
from fullrank.environments.lattice.environment import LatticeEnvironment
from fullrank.environments.lattice.ising import Ising
from fullrank.environments.lattice.wireless import Wireless
from fullrank.training.evaluation import evaluate
from fullrank_reproduction.baselines.scalable_actor_critic import (
    Episode,
    ScalableActorCritic,
    learn_values,
    policy_gradient,
    sampled,
    step_count,
)

SEED = 5


def uplink(agents: int, copies: int, *, deadline: int = 2, horizon: int = 6) -> LatticeEnvironment:
    config = Wireless(deadline=deadline, horizon=horizon, simultaneous=True)
    return config.make(agents=agents, copies=copies)


def trained(environment: LatticeEnvironment, episodes: int) -> ScalableActorCritic:
    learner = ScalableActorCritic(environment, seed=SEED, episodes=episodes)
    assert len(list(learner.train())) == episodes
    return learner


def test_a_step_of_temporal_differences_is_that_by_hand() -> None:
    values = np.array([4.0, -2.0, 7.0])
    places = np.array([0, 1, 0]).reshape(3, 1, 1)
    reward = np.array([1.0, 2.0]).reshape(2, 1, 1)
    learn_values(values, places, reward, rate=0.5, discount=0.9)
    # 4 + 0.5 (1 + 0.9 * -2 - 4), then -2 + 0.5 (2 + 0.9 * 1.6 + 2)
    np.testing.assert_allclose(values, [1.6, 0.72, 7.0], atol=1e-12)


def test_the_policy_gradient_is_that_of_autograd() -> None:
    generator = np.random.default_rng(0)
    shape, times = (2, 3, 4, 5), 6  # few states, so that some recur
    logits = torch.tensor(generator.standard_normal(shape), requires_grad=True)
    state = generator.integers(0, 4, (times, 2, 3))
    choice = generator.integers(0, 5, (times, 2, 3))
    weight = generator.standard_normal((times, 2, 3))
    copy, agent = np.ogrid[:2, :3]
    scores = torch.log_softmax(logits, -1)[copy, agent, state]
    taken = scores.gather(-1, torch.tensor(choice)[..., None])[..., 0]
    (expected,) = torch.autograd.grad((torch.tensor(weight) * taken).sum(), logits)
    chances = scores.detach().exp().numpy()
    episode = Episode(state=state, chances=chances, choice=choice, reward=np.zeros((5, 2, 3)))
    np.testing.assert_allclose(policy_gradient(shape, episode, weight), expected, atol=1e-12)


def by_the_equations(environment: LatticeEnvironment, copy: int, episodes: int) -> np.ndarray:
    """The policies of one copy, computed agent by agent with dictionaries for tables."""
    _, agents, bits = environment.state.shape
    actions = environment.agents[0].action.size
    hood = [[j for j in row if j >= 0] for row in environment.hood.tolist()]
    theta = np.zeros((agents, 2**bits, actions))
    q: list[dict[object, float]] = [defaultdict(float) for _ in range(agents)]
    for m in range(episodes):
        k = step_count(m, episodes)
        draw = stream(SEED, "tabular_action", m, copy)
        environment.reset([derive(SEED, "episode", m, copy)], [0])
        joint, rewards, ended = [], [], False
        while True:
            state = [int(sum(b << n for n, b in enumerate(own))) for own in environment.state[0]]
            play = np.array(
                [np.exp(theta[i, s]) / np.exp(theta[i, s]).sum() for i, s in enumerate(state)]
            )
            chosen = sampled(play, draw.random((agents,))).tolist()
            joint.append(list(zip(state, chosen, play, strict=True)))
            if ended:
                break
            step = environment.step(np.eye(actions, dtype=np.float32)[chosen].reshape(1, -1))
            rewards.append(step.reward[0])
            ended = bool(step.ended[0])
        seen = [[tuple(at[j][:2] for j in hood[i]) for i in range(agents)] for at in joint]
        for (now, after), reward in zip(pairwise(seen), rewards, strict=True):
            for i in range(agents):
                error = reward[i] + 0.95 * q[i][after[i]] - q[i][now[i]]
                q[i][now[i]] += k**-0.4 * error
        for i in range(agents):
            for t, at in enumerate(joint):
                team = sum(q[j][seen[t][j]] for j in hood[i])
                state_i, action_i, play_i = at[i]
                score = np.eye(actions)[action_i] - play_i
                theta[i, state_i] += k**-0.6 * 0.95**t / agents * team * score
    return theta


@pytest.mark.parametrize("agents", [1, 4, 9])
def test_training_follows_the_equations_in_every_copy(agents: int) -> None:
    learner = trained(uplink(agents, copies=2), episodes=14)
    for copy in range(2):
        expected = by_the_equations(uplink(agents, copies=1), copy, 14)
        assert np.abs(expected).max() > 0.05
        np.testing.assert_allclose(learner.logits[copy], expected, atol=1e-12)


def test_a_learner_has_the_bits_that_it_would_have_alone() -> None:
    alone = trained(uplink(9, copies=1), episodes=12)
    together = trained(uplink(9, copies=3), episodes=12)
    assert np.array_equal(alone.logits[0], together.logits[0])
    assert not np.array_equal(together.logits[0], together.logits[1])


def test_step_sizes_begin_anew_every_ten_episodes_but_for_the_last_tenth() -> None:
    counts = [step_count(m, 1000) for m in range(1000)]
    assert counts[:12] == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 1, 2]
    assert max(counts[:901]) == 10
    assert counts[901:] == list(range(402, 501))


def test_actions_are_drawn_by_their_chances() -> None:
    chances = np.tile([0.2, 0.3, 0.5], (6, 1))
    uniform = np.array([0.0, 0.199, 0.2, 0.499, 0.5, np.nextafter(1.0, 0.0)])
    assert sampled(chances, uniform).tolist() == [0, 0, 1, 1, 2, 2]


@pytest.mark.thorough
def test_a_user_alone_learns_to_send_what_it_has() -> None:
    environment = Wireless(deadline=1, simultaneous=True).make(agents=1, copies=4)
    policies = [trained(environment, episodes).policy(seed=0) for episodes in (0, 200)]
    before, after = (evaluate(environment, act, 80, 1).returns.mean() for act in policies)
    assert after > 1.3 * before


def test_spins_learn_to_agree() -> None:
    environment = Ising(horizon=5).make(agents=9, copies=2)
    learner = ScalableActorCritic(environment, seed=SEED, episodes=150)
    returns = np.array(list(learner.train()))
    assert returns[:20].mean() < 20 < 40 < returns[-20:].mean()


def test_states_that_no_table_holds_are_refused() -> None:
    with pytest.raises(ConfigError, match="at most 16 bits"):
        ScalableActorCritic(uplink(1, copies=1, deadline=17), seed=0, episodes=1)
