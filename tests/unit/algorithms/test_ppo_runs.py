"""Whole runs of PPO: what they record, what teams learn, and what is exported."""

from typing import Any

import numpy as np
import pytest
from tests.fakes.reach import Reach

from fullrank.algorithms.on_policy import ValueScale
from fullrank.algorithms.roles import RecurrentLayers
from fullrank.common.errors import ConfigError
from fullrank.common.types import Array, FloatArray
from fullrank.config import load
from fullrank.environments import environments, make_environment
from fullrank.export.recurrent import RecurrentPolicy
from fullrank.local import LocalRun
from fullrank.replay.episodes import EpisodeLayout, episodes_in
from fullrank.training.evaluation import Greedy, evaluate

environments.register("reach")(Reach)

SCREENS: dict[str, Any] = {
    "environment__name": "tests.unit.environments.games:Screens",
    "environment__agents": 0,
}

TINY: dict[str, Any] = {
    "iterations": 8,
    "environment.name": "switch_riddle",
    "environment.agents": 3,
    "environment.copies": 8,
    "algorithm.hidden": 12,
    "algorithm.batch_size": 4,
    "algorithm.epochs": 2,
    "algorithm.micro_batches": 2,
}


def run(**options: Any) -> LocalRun:
    chosen = {key.replace("__", "."): value for key, value in options.items()}
    kept = {key: value for key, value in (TINY | chosen).items() if value is not None}
    return LocalRun(load(options=kept).check().config, coded=False)


def test_the_controller_keeps_the_scale_of_values_and_no_gradient_moves_it() -> None:
    learned = run(algorithm__name="mappo")
    told = learned.train()
    (scale,) = (s.id for s in learned.training.problem.sections if s.role == "scale")
    averages: Array = np.zeros(3)
    for each in told:
        found = each.statistics["target_mean"], each.statistics["target_deviation"]
        averages = ValueScale.moved(averages, *found)
    np.testing.assert_allclose(
        learned.training.algorithm.parameters.view(scale), averages, rtol=1e-5
    )


@pytest.mark.parametrize("name", ["ippo", "mappo"])
def test_the_controller_keeps_the_averages_of_what_networks_see(name: str) -> None:
    """Means and variances of all inputs of the minibatches, weighted by age."""
    learned = run(
        algorithm__name=name,
        algorithm__batch_size=8,
        algorithm__normalise_observations=True,
        algorithm__share="side",
        environment__name="predator_prey",
        environment__agents=3,
        algorithm__reward="own",
    )
    iterations, seen = iter(learned), list[FloatArray]()
    layout, parameters = learned.training.problem.episodes, learned.training.algorithm.parameters
    assert layout is not None
    for number, _ in enumerate(iterations):
        if number % 2 == 0:
            rows = learned.training.collector.collection.collect(number // 2).rows
        seen.append(rows[rows[:, layout.length] == 0])
    assert len(seen) == 8
    for section in learned.training.problem.sections:
        if section.role not in ("policy", "value") or (section.role, name) == ("value", "ippo"):
            continue
        inputs = [inputs_of(layout, rows, section.agents, section.role) for rows in seen]
        weights = 0.001 * 0.999 ** np.arange(8)[::-1]
        weights /= weights.sum()
        mean = sum(w * x.mean(0) for w, x in zip(weights, inputs, strict=True))
        square = sum(w * (x**2).mean(0) for w, x in zip(weights, inputs, strict=True))
        size = inputs[0].shape[1]
        averages = parameters.view(section.id)[: 4 * size].reshape(4, size)
        np.testing.assert_allclose(averages[0], 1.0 - 0.999**8, rtol=1e-5)
        np.testing.assert_allclose(averages[1], mean, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(averages[2], square - mean**2, rtol=1e-4, atol=1e-6)
        assert not averages[3].any()


def inputs_of(layout: EpisodeLayout, rows: FloatArray, agents: tuple[int, ...], role: str) -> Array:
    """What a network sees in these rows, agent by agent, in float64."""
    if role == "value":
        return rows[:, layout.state].astype(np.float64)
    starts, sizes = np.cumsum((0, *layout.observation_sizes)), layout.observation_sizes
    wide = max(sizes[agent] for agent in agents)
    parts = [rows[:, starts[agent] : starts[agent] + sizes[agent]] for agent in agents]
    padded = [np.pad(part, ((0, 0), (0, wide - part.shape[1]))) for part in parts]
    return np.concatenate(padded).astype(np.float64)


@pytest.mark.parametrize("name", ["ippo", "mappo"])
def test_nothing_is_clipped_in_the_first_update_over_a_collection(name: str) -> None:
    told = [each.statistics for each in run(algorithm__name=name, algorithm__learning_rate=0.05)]
    for first in (0, 4):
        assert told[first]["clipfrac"] == 0.0
        assert told[first]["approx_kl"] == pytest.approx(0.0, abs=1e-6)
    assert max(each["clipfrac"] for each in told) > 0.0


def test_the_learning_rate_falls_with_committed_iterations() -> None:
    iterations = run(algorithm__name="ippo", algorithm__anneal_iterations=4)
    rates = [each.statistics["learning_rate"] for each in iterations]
    assert rates == pytest.approx([5e-4, 3.75e-4, 2.5e-4, 1.25e-4, 0, 0, 0, 0])


def test_several_groups_have_statistics_and_gradient_norms_of_their_own() -> None:
    (first, *_) = run(algorithm__name="mappo", algorithm__share="none")
    assert {"policy_loss/2", "grad_norm/0", "learning_rate"} <= first.statistics.keys()


def test_sides_learn_from_their_own_rewards_and_are_no_team() -> None:
    hunt: dict[str, Any] = {"environment__name": "predator_prey", "environment__agents": 3}
    apart = run(algorithm__name="ippo", algorithm__share="side", **hunt)
    layout = apart.training.problem.episodes
    assert isinstance(layout, EpisodeLayout)
    rows = apart.training.collector.collection.collect(0).rows
    steps = rows[rows[:, layout.length] == 0]
    own = steps[:, layout.rewards]
    assert own.shape[1] == len(apart.training.collector.agents)
    assert np.ptp(own, axis=1).max() > 0.0
    assert not rows[rows[:, layout.length] > 0][:, layout.rewards].any()
    with pytest.raises(ConfigError, match="sides that are paid apart"):
        run(algorithm__name="mappo", **hunt).training.collector.require_one_team()


@pytest.mark.integration
@pytest.mark.parametrize("name", ["ippo", "mappo"])
def test_the_two_step_game_is_learned(name: str) -> None:
    """Random play earns 4.1 on average; the choice that needs no partner earns 7."""
    learned = run(
        algorithm__name=name,
        algorithm__batch_size=8,
        algorithm__learning_rate=0.005,
        algorithm__epochs=4,
        environment__name="two_step_game",
        environment__agents=0,
        iterations=120,
    )
    learned.train()
    actor = learned.training.algorithm.actor
    environment = make_environment("two_step_game", agents=0, copies=4)
    assert evaluate(environment, Greedy(actor), 8, seed=1).returns.mean() >= 7.0


REACH: dict[str, Any] = {
    "algorithm__name": "ippo",
    "algorithm__learning_rate": 0.01,
    "algorithm__batch_size": 16,
    "algorithm__epochs": 5,
    "algorithm__entropy_weight": 0.0,
    "environment__name": "reach",
    "environment__agents": 0,
    "environment__copies": 16,
}


def test_rows_hold_the_continuous_actions_that_were_played() -> None:
    played_ = run(**REACH, iterations=5)
    layout = played_.training.problem.episodes
    assert layout is not None
    rows = played_.training.collector.collection.collect(0).rows
    last = rows[:, layout.length] > 0
    entries, targets = rows[~last, layout.entries], rows[~last, layout.observation]
    assert not rows[last, layout.entries].any()
    assert not rows[:, layout.action].any()
    lost = -np.square(entries.astype(np.float64) - targets)
    paid = rows[~last, layout.rewards].astype(np.float64)
    for arm in range(2):  # standardised: equal up to a positive scale and a shift
        slope, shift = np.polyfit(lost[:, arm], paid[:, arm], 1)
        np.testing.assert_allclose(paid[:, arm], slope * lost[:, arm] + shift, atol=1e-5)
        assert slope > 0.0


@pytest.mark.thorough
@pytest.mark.parametrize(("name", "updates"), [("ippo", 1600), ("mappo", 800)])
def test_values_stay_in_range_where_time_limits_end_all_episodes(name: str, updates: int) -> None:
    """With the values after the limits, means of R were -798 and 546 by then."""
    world = {"environment.name": "cooperative_navigation", "algorithm.name": name}
    learned = LocalRun(load(options=world | {"iterations": updates}).check().config, coded=False)
    assert abs(learned.train()[-1].statistics["target_mean"]) < 25.0


@pytest.mark.parametrize("name", ["ippo", "mappo"])
def test_nothing_is_expected_after_a_time_limit_unless_asked_for(name: str) -> None:
    """R of the last step, by default and with the value after it; all limits are of time."""
    world = {"algorithm__name": name, "environment__name": "cooperative_navigation"}
    for options in ({}, {"algorithm__time_limit_bootstrap": True}):
        played = run(**world, **options)
        layout = played.training.problem.episodes
        assert layout is not None
        rows = played.training.collector.collection.collect(0).rows
        last = np.array([place.stop - 2 for place in episodes_in(rows, layout.length)])
        paid = rows[last][:, layout.rewards if layout.own_rewards else [layout.reward]]
        expected = sum(rows[last][:, layout.columns[each]] for each in ("value", "advantage"))
        assert np.allclose(expected, paid, atol=1e-5) == (not options)


@pytest.mark.parametrize(
    "options",
    [
        {"algorithm__name": "ippo", "environment__name": "smac_lite"},
        {"algorithm__name": "mappo", "algorithm__recurrent": True},
        {"algorithm__name": "coma", "algorithm__epochs": None, "environment__name": "smac_lite"},
        REACH | {"iterations": 5},
        {"algorithm__name": "mappo", "algorithm__share": "none", **SCREENS},
    ],
    ids=["lengths", "memory", "coma", "continuous", "images"],
)
def test_derived_columns_do_not_depend_on_the_other_episodes(options: dict[str, Any]) -> None:
    played = run(**options)
    layout, prepare = played.training.problem.episodes, played.training.algorithm.prepare
    assert layout is not None
    assert prepare is not None
    rows = played.training.collector.collection.collect(0).rows
    alone = rows.copy()
    alone[:, layout.entries.stop :] = 0.0
    for place in reversed(episodes_in(alone, layout.length)):
        prepare(alone[place])
    np.testing.assert_array_equal(alone, rows)
    assert alone[:, layout.columns["advantage"]].any()


@pytest.mark.integration
def test_two_arms_learn_to_reach_and_are_exported() -> None:
    """Standing in the middle of the range loses 4 / 3 a step and arm: 10.7 an episode."""
    learned = run(**REACH, iterations=200)
    learned.train()
    actor, environment = learned.training.algorithm.actor, Reach().make(agents=0, copies=4)
    assert evaluate(environment, Greedy(actor), 20, seed=1).returns.mean() > -3.0
    seen = np.array([[0.5, 2.0]], np.float32)
    (action,), _ = actor.act_greedily(seen, ())
    for arm in range(2):
        layers = actor.policy(arm)
        assert isinstance(layers, tuple)
        hidden = seen[0, arm : arm + 1]
        for number, layer in enumerate(layers):
            hidden = layer @ np.append(hidden, np.float32(1.0))
            hidden = np.maximum(hidden, 0.0) if number < len(layers) - 1 else hidden
        np.testing.assert_allclose(1.0 + 2.0 * np.tanh(hidden[0]), action[arm], rtol=1e-5)


@pytest.mark.integration
def test_a_team_with_memory_solves_the_switch_riddle_and_is_exported() -> None:
    """Two prisoners: the optimum is the share of starts in which both come, about a half."""
    learned = run(
        algorithm__name="mappo",
        algorithm__recurrent=True,
        algorithm__hidden=32,
        algorithm__batch_size=32,
        algorithm__micro_batches=1,
        algorithm__epochs=4,
        algorithm__learning_rate=0.005,
        environment__agents=2,
        environment__copies=32,
        iterations=320,
    )
    learned.train()
    actor = learned.training.algorithm.actor
    environment = make_environment("switch_riddle", agents=2, copies=50)
    played_ = evaluate(environment, Greedy(actor), 400, seed=0)
    assert (played_.returns >= 0).all()
    assert played_.won is not None
    assert played_.won.mean() > 0.4
    size = environment.agents[0].observation_size
    seen = np.random.default_rng(0).normal(size=(3, 1, 2, size)).astype(np.float32)
    memory = actor.memory(1)
    states = [np.zeros(32, np.float32) for _ in range(2)]
    for step in seen:
        action, memory = actor.act_greedily(step.reshape(1, -1), memory)
        for agent in range(2):
            layers = actor.policy(agent)
            assert isinstance(layers, RecurrentLayers)
            values, states[agent] = stepped(layers, step[0, agent], states[agent])
            assert action.reshape(2, -1)[agent].argmax() == values.argmax()
            np.testing.assert_allclose(memory[0][0, agent], states[agent], rtol=1e-4, atol=1e-5)


def stepped(
    layers: RecurrentLayers, seen: FloatArray, state: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """One step of an exported recurrent network."""

    def through(matrix: FloatArray, inputs: FloatArray) -> FloatArray:
        return np.asarray(matrix @ np.append(inputs, np.float32(1.0)), np.float32)

    assert layers.state_gates is not None
    hidden = np.maximum(through(layers.first, seen), 0.0)
    reset, update, new = np.split(through(layers.input_gates, hidden), 3)
    of_reset, of_update, of_new = np.split(through(layers.state_gates, state), 3)
    keep = 1.0 / (1.0 + np.exp(-(update + of_update)))
    fresh = np.tanh(new + of_new / (1.0 + np.exp(-(reset + of_reset))))
    after = ((1.0 - keep) * fresh + keep * state).astype(np.float32)
    return through(layers.last, after), after


def test_normalised_layers_are_exported_as_such() -> None:
    learned = run(algorithm__name="ippo", algorithm__layer_norm=True)
    learned.train()
    actor, agents = learned.training.algorithm.actor, learned.training.collector.agents
    seen = np.random.default_rng(0).normal(size=(64, 3, 2)).astype(np.float32)
    taken, _ = actor.act_greedily(seen.reshape(64, -1), ())
    for number, agent in enumerate(agents):
        layers = actor.policy(number)
        assert isinstance(layers, RecurrentLayers)
        policy, none = RecurrentPolicy(agent=agent, layers=layers), np.zeros((64, 12), np.float32)
        values, _ = policy.step(seen[:, number], np.full(64, -1), none)
        np.testing.assert_array_equal(
            values.argmax(1), taken.reshape(64, 3, -1)[:, number].argmax(1)
        )
