"""Scalable actor-critic against its equations, agent by agent, and the claims on Fig. 5."""

from collections import defaultdict
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from fullrank.common.seeding import derive, stream
from fullrank.common.types import JSON
from fullrank.environments.lattice.environment import LatticeEnvironment
from fullrank.environments.lattice.ising import Ising
from fullrank.environments.lattice.wireless import Wireless
from fullrank_darl1n.published import DARL1N, SCALES
from fullrank_darl1n.scalable_actor_critic import (
    ScalableActorCritic,
    Values,
    step_count,
)
from fullrank_darl1n.wireless import (
    SAC,
    Uplinks,
    found,
    judge_wireless,
    runs,
    wireless_table,
)
from fullrank_papers.claims import Held

SEED = 5


def uplink(agents: int, copies: int) -> LatticeEnvironment:
    return Wireless(horizon=6, simultaneous=True).make(agents=agents, copies=copies)


def by_the_equations(environment: LatticeEnvironment, episodes: int) -> np.ndarray[Any, Any]:
    """The policies of all copies, computed agent by agent with dictionaries for tables."""
    copies, agents, bits = environment.state.shape
    actions = environment.agents[0].action.size
    hood = [[j for j in row if j >= 0] for row in environment.hood.tolist()]
    theta = np.zeros((copies, agents, 2**bits, actions))
    tables = [[defaultdict[Any, float](float) for _ in range(agents)] for _ in range(copies)]
    for m in range(episodes):
        k = step_count(m, episodes)
        draw = stream(SEED, "tabular_action", m).random((environment.horizon + 1, copies, agents))
        environment.reset(
            [derive(SEED, "episode", m, copy) for copy in range(copies)], range(copies)
        )
        joint, rewards = [], []
        for time in range(environment.horizon + 1):
            state = (environment.state * 2 ** np.arange(bits)).sum(-1)
            play = np.exp(theta[np.arange(copies)[:, None], np.arange(agents), state])
            play /= play.sum(-1, keepdims=True)
            chosen = (play.cumsum(-1)[..., :-1] <= draw[time][..., None]).sum(-1)
            joint.append((state.tolist(), chosen.tolist(), play))
            if time < environment.horizon:
                one_hot = np.eye(actions, dtype=np.float32)[chosen].reshape(copies, -1)
                rewards.append(environment.step(one_hot).reward)
        for e, q in enumerate(tables):
            seen = [
                [tuple((state[e][j], chosen[e][j]) for j in hood[i]) for i in range(agents)]
                for state, chosen, _ in joint
            ]
            for (now, after), reward in zip(pairwise(seen), rewards, strict=True):
                for i in range(agents):
                    error = reward[e, i] + 0.95 * q[i][after[i]] - q[i][now[i]]
                    q[i][now[i]] += k**-0.4 * error
            for i in range(agents):
                for t, (state, chosen, play) in enumerate(joint):
                    team = sum(q[j][seen[t][j]] for j in hood[i])
                    score = np.eye(actions)[chosen[e][i]] - play[e, i]
                    theta[e, i, state[e][i]] += k**-0.6 * 0.95**t / agents * team * score
    return theta


@pytest.mark.parametrize("agents", [1, 9])
def test_training_follows_the_equations_in_every_copy(agents: int) -> None:
    learner = ScalableActorCritic(uplink(agents, copies=2), seed=SEED, episodes=14)
    assert len(list(learner.train())) == 14
    expected = by_the_equations(uplink(agents, copies=2), 14)
    assert np.abs(expected).max() > 0.05
    np.testing.assert_allclose(learner.logits, expected, atol=1e-12)


def test_every_key_keeps_its_value_while_the_table_grows() -> None:
    table, generator = Values(), np.random.default_rng(0)
    keys = np.unique(generator.integers(1, 2**63, 50_000, np.uint64))
    keys[:300] = np.arange(1, 301)  # all of which meet at one place
    for number, part in enumerate(np.array_split(keys, 40)):
        twice = np.concatenate([part, part[::-1]])
        places = table.places(twice)
        assert np.array_equal(places[: len(part)], places[: len(part) - 1 : -1])
        assert len(np.unique(places)) == len(part)
        assert (table.values[places] == 0).all()
        table.values[places] = twice % 1_000 + number
    for number, part in enumerate(np.array_split(keys, 40)):
        assert np.array_equal(table.values[table.places(part)], part % 1_000 + number)
    assert len(table.values) > 2**16  # where it began


def test_step_sizes_begin_anew_every_ten_episodes_but_for_the_last_tenth() -> None:
    counts = [step_count(m, 1000) for m in range(1000)]
    assert counts[:12] == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 1, 2]
    assert max(counts[:901]) == 10
    assert counts[901:] == list(range(402, 501))


def test_spins_learn_to_agree() -> None:
    environment = Ising(horizon=5).make(agents=9, copies=2)
    learner = ScalableActorCritic(environment, seed=SEED, episodes=150)
    returns = np.array(list(learner.train()))
    assert returns[:20].mean() < 20 < 40 < returns[-20:].mean()


@pytest.mark.parametrize(
    ("leads", "held"),
    [
        ({2: -5.0, 10: 50.0}, [Held.HELD, Held.HELD]),
        ({2: 5.0, 10: -5.0}, [Held.NOT_HELD, Held.NOT_HELD]),
        ({2: -0.4, 10: -0.4}, [Held.UNDECIDED, Held.UNDECIDED]),
    ],
)
def test_claims_on_tables_and_networks_are_judged_by_draw(
    leads: dict[int, float], held: list[Held]
) -> None:
    scale = replace(SCALES["standard"], episodes=30_000, rate_draws=(0, 1, 2, 3, 4))
    draws = np.arange(5.0)
    ends: dict[str, JSON] = {}
    for z, lead in leads.items():
        (tables,) = runs(scale, SAC, z)
        ends[tables.name] = {"return": 80.0 + draws, "random": [50.0] * 5, "seconds": [1.0] * 5}
        for run in runs(scale, DARL1N, z):
            ends[run.name] = {"return": [80.0 + 1.2 * run.draws[0] + lead], "seconds": [2.0]}
    assert [each.held for each in judge_wireless(ends, scale)] == held
    assert "| 10 | 50.0 | 82.0 |" in wireless_table(ends, scale)


@pytest.mark.parametrize("method", [SAC, DARL1N])
def test_a_run_tells_curves_and_ends_by_draw(method: str) -> None:
    scale = replace(SCALES["smoke"], episodes=40, seeds=(0, 1))
    results = {run.name: run.cell().compute() for run in runs(scale, method, 2)}
    episodes, *_ = found(results, scale, method, 2, "episodes")
    returns = found(results, scale, method, 2, "returns")
    assert episodes.tolist() == ([each + 0.5 for each in range(40)] if method == SAC else [0.0])
    assert returns.shape == (2, len(episodes))
    assert ((returns > 0) & (returns < 225)).all()


def test_every_copy_has_its_own_draw_of_the_access_points() -> None:
    worlds = [Wireless(rate_seed=draw, simultaneous=True) for draw in (3, 8)]
    together, alone = Uplinks(worlds), [world.make(agents=9, copies=1) for world in worlds]
    together.reset([1, 2], [0, 1])
    for seed, each in zip((1, 2), alone, strict=True):
        each.reset([seed], [0])
    for _ in range(20):
        action = np.eye(5, dtype=np.float32)[np.random.default_rng(0).integers(0, 5, (2, 9))]
        step = together.step(action.reshape(2, -1))
        for copy, each in enumerate(alone):
            own = each.step(action[copy].reshape(1, -1))
            assert np.array_equal(own.reward[0], step.reward[copy])
            assert np.array_equal(own.observation[0], step.observation[copy])
