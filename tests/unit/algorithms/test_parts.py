"""Micro-batches of actor-critics: their sums are the full-batch gradient, exactly divided."""

from collections import Counter
from collections.abc import Mapping
from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fullrank.algorithms import Algorithm, EnvironmentSpec
from fullrank.algorithms.base import layout_of
from fullrank.algorithms.maddpg import MADDPG
from fullrank.algorithms.mfac import MFAC
from fullrank.algorithms.optimiser import MOST, RAISED
from fullrank.algorithms.transitions import Draws, Transitions
from fullrank.algorithms.updates import LARGEST, Parts
from fullrank.common.errors import ConfigError, GradientTooLarge, Unsound
from fullrank.common.types import FloatArray
from fullrank.environments import AgentSpec, Continuous, Discrete
from fullrank.networks.modules import views, write
from fullrank.replay.samplers import Sample
from fullrank.replay.table import TABLE
from fullrank.training.centralised import Centralised

SEED, ITERATION = 11, 3
CPU = torch.device("cpu")
AGENTS = (
    AgentSpec(name="scout", observation_size=7, action=Discrete(5, relaxed=True)),
    AgentSpec(name="gripper", observation_size=13, action=Continuous((-1.0, 0.0), (1.0, 3.0))),
    AgentSpec(name="guard", observation_size=7, action=Discrete(3), side="lone"),
)
ENVIRONMENT = EnvironmentSpec(agents=AGENTS)
MEANS: Mapping[str, Any] = {"hidden": 20, "ddpg_sides": ("lone",), "clip_norm": 1e9}
"""Settings with which the optimiser sees the gradient of the mean as it is."""


def minibatch(size: int, *, alive: float = 0.8) -> FloatArray:
    """Transitions in which agents die or are dead; the last agent never acts."""
    layout, generator = layout_of(AGENTS), np.random.default_rng(0)
    rows = generator.standard_normal((size, layout.row_size), dtype=np.float32)
    rows[:, layout.terminated] = generator.random((size, layout.agents)) < 0.2
    rows[:, layout.alive] = generator.random((size, layout.agents)) < alive
    rows[:, layout.alive.stop - 1] = 0.0
    return rows


def summed(algorithm: Algorithm, rows: FloatArray) -> FloatArray:
    """The targets of an iteration."""
    compute = Centralised(algorithm.problem, algorithm.gradients, seed=SEED).compute
    return np.asarray(compute(rows, iteration=ITERATION).updates)


class PartDraws:
    """The draws of all parts, one after the other, for the losses of the whole minibatch."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def action(self, purpose: str, agent: int, outputs: Tensor, available: Tensor | None) -> Tensor:
        return torch.cat(
            [
                Draws(AGENTS, seed=SEED, key=(ITERATION, part), device=CPU).action(
                    purpose, agent, outputs[own.start : own.stop], available
                )
                for part, own in enumerate(self._parts.ranges)
            ]
        )


def full_batch(config: MADDPG, algorithm: Algorithm, rows: FloatArray) -> list[FloatArray]:
    """Each agent's gradient of its losses over the whole minibatch, in float64 by autograd."""
    problem, nets = algorithm.problem, SimpleNamespace()
    for section in problem.sections:
        if section.role == "exponent":
            continue
        (agent,) = section.agents
        network = config.networks(ENVIRONMENT, agent)[section.role.removeprefix("target_")]
        for parameter, view in views(
            network, torch.from_numpy(algorithm.parameters.view(section.id).copy())
        ):
            parameter.data = view.clone()
        vars(nets).setdefault(section.role, {})[agent] = network.double()
    batch = Transitions(rows, AGENTS, device=CPU)
    for name, value in vars(batch).items():
        if name != "agents":
            doubled = [None if part is None else part.double() for part in value]
            setattr(batch, name, tuple(doubled))
    gradients = []
    for agent in range(len(AGENTS)):
        draws = PartDraws(config.parts() or Parts(len(rows), 1))
        losses, _ = config.losses(agent, nets, batch, draws)  # type: ignore[arg-type]
        flat = []
        for role, loss in losses.items():
            network = getattr(nets, role)[agent]
            found = torch.autograd.grad(loss, list(network.parameters()), materialize_grads=True)
            for parameter, gradient in zip(network.parameters(), found, strict=True):
                parameter.data = gradient
            row = torch.zeros(sum(parameter.numel() for parameter in network.parameters())).double()
            write(network, row)
            flat.append(row)
        gradients.append(torch.cat(flat).numpy())
    return gradients


@pytest.mark.parametrize("layers", [1, 2], ids=["autograd", "fused"])
@pytest.mark.parametrize(
    ("batch", "count"),
    [
        *((48, 4), (7, 3)),
        *(pytest.param(*size, marks=pytest.mark.thorough) for size in ((48, 2), (50, 3), (5, 5))),
    ],
)
@pytest.mark.parametrize("kind", [MADDPG, MFAC])
def test_the_parts_sum_to_the_gradient_of_the_whole_minibatch(
    kind: type[MADDPG], batch: int, count: int, layers: int
) -> None:
    config = kind(batch_size=batch, micro_batches=count, hidden_layers=layers, **MEANS)
    algorithm, rows = config.make(ENVIRONMENT, seed=SEED, device="cpu"), minibatch(batch)
    sums = torch.from_numpy(summed(algorithm, rows))
    for agent, expected in enumerate(full_batch(config, algorithm, rows)):
        weight = sums[agent, len(expected)].clamp_min(2.0**-100)
        gradient = (sums[agent, : len(expected)] / weight).numpy()
        scale = max(1.0, float(np.abs(expected).max()))
        assert (np.abs(expected).max() > 1e-3) == (agent != len(AGENTS) - 1)
        np.testing.assert_allclose(gradient, expected, rtol=0, atol=1e-6 * scale)


@pytest.mark.parametrize("kind", [MADDPG, MFAC])
def test_what_a_group_learns_does_not_depend_on_the_number_of_parts(kind: type[MADDPG]) -> None:
    """Agents of a group act in 40, 7 and 0 of 48 transitions; their policies draw nothing."""
    action = Continuous((-1.0,), (1.0,))
    agents = [AgentSpec(name=name, observation_size=4, action=action) for name in "abc"]
    environment, generator = EnvironmentSpec(agents=tuple(agents)), np.random.default_rng(1)
    layout = environment.layout
    rows = generator.standard_normal((48, layout.row_size), dtype=np.float32)
    rows[:, layout.reward] = (0.0, 5.0, 50.0)
    rows[:, layout.terminated] = 0.0
    rows[:, layout.alive] = np.arange(48)[:, None] < (40, 7, 0)

    def learned(count: int) -> tuple[FloatArray, Mapping[str, float]]:
        config = kind(batch_size=48, micro_batches=count, share="all", hidden=20, clip_norm=1e9)
        algorithm = config.make(environment, seed=SEED, device="cpu")
        statistics = dict(algorithm.optimiser.step(summed(algorithm, rows)))
        return algorithm.optimiser.state()["moment/0"], statistics

    moment, statistics = learned(1)
    scale = float(np.abs(moment).max())
    for count in (2, 5):
        other, said = learned(count)
        np.testing.assert_allclose(other, moment, rtol=0, atol=1e-6 * scale)
        assert said == pytest.approx(statistics, rel=1e-5)


@pytest.mark.parametrize("size", [7, 37, 100])
def test_transitions_of_a_group_whose_agents_always_act_weigh_as_if_each_were_alone(
    size: int,
) -> None:
    rows = minibatch(size)
    rows[:, layout_of(AGENTS).alive] = 1.0
    grouped, alone = (
        Transitions(rows, AGENTS, groups=groups, device=CPU).weight for groups in (((0, 1, 2),), ())
    )
    assert all(map(torch.equal, grouped, alone))


@given(batch=st.integers(1, 5000), share=st.floats(0, 1))
def test_parts_cover_the_minibatch_and_differ_by_one_transition_at_most(
    batch: int, share: float
) -> None:
    parts = Parts(batch, 1 + int(share * (batch - 1)))
    assert [item for own in parts.ranges for item in own] == list(range(batch))
    sizes = [len(own) for own in parts.ranges]
    assert max(sizes) - min(sizes) <= 1
    assert min(sizes) >= 1


def test_each_part_is_a_draw_of_its_own_whatever_the_others_drew() -> None:
    """Of two transitions and two parts of two, all sixteen minibatches are equally frequent."""
    first, second = Parts(4, 2).ranges
    seen: Counter[tuple[tuple[int, ...], tuple[int, ...]]] = Counter()
    for iteration in range(4096):
        drawn = Sample(table=TABLE, seed=SEED, iteration=iteration, tail=0, head=2, size=4)
        rows = drawn.positions().tolist()
        seen[(*rows[first.start : first.stop],), (*rows[second.start : second.stop],)] += 1
    pairs = list(product((0, 1), repeat=2))
    for both in product(pairs, pairs):
        assert abs(seen[both] - 256) < 5 * 16, both


@pytest.mark.parametrize("layers", [1, 2], ids=["autograd", "fused"])
def test_a_step_clips_the_variables_of_the_mean_and_not_of_its_parts(layers: int) -> None:
    """One part and four step to the same parameters, but for rounding and the draws."""
    rows = minibatch(32, alive=1.0)
    settings = {**MEANS, "clip_norm": 0.05, "batch_size": 32, "hidden_layers": layers}
    config = MADDPG(micro_batches=4, **settings)
    algorithm = config.make(ENVIRONMENT, seed=SEED, device="cpu")
    expected = full_batch(config, algorithm, rows)
    algorithm.optimiser.step(summed(algorithm, rows))
    state = algorithm.optimiser.state()
    for agent, gradient in enumerate(expected):
        clipped = []
        start = 0
        for network in config.networks(ENVIRONMENT, agent).values():
            row = torch.from_numpy(gradient[start:][: sum(p.numel() for p in network.parameters())])
            start += len(row)
            for _, variable in views(network, row):
                variable.mul_(0.05 / max(0.05, float(variable.norm())))
            clipped.append(row)
        moment = state[f"moment/{agent}"]  # after one step: (1 - 0.9) times the gradient
        np.testing.assert_allclose(moment, 0.1 * torch.cat(clipped).numpy(), rtol=0, atol=1e-7)


def paid(reward: float) -> FloatArray:
    """A minibatch in which agents are paid so much, once."""
    rows = minibatch(8, alive=1.1)
    rows[0, layout_of(AGENTS).reward] = reward
    return rows


@pytest.mark.parametrize("layers", [1, 2], ids=["autograd", "fused"])
def test_a_part_beyond_the_range_of_exact_sums_is_left_out_once_and_raises_the_exponent(
    layers: int,
) -> None:
    config = MADDPG(batch_size=8, micro_batches=2, hidden_layers=layers, **MEANS)
    algorithm, rows = config.make(ENVIRONMENT, seed=SEED, device="cpu"), paid(5e4)
    before = algorithm.optimiser.state()
    statistics = algorithm.optimiser.step(summed(algorithm, rows))
    assert {name for name in statistics if name.startswith("clamped")} == {
        f"clamped/gradient/{agent}" for agent in (0, 1)
    }
    assert "critic_loss/0" not in statistics
    after = algorithm.optimiser.state()
    assert [float(after[f"exponent/{agent}"][0]) for agent in (0, 1)] == [RAISED, RAISED]
    assert not {"exponent/2"} & after.keys()  # it never acts
    np.testing.assert_array_equal(after["critic/0"], before["critic/0"])
    sums = torch.from_numpy(summed(algorithm, rows))
    for agent, expected in enumerate(full_batch(config, algorithm, rows)[:2]):
        gradient = (sums[agent, : len(expected)] / sums[agent, len(expected)]).numpy()
        scale = float(np.abs(expected).max())
        assert LARGEST < scale < LARGEST * 2**RAISED
        np.testing.assert_allclose(gradient, expected, rtol=0, atol=1e-6 * scale)
    statistics = algorithm.optimiser.step(sums.numpy())
    assert not any(name.startswith("clamped") for name in statistics)
    assert statistics["critic_loss/0"] > 1e8


def test_an_exponent_falls_again_where_sums_are_small_and_is_restored_with_a_checkpoint() -> None:
    config = MADDPG(batch_size=8, micro_batches=2, **MEANS)
    algorithm = config.make(ENVIRONMENT, seed=SEED, device="cpu")
    algorithm.optimiser.step(summed(algorithm, paid(5e4)))
    algorithm.optimiser.step(summed(algorithm, paid(1.0)))
    state = algorithm.optimiser.state()
    assert float(state["exponent/0"][0]) == RAISED - 1
    other = config.make(ENVIRONMENT, seed=SEED, device="cpu")
    other.optimiser.load(state)
    assert summed(other, paid(1e4)).tobytes() == summed(algorithm, paid(1e4)).tobytes()
    for _ in range(RAISED):
        algorithm.optimiser.step(summed(algorithm, paid(1.0)))
    assert not {name for name in algorithm.optimiser.state() if name.startswith("exponent")}


@pytest.mark.parametrize("layers", [1, 2], ids=["autograd", "fused"])
def test_a_gradient_beyond_the_largest_exponent_ends_the_run_with_one_line(layers: int) -> None:
    config = MADDPG(batch_size=8, micro_batches=2, hidden_layers=layers, **MEANS)
    algorithm, rows = config.make(ENVIRONMENT, seed=SEED, device="cpu"), paid(1e12)
    for _ in range(MOST // RAISED):
        algorithm.optimiser.step(summed(algorithm, rows))
    before = {key: part.tobytes() for key, part in algorithm.optimiser.state().items()}
    with pytest.raises(
        GradientTooLarge, match=r"agent 0 .*exceeds 524288.*micro_batches = 1"
    ) as error:
        algorithm.optimiser.step(summed(algorithm, rows))
    assert "\n" not in str(error.value)
    assert {key: part.tobytes() for key, part in algorithm.optimiser.state().items()} == before


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("layers", [1, 2], ids=["autograd", "fused"])
def test_a_part_whose_gradient_is_not_finite_is_named(value: float, layers: int) -> None:
    config = MADDPG(batch_size=8, micro_batches=2, hidden_layers=layers, **MEANS)
    algorithm = config.make(ENVIRONMENT, seed=SEED, device="cpu")
    with pytest.raises(Unsound, match="critic network of agent 0") as error:
        summed(algorithm, paid(value))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("count", [0, 17])
def test_there_are_no_more_parts_than_transitions(count: int) -> None:
    with pytest.raises(ConfigError) as error:
        MADDPG(batch_size=16, micro_batches=count)
    assert str(error.value) == (
        f"algorithm.micro_batches = {count} must lie between 1 and algorithm.batch_size = 16"
    )
