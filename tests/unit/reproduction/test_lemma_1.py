"""Lemma 1 of [DARL1N], exact: agents that are no neighbours move Q_i by 2 r gamma / (1 - gamma).

A 3 x 3 torus of spins has 512 states and as many joint actions, so that Q of a policy is solved for
and every pair of situations that agree on a neighbourhood is compared.
"""

import itertools

import numpy as np
import pytest

from fullrank.common.types import Array
from fullrank.environments import make_environment
from fullrank.environments.lattice.grid import torus

AGENT, SPINS = 0, 9
STATES = np.array(list(itertools.product([0, 1], repeat=SPINS)))
"""All states, and all joint actions: a spin takes the value that its agent chooses."""
HOOD = torus(3)
BEYOND = [spin for spin in range(SPINS) if spin not in HOOD[AGENT]]


def rewards() -> Array:
    """Reward of the agent after each joint action, by the environment itself."""
    environment = make_environment("ising", agents=SPINS, copies=len(STATES))
    environment.reset([0] * len(STATES), range(len(STATES)))
    action = np.stack([STATES, 1 - STATES], axis=2).reshape(len(STATES), -1)
    return environment.step(action.astype(np.float32)).reward[:, AGENT]


def values(policy: Array, discount: float) -> Array:
    """Q of each joint action; it depends on the state by the action alone.

    Args:
        policy: Probability that an agent turns up, given its own and its neighbours' spins, shape
            (32,).
        discount: Discount factor.
    """
    seen = (STATES[:, HOOD] * 2 ** np.arange(5)).sum(axis=2)
    up = policy[seen]
    chances = np.where(STATES[None] == 1, up[:, None], 1 - up[:, None]).prod(axis=2)
    return np.linalg.solve(np.eye(len(STATES)) - discount * chances, rewards())


def spread(quality: Array) -> float:
    """Largest difference of Q between situations that agree on the neighbourhood."""
    key = (STATES[:, HOOD[AGENT]] * 2 ** np.arange(5)).sum(axis=1)
    return max(float(np.ptp(quality[key == each])) for each in range(32))


@pytest.mark.parametrize("discount", [0.5, 0.95])
@pytest.mark.parametrize("sharpness", [0.0, 1.0, 20.0])
def test_q_depends_on_those_beyond_the_neighbourhood_within_the_bound(
    discount: float, sharpness: float
) -> None:
    assert len(BEYOND) == 4
    bound = 2 * 2.0 * discount / (1 - discount)
    generator = np.random.default_rng(0)
    for _ in range(3):
        policy = 1 / (1 + np.exp(-sharpness * generator.normal(size=32)))
        found = spread(values(policy, discount))
        assert found <= bound
        assert (found < 1e-9) == (sharpness == 0.0)


def test_some_policy_reaches_the_bound() -> None:
    generator = np.random.default_rng(0)
    policies = [1 / (1 + np.exp(-200.0 * generator.normal(size=32))) for _ in range(5)]
    bound = 2 * 2.0 * 0.95 / (1 - 0.95)
    assert max(spread(values(policy, 0.95)) for policy in policies) > 0.99 * bound
