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
from fullrank.networks.fused.minibatch import Minibatch
from fullrank.replay.episodes import EpisodeLayout
from fullrank.replay.staging import check_steps
from fullrank.training.rollouts import Rollout

from .games import MaskedWatch, Watch

WATCH = f"{Watch.__module__}:Watch"
AWAKE = [[1, 1, 1], [1, 1, 1], [0, 1, 1], [0, 1, 1], [1, 1, 1], [1, 1, 1]]
"""Guards that act in each step."""


class Idle:
    """A player that always takes the first action, or another one."""

    def __init__(self, choice: int = 0) -> None:
        self._action = np.tile(np.eye(3, dtype=np.float32)[choice], 3)

    def memory(self, copies: int) -> tuple[()]:
        return ()

    def act(self, observation: Any, memory: Any, **_: Any) -> Any:
        return np.tile(self._action, (len(observation), 1)), memory


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
    fused.put(rows)
    fused.load()
    assert fused.blocks[0].acts_next[0, 0, :6].tolist() == acts_next


@pytest.mark.parametrize("truncate", [False, True])
def test_a_truncated_agent_keeps_the_permitted_actions_of_its_last_state(truncate: bool) -> None:
    name = f"{MaskedWatch.__module__}:MaskedWatch"
    environment = make_environment(name, copies=1, truncate=truncate)
    layout = layout_of(environment.agents, masked=True)
    player = cast(Any, Idle(choice=1))
    rows = Rollout(environment, player, layout, seed=0).collect(6, iteration=0).rows
    before, after = (rows[:, part][:, :3] for part in (layout.available, layout.next_available))
    own, no_op = [0, 1, 1], [1, 0, 0]
    assert before.tolist() == [own, own, no_op, no_op, own, own]
    assert after.tolist() == [own, own if truncate else no_op, no_op, own, own, own]
    face = parallel_env("pettingzoo", factory=name, arguments={"truncate": truncate})
    face.reset(seed=0)
    for mask in after[:2]:
        *_, infos = face.step(dict.fromkeys(face.agents, 1))
        assert infos["guard_0"]["action_mask"].tolist() == mask.tolist()


def alone(name: str, **options: Any) -> LocalRun:
    settings = {
        "environment.name": name,
        "environment.copies": 2,
        "algorithm.name": "ippo",
        "algorithm.hidden": 8,
        "algorithm.batch_size": 2,
        "algorithm.micro_batches": 1,
        "algorithm.discount": 0.9,
        "algorithm.trace": 0.5,
    }
    return LocalRun(load(options=settings | options).check().config)


@pytest.mark.parametrize(("truncate", "goes_on"), [(False, True), (True, True), (True, False)])
def test_no_value_is_carried_over_the_gap_and_a_limit_is_no_terminal_state(
    truncate: bool, goes_on: bool
) -> None:
    bootstrap = {"algorithm.time_limit_bootstrap": goes_on}
    run = alone(WATCH, **{"environment.truncate": truncate}, **bootstrap)
    layout = run.training.problem.episodes
    assert layout is not None
    rows = run.training.collector.collection.collect(0).rows[:7]
    assert rows[:, layout.earns].tolist() == [*AWAKE, [0, 0, 0]]
    assert rows[:, layout.ends][:, 0].tolist() == [0, int(not truncate), 0, 0, 0, 0, 0]
    assert not rows[:, layout.ends][:, 1:].any()
    advantage, value, paid = (
        rows[:, part].astype(np.float64)
        for part in (layout.columns["advantage"], layout.columns["value"], layout.rewards)
    )
    lives = ((0, range(2), 0.0), (0, range(4, 5), advantage[5, 0]), (1, range(5), advantage[5, 1]))
    for agent, steps, later in lives:
        for step in reversed(steps):
            over = step == 1 and agent == 0 and not (truncate and goes_on)
            next_value = 0.0 if over else value[step + 1, agent]
            later = paid[step, agent] + 0.9 * next_value - value[step, agent] + 0.45 * later
            assert advantage[step, agent] == pytest.approx(later, abs=1e-6)


def test_an_agent_that_is_out_earns_a_reward_that_all_share() -> None:
    run = alone("smac_lite", **{"environment.agents": 0, "environment.copies": 8})
    layout = run.training.problem.episodes
    assert layout is not None
    rows = run.training.collector.collection.collect(0).rows
    steps = rows[rows[:, layout.length] == 0]
    assert (steps[:, layout.available].reshape(len(steps), 3, -1).sum(axis=2) == 1).any()  # dead
    assert steps[:, layout.earns].all()
    assert_array_equal(steps[:, layout.ends], steps[:, layout.terminated, None].repeat(3, axis=1))
    assert steps[:, layout.ends].any()


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
