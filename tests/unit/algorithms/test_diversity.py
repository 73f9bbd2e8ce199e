"""The term of the loss that keeps containers apart, against plain loops in float64."""

import math
from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fullrank.algorithms.container_learner import Diversity, divergence
from fullrank.common.types import Array

HEADS, STEPS, EPISODES, AGENTS, ACTIONS = 3, 5, 4, 2, 4
LENGTHS = (5, 3, 4, 1)


def softmax(values: list[float]) -> list[float]:
    powers = [math.exp(value - max(values)) for value in values]
    return [power / sum(powers) for power in powers]


def loop(values: Array, available: Array) -> float:
    """The mean divergence, by the equation."""
    total = 0.0
    for step, episode, agent in product(range(STEPS), range(EPISODES), range(AGENTS)):
        allowed = [action for action in range(ACTIONS) if available[step, episode, agent, action]]
        if step >= LENGTHS[episode] or not allowed:
            continue
        at = values[:, step, episode, agent]
        policies = [softmax([head[action] for action in allowed]) for head in at]
        means = [sum(each) / HEADS for each in zip(*policies, strict=True)]
        total += sum(p * math.log(p / mean) for p, mean in zip(policies[0], means, strict=True))
    return total / (AGENTS * sum(LENGTHS))


def drawn(seed: int = 0) -> tuple[Array, Any]:
    """Values of all heads, and the parts of a batch that the term reads."""
    generator = np.random.default_rng(seed)
    values = generator.standard_normal((HEADS, STEPS + 1, EPISODES, AGENTS, ACTIONS))
    available = generator.random((STEPS + 1, EPISODES, AGENTS, ACTIONS)) < 0.7
    available[0, 0, 0] = False  # an agent that cannot act
    valid = np.arange(STEPS)[:, None] < np.array(LENGTHS)
    batch = SimpleNamespace(
        available=torch.from_numpy(available), valid=torch.from_numpy(valid.astype(np.float64))
    )
    return values, batch


def test_term_and_gradient_are_those_of_a_plain_loop() -> None:
    diversity = Diversity()
    array, batch = drawn()
    available = batch.available.numpy()
    values = torch.from_numpy(array).requires_grad_()
    apart = diversity.mean_divergence(values, batch)
    term = diversity.penalty(apart)
    wanted = loop(array, available)
    assert apart.item() == pytest.approx(wanted, rel=1e-12)
    assert term.item() == pytest.approx(
        diversity.weight * (wanted - diversity.target) ** 2, rel=1e-12
    )
    (gradient,) = torch.autograd.grad(term, values)
    generator, size = np.random.default_rng(1), 1e-5
    for place in generator.integers(0, array.shape, size=(40, array.ndim)).tolist():
        ends = []
        for sign in (1, -1):
            moved = array.copy()
            moved[tuple(place)] += sign * size
            reached = loop(moved, available)
            ends.append(diversity.weight * (reached - diversity.target) ** 2)
        slope = (ends[0] - ends[1]) / (2 * size)
        assert gradient[tuple(place)].item() == pytest.approx(slope, rel=1e-5, abs=1e-9)


@given(
    heads=st.integers(1, 6),
    spread=st.floats(0, 1e4),
    seed=st.integers(0, 2**32 - 1),
)
def test_heads_are_at_most_log_n_apart(heads: int, spread: float, seed: int) -> None:
    generator = np.random.default_rng(seed)
    values = torch.from_numpy(spread * generator.standard_normal((heads, 20, 5)))
    available = torch.from_numpy(generator.random((20, 5)) < 0.6)
    apart = divergence(values, available)
    assert torch.isfinite(apart).all()
    assert apart.min() >= -1e-9
    assert apart.max() <= math.log(heads) + 1e-9


def test_heads_that_never_agree_are_log_n_apart() -> None:
    values = 1e3 * torch.eye(4, dtype=torch.float64)[:, None]
    apart = divergence(values, torch.ones(1, 4, dtype=torch.bool))
    assert apart.item() == pytest.approx(math.log(4))


def test_padding_changes_nothing() -> None:
    values, batch = drawn()
    other = values.copy()
    for episode, length in enumerate(LENGTHS):
        other[:, length:, episode] = 7.0
    reached = [
        Diversity().mean_divergence(torch.from_numpy(each), batch) for each in (values, other)
    ]
    assert reached[0].item() == reached[1].item()
