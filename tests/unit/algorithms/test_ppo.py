"""PPO's losses against a plain statement in float64, its advantages, and what it learns."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from tests.fakes.reach import Reach
from torch import Tensor

from fullrank.algorithms import Algorithm, EnvironmentSpec
from fullrank.algorithms.ippo import IPPO
from fullrank.algorithms.mappo import MAPPO
from fullrank.algorithms.on_policy import ENTRIES, ValueScale, advantages
from fullrank.algorithms.policies import clipped_gaussian
from fullrank.algorithms.ppo import PPO
from fullrank.algorithms.roles import RecurrentLayers
from fullrank.algorithms.trajectories import SCALE
from fullrank.common.errors import ConfigError
from fullrank.common.types import Array, FloatArray
from fullrank.config import load
from fullrank.environments import AgentSpec, Continuous, Discrete, environments, make_environment
from fullrank.local import LocalRun
from fullrank.replay.episodes import NO_ACTION, EpisodeLayout, episodes_in
from fullrank.training.evaluation import Greedy, evaluate

environments.register("reach")(Reach)

SIZES = ((7, 5), (4, 3), (7, 4), (5, 2))
"""Entries of the observation, and actions or entries of the action, of each agent."""
ARM, LOW, HIGH = 3, (-1.0, 0.0), (1.0, 3.0)
"""The agent with continuous actions, and their range."""
ENVIRONMENT = EnvironmentSpec(
    agents=tuple(
        AgentSpec(
            name=f"agent_{number}",
            observation_size=seen,
            action=Continuous(LOW, HIGH) if number == ARM else Discrete(actions),
        )
        for number, (seen, actions) in enumerate(SIZES)
    ),
    state_size=6,
)
ALIKE = {"team": ("agent_0", "agent_1", "agent_2"), "arm": ("agent_3",)}
SMALL: dict[str, Any] = {"batch_size": 7, "micro_batches": 3, "hidden": 11, "clip_norm": 1e9}
LEARNERS: dict[str, PPO] = {
    "ippo": IPPO(**SMALL, share=ALIKE),
    "ippo of networks apart": IPPO(**SMALL, share="none", value_clip=0.0),
    "ippo with memory": IPPO(**SMALL, share=ALIKE, recurrent=True),
    "mappo": MAPPO(**SMALL, share=ALIKE, entropy_weight=0.3),
    "mappo of three groups": MAPPO(
        **SMALL,
        share={"pair": ("agent_0", "agent_2"), "one": ("agent_1",), "arm": ("agent_3",)},
        reward="own",
        normalise_advantages=False,
        normalise_values=False,
    ),
}


def played(learner: PPO, *, seed: int = 3) -> FloatArray:
    """Random episodes of agents that sometimes cannot act, with random derived columns."""
    layout, generator = learner.layout(ENVIRONMENT), np.random.default_rng(seed)
    rows = layout.synthetic(generator, 7)
    starts = np.cumsum((0, *layout.action_sizes[:-1])) + layout.available.start
    offered = generator.random((len(rows), sum(layout.action_sizes))) < 0.6
    rows[:, layout.available] = offered
    actions = rows[:, layout.action].astype(int)
    for agent, start in enumerate(starts):
        rows[np.arange(len(rows)), start + actions[:, agent]] = 1.0
    idle = generator.random((len(rows), layout.agents)) < 0.2
    rows[:, layout.action][idle] = NO_ACTION
    rows[:, layout.entries] = np.clip(rows[:, layout.entries] * 2, LOW, HIGH)
    rows[:, layout.columns["log_prob"]] = -1.0 + 0.1 * rows[:, layout.columns["log_prob"]]
    return rows


def network(
    algorithm: Algorithm, role: str, agent: int, widths: list[int], *, memory: bool
) -> list[Tensor]:
    """The layers [W | b] of an agent's network in float64, of which gradients are taken."""
    section = next(
        each for each in algorithm.problem.sections if each.role == role and agent in each.agents
    )
    flat = torch.from_numpy(algorithm.parameters.view(section.id).astype(np.float64))
    shapes: list[tuple[int, ...]] = [(after, before + 1) for before, after in pairwise(widths)]
    if memory:
        shapes[1:2] = [(33, 11), (33, 11), (33,), (33,)]
    if role == "policy" and agent == ARM:
        shapes.insert(0, (widths[-1], 1))
    parts = torch.split(flat, [int(np.prod(shape)) for shape in shapes])
    return [p.view(shape).requires_grad_() for p, shape in zip(parts, shapes, strict=True)]


def outputs(layers: list[Tensor], inputs: Tensor, state: list[Tensor]) -> Tensor:
    """Outputs of one step; a recurrent state is replaced by the one after it."""
    if len(layers) > 3:
        first, of_input, of_state, own_bias, state_bias, last = layers
        hidden = (first @ torch.cat([inputs, torch.ones(1, dtype=torch.float64)])).relu()
        reset, update, new = (of_input @ hidden + own_bias).view(3, -1)
        reset_h, update_h, new_h = (of_state @ state[0] + state_bias).view(3, -1)
        keep = (update + update_h).sigmoid()
        fresh = (new + (reset + reset_h).sigmoid() * new_h).tanh()
        state[0] = (1 - keep) * fresh + keep * state[0]
        return last @ torch.cat([state[0], torch.ones(1, dtype=torch.float64)])
    for number, layer in enumerate(layers):
        inputs = layer @ torch.cat([inputs, torch.ones(1, dtype=torch.float64)])
        inputs = inputs.relu() if number < len(layers) - 1 else inputs
    return inputs


def of_box(before: Tensor, deviation: Tensor, entries: Tensor) -> tuple[Tensor, Tensor]:
    """Log-likelihood and entropy of a clipped action, entry by entry."""
    centre, half = np.add(LOW, HIGH) / 2, np.subtract(HIGH, LOW) / 2
    mean, total, entropy = before.tanh(), [], []
    for entry, value in enumerate(entries):
        spread: Any = torch.distributions.Normal(
            centre[entry] + half[entry] * mean[entry], half[entry] * deviation[entry, 0].exp()
        )
        if value <= LOW[entry]:
            total.append(spread.cdf(value).log())
        elif value >= HIGH[entry]:
            total.append((1 - spread.cdf(value)).log())
        else:
            total.append(spread.log_prob(value) + np.log(half[entry]))
        entropy.append(spread.entropy() - np.log(half[entry]))
    return torch.stack(total).sum(), torch.stack(entropy).sum()


def plain(
    learner: PPO, algorithm: Algorithm, rows: FloatArray, agents: tuple[int, ...]
) -> tuple[Array, Mapping[str, float]]:
    """Gradient and statistics of one group, step by step and agent by agent, as papers state."""
    layout = learner.layout(ENVIRONMENT)
    wide, most = (max(SIZES[agent][part] for agent in agents) for part in (0, 1))
    identities = len(agents) if len(agents) > 1 else 0
    sees = wide if isinstance(learner, IPPO) else 6
    policy = network(
        algorithm, "policy", agents[0], [wide + identities, 11, 11, most], memory=learner.recurrent
    )
    value = network(
        algorithm, "value", agents[0], [sees + identities, 11, 11, 1], memory=learner.recurrent
    )
    terms: list[dict[str, Any]] = []
    for place in episodes_in(rows, layout.length):
        states = [[torch.zeros(11, dtype=torch.float64)] for _ in range(2 * len(agents))]
        for step in torch.from_numpy(rows[place][:-1].astype(np.float64)):
            columns = {name: step[part] for name, part in layout.columns.items()}
            for number, agent in enumerate(agents):
                seen, choices = SIZES[agent]
                first = sum(size for size, _ in SIZES[:agent])
                own = torch.zeros(wide, dtype=torch.float64)
                own[:seen] = step[layout.observation][first : first + seen]
                identity = torch.eye(identities, dtype=torch.float64)[number : number + 1].view(-1)
                start = sum(count for _, count in SIZES[:agent])
                offered = step[layout.available][start : start + choices] > 0
                action, arm = int(step[layout.action][agent]), agent == ARM
                acts = action >= 0 and int(offered.sum()) > (not arm)
                term = {name: column[agent] for name, column in columns.items()}
                inputs = own if isinstance(learner, IPPO) else step[layout.state]
                term["v"] = outputs(value, torch.cat([inputs, identity]), states[number])[0]
                told = outputs(
                    policy[1:] if arm else policy,
                    torch.cat([own, identity]),
                    states[len(agents) + number],
                )
                term["acts"] = acts
                if acts and arm:
                    log_prob, term["entropy"] = of_box(told, policy[0], step[layout.entries])
                elif acts:
                    every = torch.log_softmax(told[:choices][offered], 0)
                    log_prob = every[int(offered[:action].sum())]
                    term["entropy"] = -(every.exp() * every).sum()
                if acts:
                    term["ratio"] = (log_prob - term["log_prob"]).exp()
                terms.append(term)
    acting = [term for term in terms if term["acts"]]
    advantage = torch.stack([term["advantage"] for term in acting])
    if learner.normalise_advantages:
        advantage = (advantage - advantage.mean()) / advantage.std(correction=0)
    ratio = torch.stack([term["ratio"] for term in acting])
    surrogate = torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)
    every_v, before, gae = (
        torch.stack([term[name] for term in terms]) for name in ("v", "value", "advantage")
    )
    old, returns = before, gae + before
    if learner.normalise_values:
        scales = (s for s in algorithm.problem.sections if s.role == "scale")
        (scale,) = (section.id for section in scales if section.agents == agents)
        weight, mean, square = (0.999 * algorithm.parameters.view(scale).astype(float)).tolist()
        weight, mean = weight + 0.001, (mean + 0.001 * returns.mean()) / (weight + 0.001)
        square = (square + 0.001 * (returns**2).mean()) / weight
        deviation = (square - mean**2).sqrt()
        before, returns = (before - mean) / deviation, (returns - mean) / deviation
    errors = (every_v - returns) ** 2
    if learner.value_clip:
        errors = torch.max(errors, (before + (every_v - before).clamp(-0.2, 0.2) - returns) ** 2)
    entropy = torch.stack([term["entropy"] for term in acting]).mean()
    found = {
        "policy_loss": -surrogate.mean(),
        "value_loss": errors.mean() / 2,
        "entropy": entropy,
        "approx_kl": (ratio - 1 - ratio.log()).mean(),
        "clipfrac": ((ratio - 1).abs() > 0.2).double().mean(),
        "explained_variance": 1 - (returns - before).var() / returns.var(),
        "target_mean": (gae + old).mean(),
        "target_deviation": (gae + old).std(correction=0),
    }
    loss = found["policy_loss"] + 0.5 * found["value_loss"] - learner.entropy_weight * entropy
    gradients = torch.autograd.grad(loss, [*policy, *value])
    flat = torch.cat([*(gradient.reshape(-1) for gradient in gradients), torch.zeros(3)]).numpy()
    return flat, {name: each.item() for name, each in found.items()}


@pytest.mark.parametrize("name", LEARNERS)
def test_units_add_up_to_the_gradient_of_the_papers_losses(name: str) -> None:
    learner = LEARNERS[name]
    algorithm, rows = learner.make(ENVIRONMENT, seed=1, device="cpu"), played(learner)
    generator = np.random.default_rng(0)
    for section in algorithm.problem.sections[: 2 * len(learner.members(ENVIRONMENT))]:
        view = algorithm.parameters.view(section.id)
        view += generator.normal(scale=0.3, size=view.shape).astype(np.float32)
    if name == "mappo":
        for section in algorithm.problem.sections[4:6]:
            algorithm.parameters.view(section.id)[:] = 0.01, 0.02, 0.07
    units = range(len(algorithm.problem.units))
    updates = dict(algorithm.gradients.compute(rows, units, iteration=0))
    for agents in (own.agents for own in learner.members(ENVIRONMENT)):
        own = [unit for unit in units if algorithm.problem.units[unit].agents == agents]
        summed = np.sum([updates[unit].astype(np.float64) for unit in own], axis=0)
        gradient, statistics = plain(learner, algorithm, rows, agents)
        found = summed[: -ENTRIES.size] / SCALE
        np.testing.assert_allclose(found, gradient, rtol=0, atol=1e-5 * np.abs(gradient).max())
        assert ENTRIES.sums(summed[-ENTRIES.size :]) == pytest.approx(statistics, rel=1e-5)


def test_clipped_actions_have_probability_one() -> None:
    box = Continuous((-2.0,), (6.0,))
    outputs_ = torch.tensor([0.3, np.log(0.7)], dtype=torch.float64)
    inside = torch.linspace(-2, 6, 100_001, dtype=torch.float64)[1:-1, None]
    density, _ = clipped_gaussian(outputs_.expand(len(inside), 2), inside, box)
    bounds, _ = clipped_gaussian(
        outputs_.expand(2, 2), torch.tensor([[-2.0], [6.0]], dtype=torch.float64), box
    )
    within = torch.trapezoid(density.exp(), inside[:, 0] / 4).item()
    assert within + bounds.exp().sum().item() == pytest.approx(1.0, abs=1e-4)


def test_agents_of_unlike_actions_do_not_share() -> None:
    with pytest.raises(ConfigError, match=r"agent_0 and agent_3 cannot share .* algorithm\.share"):
        IPPO().problem(ENVIRONMENT)


def test_the_scale_of_values_follows_their_targets_without_bias() -> None:
    assert ValueScale.of(np.zeros(3)) == (0.0, 1.0)
    once = ValueScale.moved(np.zeros(3), 48.0, 11.0)
    assert ValueScale.of(once) == pytest.approx((48.0, 11.0))
    twice = ValueScale.moved(once, 50.0, 11.0)
    assert ValueScale.of(twice) == pytest.approx((49.0, np.sqrt(122.0)), rel=1e-3)


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


@pytest.mark.parametrize("terminated", [False, True])
def test_advantages_are_the_discounted_sums_of_temporal_differences(terminated: bool) -> None:
    generator, discount, trace = np.random.default_rng(2), 0.9, 0.7
    reward, value = generator.normal(size=(6, 2)), generator.normal(size=(7, 2))
    continues = np.ones((6, 1))
    continues[-1] = not terminated
    errors = reward + discount * continues * value[1:] - value[:-1]
    expected = [
        sum((discount * trace) ** ahead * errors[step + ahead] for ahead in range(6 - step))
        for step in range(6)
    ]
    arrays = (array.astype(np.float32) for array in (reward, continues, value))
    found = advantages(*arrays, discount=discount, trace=trace)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_the_advantage_of_the_longest_trace_is_the_return_less_the_value() -> None:
    reward, value = np.ones((4, 1), np.float32), np.full((5, 1), 3.0, np.float32)
    ends = np.array([[1], [1], [1], [0]], np.float32)
    found = advantages(reward, ends, value, discount=1.0, trace=1.0)
    np.testing.assert_array_equal(found[:, 0], [1.0, 0.0, -1.0, -2.0])


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
    return LocalRun(load(options=TINY | chosen).check().config, coded=False)


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


def test_an_agent_that_cannot_act_changes_no_loss_of_a_policy() -> None:
    learner = LEARNERS["ippo of networks apart"]
    layout, rows = learner.layout(ENVIRONMENT), played(learner)
    rows[:, layout.action.start] = NO_ACTION
    algorithm = learner.make(ENVIRONMENT, seed=1, device="cpu")
    size = algorithm.problem.sections[0].size
    for _, update in algorithm.gradients.compute(rows, range(3), iteration=0):
        assert not update[:size].any()
        assert update[size : -ENTRIES.size].any()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"micro_batches": 9}, "micro_batches = 9 must lie between 1 and"),
        ({"clip": 0.0}, "algorithm.clip must be above 0"),
        ({"epochs": 0}, "epochs must be at least 1"),
        ({"anneal_iterations": -1}, "must not be below 0"),
    ],
)
def test_impossible_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        IPPO(**settings)


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
