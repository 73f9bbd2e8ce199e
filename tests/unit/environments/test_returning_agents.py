"""An agent that comes back within an episode lives again: it acts, is paid and is learned from."""

from typing import Any, cast

import numpy as np
import pytest
import torch
from numpy.testing import assert_array_equal

from fullrank.algorithms.base import layout_of
from fullrank.algorithms.transitions import Transitions
from fullrank.common.errors import EnvironmentFailed
from fullrank.config import load
from fullrank.environments import make_environment
from fullrank.environments.parallel import parallel_env
from fullrank.local import LocalRun
from fullrank.networks.fused.gradients import Minibatch
from fullrank.replay.episodes import EpisodeLayout
from fullrank.replay.staging import check_steps
from fullrank.training.rollouts import Rollout

from .games import Watch

WATCH = f"{Watch.__module__}:Watch"
AWAKE = [[1, 1, 1], [1, 1, 1], [0, 1, 1], [0, 1, 1], [1, 1, 1], [1, 1, 1]]
"""Guards that act in each step."""


class Idle:
    """A player that always takes the first action."""

    def memory(self, copies: int) -> tuple[()]:
        return ()

    def act(self, observation: Any, memory: Any, **_: Any) -> Any:
        action = np.tile(np.array([1, 0, 0] * 3, np.float32), (len(observation), 1))
        return action, memory


@pytest.mark.parametrize("truncate", [False, True])
def test_rows_say_who_acts_and_who_acts_next(truncate: bool) -> None:
    environment = make_environment(WATCH, copies=1, truncate=truncate)
    layout = layout_of(environment.agents)
    collected = Rollout(environment, cast(Any, Idle()), layout, seed=0).collect(6, iteration=0)
    rows = collected.rows
    assert rows[:, layout.alive].tolist() == AWAKE
    assert rows[:, layout.reward].tolist() == AWAKE  # each is paid 1 a step in which it acts
    assert collected.returns.tolist() == [16]
    own, after = layout.observation_of(0), layout.next_observation.start
    last = 3 if truncate else 0  # a truncated agent's last observation is still needed
    assert rows[:, own.start].tolist() == [1, 2, last, 0, 5, 6]
    assert rows[:, after].tolist() == [2, last, 0, 5, 6, 7]
    batch = Transitions(rows, environment.agents, device=torch.device("cpu"))
    assert (batch.weight[0] > 0).tolist() == [bool(awake) for awake, *_ in AWAKE]
    # A truncated guard would have acted next, had it stayed; a terminated one would not.
    acts_next = [1, int(truncate), 0, 1, 1, 1]
    assert batch.acts_next[0].tolist() == acts_next
    assert batch.continues[0][batch.weight[0] > 0].tolist() == [1, int(truncate), 1, 1]
    fused = Minibatch(layout, size=6, hidden=4, device=torch.device("cpu"))
    fused.load(rows)
    assert fused.blocks[0].acts_next[0, 0, :6].tolist() == acts_next


@pytest.mark.parametrize("algorithm", ["maddpg", "qmix", "iql"])
def test_teams_train_and_rows_of_whole_episodes_are_sound(algorithm: str) -> None:
    options = {
        "environment.name": WATCH,
        "environment.copies": 2,
        "algorithm.name": algorithm,
        "algorithm.hidden": 8,
        "algorithm.batch_size": 4,
        "collect.warmup": 24,
        "collect.warmup_copies": 2,
        "iterations": 2,
    }
    run = LocalRun(load(options=options).check().config)
    layout = run.training.problem.episodes
    if isinstance(layout, EpisodeLayout):
        rows = run.training.collector.collect(0).rows
        ends = np.flatnonzero(rows[:, layout.length])
        check_steps(rows, ends, layout)
        acts = rows[:, layout.available].reshape(len(rows), 3, 3).sum(axis=2)
        assert acts[:6, 0].tolist() == [3, 3, 1, 1, 3, 3]  # the sleeper has its no-op alone
    run.train()


def test_a_guard_comes_back_in_the_parallel_face_too() -> None:
    environment = parallel_env("pettingzoo", factory=WATCH)
    environment.reset(seed=0)
    living = []
    for _ in range(6):
        living.append([int(agent in environment.agents) for agent in environment.possible_agents])
        seen, *_ = environment.step(dict.fromkeys(environment.agents, 0))
    assert living == AWAKE
    assert {*seen} == {*environment.possible_agents}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"stranger": True}, "step 4 of seed 7: .*guard_9 is not one of its possible_agents"),
        (
            {"vanish": True},
            "step 2 of seed 7: .*guard_0 is no longer among the agents, but was nei",
        ),
    ],
)
def test_agents_that_come_or_go_unannounced_are_refused_with_name_and_step(
    arguments: dict[str, Any], message: str
) -> None:
    environment = make_environment(WATCH, copies=1, **arguments)
    environment.reset([7], [0])

    def play() -> None:
        for _ in range(6):
            environment.step(np.array([[1, 0, 0] * 3], np.float32))

    with pytest.raises(EnvironmentFailed, match=message):
        play()


def test_rewards_of_agents_that_do_not_act_are_reported() -> None:
    environment: Any = make_environment(WATCH, copies=1, paid_asleep=True)
    environment.reset([0], [0])
    steps = [environment.step(np.array([[1, 0, 0] * 3], np.float32)) for _ in range(3)]
    assert_array_equal(steps[2].reward, [[0, 1, 1]])
    assert environment.ignored() == [
        "guard_0 is paid in steps in which it does not act; no return counts it"
    ]


def test_an_agent_of_a_gymnasium_team_comes_back() -> None:
    environment: Any = make_environment("gymnasium", copies=1, id="MaskedPair-v0")
    environment.reset([0], [0])
    action = np.array([[0, 1, 0, 1]], np.float32)
    first = environment.step(action)
    assert (first.terminated.tolist(), first.alive.tolist()) == ([[True, False]], [[False, True]])
    assert environment.available().tolist() == [[True, False, False, True]]  # its no-op
    second = environment.step(np.array([[1, 0, 0, 1]], np.float32))
    assert (second.reward.tolist(), second.alive.tolist()) == ([[0, 1]], [[True, True]])
    assert second.observation.tolist() == [[2, 2]]
    assert environment.step(action).ended.tolist() == [True]
