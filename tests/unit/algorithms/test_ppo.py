"""PPO's losses against a plain statement in float64, and its settings."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fullrank.algorithms import Algorithm, EnvironmentSpec
from fullrank.algorithms.autograd import AutogradGradients
from fullrank.algorithms.fused_ppo import FusedPPO
from fullrank.algorithms.groups import Networks
from fullrank.algorithms.ippo import IPPO
from fullrank.algorithms.likelihoods import clipped_gaussian
from fullrank.algorithms.mappo import MAPPO
from fullrank.algorithms.on_policy import ENTRIES, LEAST, Steps, ValueScale, WholeMinibatch
from fullrank.algorithms.ppo import PPO
from fullrank.algorithms.roles import Divided
from fullrank.algorithms.trajectories import SCALE
from fullrank.common.errors import ConfigError
from fullrank.common.types import Array, FloatArray
from fullrank.environments import AgentSpec, Continuous, Discrete, MultiDiscrete
from fullrank.environments.base import ActionSpec
from fullrank.networks.parameters import GroupedParameters
from fullrank.replay.episodes import NO_ACTION, episodes_in

SIZES = ((7, 5), (4, 3), (7, 4), (5, 2), (6, 5))
"""Entries of the observation, and actions or entries of the action, of each agent."""
ARM, LOW, HIGH = 3, (-1.0, 0.0), (1.0, 3.0)
"""The agent with continuous actions, and their range."""
HAND, CHOICES = 4, (2, 3)
"""The agent with two choices at once, and the number of actions in each."""
OF_VECTORS: dict[int, ActionSpec] = {ARM: Continuous(LOW, HIGH), HAND: MultiDiscrete(CHOICES)}
ENVIRONMENT = EnvironmentSpec(
    agents=tuple(
        AgentSpec(
            name=f"agent_{number}",
            observation_size=seen,
            action=OF_VECTORS.get(number, Discrete(actions)),
        )
        for number, (seen, actions) in enumerate(SIZES)
    ),
    state_size=6,
)
ALIKE = {"team": ("agent_0", "agent_1", "agent_2"), "arm": ("agent_3",), "hand": ("agent_4",)}
SMALL: dict[str, Any] = {"batch_size": 7, "micro_batches": 3, "hidden": 11, "clip_norm": 1e9}
LEARNERS: dict[str, PPO] = {
    "ippo": IPPO(**SMALL, share=ALIKE),
    "ippo of networks apart": IPPO(**SMALL, share="none", value_clip=0.0),
    "ippo with memory": IPPO(**SMALL, share=ALIKE, recurrent=True),
    "ippo of normalised layers": IPPO(**SMALL, share=ALIKE, layer_norm=True),
    "mappo": MAPPO(**SMALL, share=ALIKE, entropy_weight=0.3, clock=7),
    "mappo of four groups": MAPPO(
        **SMALL,
        share={
            "pair": ("agent_0", "agent_2"),
            "one": ("agent_1",),
            "arm": ("agent_3",),
            "hand": ("agent_4",),
        },
        reward="own",
        normalise_advantages=False,
        normalise_values=False,
    ),
}


def played(
    learner: PPO, *, seed: int = 3, environment: EnvironmentSpec = ENVIRONMENT
) -> FloatArray:
    """Random episodes of agents that sometimes cannot act or are out of the game.

    Derived columns are random.
    """
    layout, generator = learner.layout(environment), np.random.default_rng(seed)
    rows = layout.synthetic(generator, 7)
    starts = np.cumsum((0, *layout.action_sizes[:-1])) + layout.available.start
    offered = generator.random((len(rows), sum(layout.action_sizes))) < 0.6
    rows[:, layout.available] = offered
    actions = rows[:, layout.action].astype(int)
    for agent, start in enumerate(starts):
        rows[np.arange(len(rows)), start + actions[:, agent]] = 1.0
    idle = generator.random((len(rows), layout.agents)) < 0.2
    rows[:, layout.action][idle] = NO_ACTION
    arm, hand = np.split(rows[:, layout.entries], [len(LOW)], axis=1)
    rows[:, layout.entries][:, : len(LOW)] = np.clip(arm * 2, LOW, HIGH)
    first = starts[HAND]
    for part, size in zip((slice(2), slice(2, 5)), CHOICES, strict=True):
        chosen = np.eye(size, dtype=np.float32)[hand[:, part].argmax(axis=1)]
        rows[:, layout.entries][:, len(LOW) :][:, part] = chosen
        rows[:, first : first + size] = np.maximum(rows[:, first : first + size], chosen)
        first += size
    rows[:, layout.columns["log_prob"]] = -1.0 + 0.1 * rows[:, layout.columns["log_prob"]]
    if layout.own_rewards:
        gone = generator.random((len(rows), layout.agents)) < 0.2
        rows[:, layout.earns][gone], rows[:, layout.action][gone] = 0.0, NO_ACTION
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


def outputs(
    layers: list[Tensor], inputs: Tensor, state: list[Tensor], *, normalised: bool
) -> Tensor:
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
        if normalised and number < len(layers) - 1:
            inputs = (inputs - inputs.mean()) / (inputs.var(correction=0) + 1e-5).sqrt()
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


def of_choices(told: Tensor, offered: Tensor, taken: Tensor) -> tuple[Tensor, Tensor]:
    """Log-likelihood and entropy of the choices, each a distribution over what is offered."""
    total, entropy = [], []
    for part in (slice(2), slice(2, 5)):
        single: Any = torch.distributions.Categorical(
            logits=told[part].masked_fill(~offered[part], -1e9)
        )
        total.append(single.log_prob(taken[part].argmax()))
        entropy.append(single.entropy())
    return torch.stack(total).sum(), torch.stack(entropy).sum()


def plain(
    learner: PPO, algorithm: Algorithm, rows: FloatArray, agents: tuple[int, ...]
) -> tuple[Array, Mapping[str, float]]:
    """Gradient and statistics of one group, step by step and agent by agent, as papers state."""
    layout = learner.layout(ENVIRONMENT)
    wide, most = (max(SIZES[agent][part] for agent in agents) for part in (0, 1))
    identities = len(agents) if len(agents) > 1 else 0
    sees = wide if isinstance(learner, IPPO) else layout.state_entries
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
                acts = action >= 0 and int(offered.sum()) > (agent not in OF_VECTORS)
                term = {name: column[agent] for name, column in columns.items()}
                inputs = own if isinstance(learner, IPPO) else step[layout.state]
                seen_by = torch.cat([inputs, identity])
                through = partial(outputs, normalised=learner.layer_norm)
                term["v"] = through(value, seen_by, states[number])[0]
                told = through(
                    policy[1:] if arm else policy,
                    torch.cat([own, identity]),
                    states[len(agents) + number],
                )
                term["acts"] = acts
                term["earns"] = not layout.own_rewards or bool(step[layout.earns][agent])
                if acts and arm:
                    log_prob, term["entropy"] = of_box(told, policy[0], step[layout.entries][:2])
                elif acts and agent == HAND:
                    log_prob, term["entropy"] = of_choices(told, offered, step[layout.entries][2:])
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
    paid = [term for term in terms if term["earns"]]
    every_v, before, gae = (
        torch.stack([term[name] for term in paid]) for name in ("v", "value", "advantage")
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
        for section in (each for each in algorithm.problem.sections if each.role == "scale"):
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


def test_moments_of_observations_at_the_bound_of_an_entry_are_no_clamped_gradient() -> None:
    """The fine half of a moment of 2^-11 is 1/2, and exact."""
    learner = replace(LEARNERS["ippo"], normalise_observations=True, micro_batches=1)
    algorithm, rows = learner.make(ENVIRONMENT, seed=1, device="cpu"), played(learner)
    rows[:, learner.layout(ENVIRONMENT).observation] = 2.0**-11
    for _, update in algorithm.gradients.compute(rows, range(3), iteration=0):
        gradient, statistics = np.split(update, [-ENTRIES.size])
        assert np.abs(gradient).max() == 0.5
        assert not ENTRIES.clamped_units(statistics)


@pytest.mark.parametrize("state_size", [0, 6])
@pytest.mark.parametrize("name", ["ippo", "mappo"])
def test_moments_are_those_of_what_agents_observe_that_have_a_choice(
    name: str, state_size: int
) -> None:
    """What is left of an agent that is out of the game moves no averages."""
    learner = replace(LEARNERS[name], normalise_observations=True)
    learner = replace(learner, clock=5) if isinstance(learner, MAPPO) else learner
    environment = replace(ENVIRONMENT, state_size=state_size)
    algorithm, layout = learner.make(environment, seed=1, device="cpu"), learner.layout(environment)
    rows = played(learner, environment=environment)
    steps = Steps([rows], layout, device=torch.device("cpu"))
    other, seen = rows.copy(), np.cumsum((0, *layout.observation_sizes))
    for agent, idle in enumerate(steps.acts.numpy().T == 0.0):
        assert 0 < idle.sum() < len(rows)
        other[idle, seen[agent] : seen[agent + 1]] = 100.0
    assert isinstance(algorithm.parameters, GroupedParameters)
    groups = [own.agents for own in learner.members(environment)]
    nets = Networks(partial(learner.networks, environment), tuple(groups), algorithm.parameters)
    for own in learner.members(environment):
        found = []
        for each in (rows, other):
            steps = Steps([each], layout, device=torch.device("cpu"))
            whole = WholeMinibatch.of_steps(steps, own.agents)
            found.append(learner.moments(own, nets, steps, whole))
        assert {*found[0]} == ({"policy", "value"} if name == "mappo" else {"policy"})
        for role, entries in found[0].items():
            assert entries.any()
            np.testing.assert_array_equal(entries, found[1][role])


HAND_WRITTEN = [name for name in LEARNERS if "memory" not in name and "normalised" not in name]


@pytest.mark.parametrize("name", HAND_WRITTEN)
def test_the_hand_written_passes_compute_the_losses_that_the_algorithm_states(name: str) -> None:
    learner = replace(LEARNERS[name], batch_size=5, micro_batches=2)
    algorithm, rows = learner.make(ENVIRONMENT, seed=1, device="cpu"), played(learner)
    rows = rows[
        : [place.stop for place in episodes_in(rows, learner.layout(ENVIRONMENT).length)][4]
    ]
    parameters = algorithm.parameters
    assert isinstance(parameters, GroupedParameters)
    members = learner.members(ENVIRONMENT)
    groups = tuple(own.agents for own in members)
    nets = Networks(partial(learner.networks, ENVIRONMENT), groups, parameters)
    stated = learner.readable(algorithm.problem, members, nets, ENVIRONMENT.agents)
    assert isinstance(algorithm.gradients, FusedPPO)
    units = range(len(algorithm.problem.units))
    found = dict(algorithm.gradients.compute(rows, units, iteration=0))
    for unit, expected in stated.compute(rows, units, iteration=0):
        gradient, statistics = np.split(expected, [-ENTRIES.size])
        own, shares = np.split(found[unit], [-ENTRIES.size])
        np.testing.assert_allclose(own, gradient, rtol=0, atol=3e-6 * np.abs(gradient).max())
        assert ENTRIES.sums(shares) == pytest.approx(ENTRIES.sums(statistics), rel=1e-4, abs=1e-6)


def test_the_bits_of_a_unit_depend_on_no_company_order_or_thread() -> None:
    learner = LEARNERS["mappo of four groups"]
    algorithm, rows = learner.make(ENVIRONMENT, seed=1, device="cpu"), played(learner)
    units = range(len(algorithm.problem.units))
    together = dict(algorithm.gradients.compute(rows, units, iteration=0))
    with ThreadPoolExecutor(1) as executor:
        for some in [*([unit] for unit in units), [*reversed(units)], [0, 1, 2]]:
            for unit, update in algorithm.gradients.compute(rows, some, iteration=0):
                np.testing.assert_array_equal(update, together[unit])
            assert isinstance(algorithm.gradients, Divided)
            algorithm.gradients.run_beside(executor)  # from the second call on


@dataclass(frozen=True, slots=True, kw_only=True)
class Bolder(IPPO):
    """A team of one's own, with another loss."""

    def losses(self, *facts: Any) -> Any:
        losses, statistics = IPPO.losses(self, *facts)
        return {role: 2 * loss for role, loss in losses.items()}, statistics


@pytest.mark.parametrize(
    "learner",
    [Bolder(share=ALIKE), LEARNERS["ippo with memory"], IPPO(share=ALIKE, layer_norm=True)],
)
def test_other_losses_and_other_networks_learn_by_autograd(learner: PPO) -> None:
    gradients = learner.make(ENVIRONMENT, seed=0, device="cpu").gradients
    assert isinstance(gradients, AutogradGradients)


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


@pytest.mark.parametrize("flat", [(0.0, 0.0), (1.0, 1.0 + 1e-12)])
def test_entries_of_one_value_count_in_neither_likelihood_nor_entropy(
    flat: tuple[float, float],
) -> None:
    def gradient(box: Continuous, action: list[float], outputs_: Tensor) -> Tensor:
        both = torch.stack(clipped_gaussian(outputs_, torch.tensor([action]), box))
        return torch.autograd.grad(both.sum(), outputs_)[0]

    outputs_ = torch.tensor([[0.3, -0.2, 0.1, -0.4]], requires_grad=True)
    found = gradient(Continuous((flat[0], -1.0), (flat[1], 1.0)), [flat[0], 0.3], outputs_)
    alone = outputs_.detach()[:, 1::2].clone().requires_grad_()
    assert found[:, ::2].tolist() == [[0.0, 0.0]]
    assert torch.equal(found[:, 1::2], gradient(Continuous((-1.0,), (1.0,)), [0.3], alone))
    none, _ = clipped_gaussian(outputs_[:, ::2], torch.zeros(1, 1), Continuous((0.0,), (0.0,)))
    assert none.tolist() == [0.0]


def test_agents_of_unlike_actions_do_not_share() -> None:
    with pytest.raises(ConfigError, match=r"agent_0 and agent_3 cannot share .* algorithm\.share"):
        IPPO().problem(ENVIRONMENT)


def test_the_scale_of_values_follows_their_targets_without_bias() -> None:
    assert ValueScale.of(np.zeros(3)) == (0.0, 1.0)
    once = ValueScale.moved(np.zeros(3), 48.0, 11.0)
    assert ValueScale.of(once) == pytest.approx((48.0, 11.0))
    twice = ValueScale.moved(once, 50.0, 11.0)
    assert ValueScale.of(twice) == pytest.approx((49.0, np.sqrt(122.0)), rel=1e-3)


@pytest.mark.parametrize("mean", [1000.0, -11.0])
def test_values_that_hardly_differ_are_scaled_by_a_share_of_their_mean(mean: float) -> None:
    """Averages of float32 leave anything between nothing and the share, or a little more."""
    averages, least = np.zeros(3), ValueScale.SHARE * abs(mean)
    for _ in range(3000):
        averages = ValueScale.moved(averages, mean, 1e-4 * abs(mean)).astype(np.float32)
        averages = averages.astype(np.float64)
        found, deviation = ValueScale.of(averages)
        assert found == pytest.approx(mean, rel=1e-5)
        assert 0.999 * least < deviation < 2.0 * least


def test_a_deviation_above_a_share_of_the_mean_keeps_its_bits() -> None:
    mean, deviation = 48.0, 48.0 * 1.01 * ValueScale.SHARE
    square = mean * mean + deviation * deviation
    _, found = ValueScale.of(np.array([1.0, mean, square]))
    assert found == np.sqrt(square - mean * mean) + LEAST


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
