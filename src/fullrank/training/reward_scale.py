"""Scale by which the rewards of whole episodes are standardised, found in random play."""

from collections.abc import Callable
from contextlib import closing
from typing import NamedTuple

import numpy as np

from fullrank.common.seeding import derive
from fullrank.environments.base import Environment
from fullrank.environments.capabilities import horizon_of
from fullrank.training.episodes import Episodes, team_reward
from fullrank.training.evaluation import random_actions

SCALE_COPIES = 64
"""Number of episodes of random play by which the rewards of whole episodes are standardised."""


class RewardScale(NamedTuple):
    """Mean and standard deviation by which the rewards of a team are standardised in replay."""

    mean: float = 0.0
    deviation: float = 1.0


AS_PAID = RewardScale()
"""The scale that leaves rewards as they are."""


def reward_scale(
    make_environment: Callable[[int], Environment], *, horizon: int, seed: int
) -> RewardScale:
    """Return the scale of random play; the best policies are the same under every scale."""
    if not horizon:
        return AS_PAID
    with closing(make_environment(SCALE_COPIES)) as environment:
        return random_reward_scale(environment, seed=derive(seed, "reward_scale"))


def random_reward_scale(environment: Environment, *, seed: int) -> RewardScale:
    """Return the scale that gives the team's rewards in random play mean 0 and deviation 1.

    Every copy plays ``horizon_of(environment)`` steps; the result depends on the environment, its
    number of copies and the seed alone.

    Args:
        environment: Environment whose episodes all have the same length; all copies are reset.
        seed: Fixes the initial states and the actions.
    """
    episodes, act = Episodes(environment), random_actions(environment.agents, seed=seed)
    copies = episodes.waiting()
    episodes.begin(copies, [derive(seed, "episode", copy) for copy in copies.tolist()])
    rewards = []
    for _ in range(horizon_of(environment)):
        outcome = episodes.advance(act(episodes.observation, episodes.available()))
        rewards.append(team_reward(environment, outcome.reward))
    mean, deviation = float(np.mean(rewards)), float(np.std(rewards))
    return RewardScale(mean, deviation or 1.0)
