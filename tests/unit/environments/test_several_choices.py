"""Agents that make several choices at once: spaces, masks, rows, and whole runs."""

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from fullrank.common.errors import ConfigError, EnvironmentFailed
from fullrank.common.types import FloatArray
from fullrank.config import load
from fullrank.environments import AgentSpec, Discrete, MultiDiscrete, make_environment
from fullrank.environments.capabilities import chosen_actions, permitted_actions
from fullrank.environments.foreign_agents import (
    action_spec,
    foreign_agents,
    pack_action,
    pack_mask,
    unpack_action,
)
from fullrank.local import LocalRun
from fullrank.replay.episodes import NO_ACTION
from fullrank.training.evaluation import Greedy, evaluate, random_actions

from .games import Locks, Watch

LOCKS = f"{Locks.__module__}:Locks"
NESTED = spaces.Tuple(
    (
        spaces.Discrete(3, start=5),
        spaces.Dict({"b": spaces.MultiBinary(2), "a": spaces.MultiDiscrete(np.array([[2], [4]]))}),
    )
)
SMALL: dict[str, Any] = {
    "environment.name": LOCKS,
    "environment.agents": 0,
    "environment.copies": 16,
    "algorithm.name": "ippo",
    "algorithm.hidden": 16,
    "algorithm.batch_size": 16,
    "algorithm.learning_rate": 0.02,
    "algorithm.entropy_weight": 0.0,
}


def hot(sizes: tuple[int, ...], *chosen: int) -> FloatArray:
    """The vector of these choices."""
    parts = [np.eye(size)[one] for size, one in zip(sizes, chosen, strict=True)]
    return np.concatenate(parts).astype(np.float32)


def test_spaces_of_choices_lie_side_by_side_and_reach_the_environment_as_they_are() -> None:
    assert action_spec(NESTED) == MultiDiscrete((3, 2, 4, 2, 2))
    number, inner = unpack_action(NESTED, hot((3, 2, 4, 2, 2), 2, 1, 3, 0, 1))
    assert number == 7
    assert inner["a"].tolist() == [[1], [3]]
    assert inner["b"].tolist() == [0, 1]
    assert NESTED.contains((number, inner))
    shifted = spaces.MultiDiscrete([3, 2], start=[10, 20])
    assert unpack_action(shifted, hot((3, 2), 1, 1)).tolist() == [11, 21]


@pytest.mark.parametrize(
    ("action", "chosen"),
    [
        (Discrete(3), -1),
        (Discrete(3), 3),
        (Discrete(3), [0, 1]),
        (MultiDiscrete((3, 2)), [3, 0]),
        (MultiDiscrete((3, 2)), [0, -1]),
        (MultiDiscrete((3, 2)), [1]),
    ],
)
def test_a_choice_out_of_range_is_refused_by_agent(
    action: Discrete | MultiDiscrete, chosen: Any
) -> None:
    agent = AgentSpec(name="picker", observation_size=1, action=action)
    assert pack_action(agent, np.zeros(len(action.choices))).sum() == len(action.choices)
    with pytest.raises(EnvironmentFailed, match=r"picker chose \[.*; give an index below each of"):
        pack_action(agent, chosen)


@pytest.mark.parametrize("part", [spaces.Box(-1.0, 1.0, (2,)), spaces.Text(3)])
def test_choices_beside_anything_else_are_refused(part: Any) -> None:
    with pytest.raises(TypeError, match=r"actions of Tuple.* are not supported; Discrete, Multi"):
        action_spec(spaces.Tuple((spaces.Discrete(2), part)))


def test_an_agent_without_a_mask_may_do_everything() -> None:
    box, hands = spaces.Box(0, 1, (1,)), spaces.MultiDiscrete([3, 2])
    (agent,) = foreign_agents(["hand"], [box], [hands], ["team"])
    assert agent.available(np.zeros(1)).tolist() == [1, 1, 1, 1, 1]


@pytest.mark.parametrize(
    ("mask", "available"),
    [
        ([0, 1, 1, 1, 0], [0, 1, 1, 1, 0]),
        ((np.array([0, 1, 0]), np.array([1, 1])), [0, 1, 0, 1, 1]),
    ],
)
def test_a_mask_of_choices_is_flat_or_one_for_each(mask: Any, available: list[int]) -> None:
    assert pack_mask(MultiDiscrete((3, 2)), mask).tolist() == available


@pytest.mark.parametrize(
    ("mask", "message"),
    [([1, 1, 1, 0, 0], "permits no action"), ([1, 1, 1], r"shape \(3,\), not \(5,\)")],
)
def test_a_mask_must_leave_an_action_in_every_choice(mask: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        pack_mask(MultiDiscrete((3, 2)), mask)


AGENT = (AgentSpec(name="hand", observation_size=1, action=MultiDiscrete((3, 2))),)
OFFERED = np.array([[True, True, False, False, True]])


def test_every_choice_is_checked_and_replaced_for_itself() -> None:
    alive = np.ones((1, 1), bool)
    right, wrong = hot((3, 2), 1, 1)[None], hot((3, 2), 1, 0)[None]
    assert chosen_actions(AGENT, right, available=OFFERED, alive=alive).tolist() == [[1]]
    with pytest.raises(EnvironmentFailed, match="hand of copy 0 chose action 0, which is not"):
        chosen_actions(AGENT, wrong, available=OFFERED, alive=alive)
    chosen_actions(AGENT, wrong, available=OFFERED, alive=~alive)
    np.testing.assert_array_equal(permitted_actions(AGENT, wrong, OFFERED), right)


def test_random_play_takes_every_available_combination() -> None:
    act, seen = random_actions(AGENT, seed=0), np.zeros((400, 1), np.float32)
    played = act(seen, np.repeat(OFFERED, 400, axis=0))
    combinations, counts = np.unique(played, axis=0, return_counts=True)
    assert combinations.tolist() == [[0, 1, 0, 0, 1], [1, 0, 0, 0, 1]]
    assert counts.min() > 150


def run(**options: Any) -> LocalRun:
    """A run of small teams with options of dotted names."""
    chosen = {key.replace("__", "."): value for key, value in options.items()}
    return LocalRun(load(options=SMALL | chosen).check().config, coded=False)


@pytest.mark.integration
@pytest.mark.parametrize(("name", "form"), [("ippo", "several"), ("mappo", "in a dictionary")])
def test_teams_learn_every_choice(name: str, form: str) -> None:
    """Random play names 5 / 6 a step and agent, 10 in six steps; the best is 24."""
    learned = run(algorithm__name=name, environment__form=form, iterations=100)
    learned.train()
    environment = make_environment(LOCKS, copies=2, form=form)
    greedy = Greedy(learned.training.algorithm.actor)
    assert evaluate(environment, greedy, 10, seed=1).returns.mean() > 22.0


def test_rows_hold_the_choices_and_tell_agents_without_one() -> None:
    """The first agent may choose a colour until its mask leaves none; the second ends early."""
    for mask, free in (([1, 1, 0, 1, 0], True), ([0, 1, 0, 0, 1], False)):
        played = run(environment__ends=2, environment__mask=mask, iterations=5)
        layout = played.training.problem.episodes
        assert layout is not None
        rows = played.training.collector.collection.collect(0).rows
        steps = rows[rows[:, layout.length] == 0]
        first, second = np.split(steps[:, layout.entries], 2, axis=1)
        assert (first.sum(axis=1) == 2).all()
        assert not first[:, np.array(mask) == 0].any()
        number = np.tile(np.arange(6), 16)
        np.testing.assert_array_equal(second.sum(axis=1), np.where(number < 2, 2, 0))
        actions = steps[:, layout.action]
        assert (actions[:, 0] == (0 if free else NO_ACTION)).all()
        np.testing.assert_array_equal(actions[:, 1], np.where(number < 2, 0, NO_ACTION))


class Gliding(Watch):
    """The guards act by numbers."""

    def action_space(self, agent: str) -> spaces.Box:
        return spaces.Box(-1, 1, (2,), np.float32)


def test_an_agent_that_sleeps_has_no_continuous_action_either() -> None:
    played = run(environment__name=f"{__name__}:Gliding", iterations=5)
    layout = played.training.problem.episodes
    assert layout is not None
    rows = played.training.collector.collection.collect(0).rows
    steps = rows[rows[:, layout.length] == 0]
    asleep = np.isin(np.tile(np.arange(6), 16), (2, 3))
    np.testing.assert_array_equal(steps[:, layout.action][:, 0] == NO_ACTION, asleep)
    assert not steps[asleep, layout.entries.start : layout.entries.start + 2].any()


@pytest.mark.parametrize("name", ["masac", "qmix", "pqn", "coma"])
def test_algorithms_of_single_actions_refuse_them_in_one_line(name: str) -> None:
    options = {"environment.name": LOCKS, "environment.agents": 0, "algorithm.name": name}
    with pytest.raises(
        ConfigError, match=r"left_0 has several actions at once.*use (maddpg|ippo|mappo)"
    ):
        LocalRun(load(options=options).check().config)


@pytest.mark.parametrize(
    "box",
    [
        spaces.Box(-3e38, 3e38, (2,), np.float32),
        spaces.Box(2e38, 3e38, (1,), np.float32),  # whose centre is not finite
        spaces.Box(-1e300, 1.0, (1,), np.float64),
    ],
)
def test_a_box_too_wide_for_single_precision_is_refused(box: spaces.Box) -> None:
    with pytest.raises(TypeError, match=r"^the bounds of Box\(.* are too large for float32; scale"):
        action_spec(box)
    action_spec(spaces.Box(-1e38, 1e38, (2,), np.float32))
