"""Lemma 1 of [DARL1N], exact: agents that are no neighbours move Q_i by 2 r gamma / (1 - gamma).

A 3 x 3 torus of spins has 512 states and as many joint actions, so that Q of a policy is solved for
and every pair of situations that agree on a neighbourhood is compared.
"""

import itertools

import numpy as np

from fullrank.common.seeding import stream
from fullrank.common.types import JSON, Array
from fullrank.environments import make_environment
from fullrank.environments.lattice.environment import torus
from fullrank_papers.cells import Cell, Results
from fullrank_papers.claims import EXACT, ClaimResult, judge

CELL = "lemma-1"
DISCOUNT = 0.95
LARGEST = 2.0
"""Largest absolute reward of a spin."""
SHARPNESS = (1.0, 20.0, 200.0)
"""Scales of the logits of random policies, from soft to deterministic."""
DRAWS = 4
"""Random policies of each sharpness."""
AGENT, SPINS = 0, 9
STATES = np.array(list(itertools.product([0, 1], repeat=SPINS)))
"""All states, and all joint actions: a spin takes the value that its agent chooses."""
HOOD = torus(3)


def cell() -> Cell:
    """Shares of the bound that random policies reach, by sharpness."""
    settings = {"discount": DISCOUNT, "sharpness": list(SHARPNESS), "draws": DRAWS}
    return Cell(name=CELL, settings=settings, compute=_shares, beside=True)


def _shares() -> JSON:
    bound = limit(DISCOUNT)
    return {
        f"{sharpness:g}": [
            spread(values(policy(sharpness, draw), DISCOUNT)) / bound for draw in range(DRAWS)
        ]
        for sharpness in SHARPNESS
    }


def limit(discount: float) -> float:
    """The bound of the lemma."""
    return 2.0 * LARGEST * discount / (1.0 - discount)


def policy(sharpness: float, draw: int) -> Array:
    """Probabilities that an agent turns up, given its own and its neighbours' spins."""
    logits = stream(0, "lemma_1", draw).normal(size=32)
    chances: Array = 1.0 / (1.0 + np.exp(-sharpness * logits))
    return chances


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
    found: Array = np.linalg.solve(np.eye(len(STATES)) - discount * chances, rewards())
    return found


def spread(quality: Array) -> float:
    """Largest difference of Q between situations that agree on the neighbourhood."""
    key = (STATES[:, HOOD[AGENT]] * 2 ** np.arange(5)).sum(axis=1)
    return max(float(np.ptp(quality[key == each])) for each in range(32))


def judge_lemma(results: Results) -> list[ClaimResult]:
    """Judge Lemma 1 by the largest share of its bound."""
    shares = np.array(list(results[CELL].values()))
    most = f"random policies reach {shares.min():.1%} to {shares.max():.1%} of the bound"
    return [
        judge(
            "Lemma 1: agents that are no neighbours move Q by at most 2 r gamma / (1 - gamma).",
            [most] if shares.max() > 1.0 + 1e-9 else [],
            grounds=f"all situations of 3 x 3 spins, gamma = {DISCOUNT}: {most}",
            strength=EXACT,
        )
    ]
