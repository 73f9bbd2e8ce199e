"""Diversity of containers: heads over one trunk that act differently after equal histories [CMARL].

With pi_j the softmax of the action values of head j, the loss of container c has the term

    weight [1 / |B| sum over episodes, steps and agents of KL(pi_c || 1 / N sum_j pi_j) - target]^2

which is eq. 8 of the paper. The divergence is 0 where all heads are equal, and at most log N.
Padding never counts. The authors' program reads the equation otherwise: see ``AUTHORS``.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fullrank.algorithms.trajectories import Trajectories
from fullrank.common.errors import ConfigError

NEVER = -1e9
"""Value of an action that is not available: its probability is exactly 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diversity:
    """The term and its reading."""

    weight: float = 0.2
    """Factor beta of the term."""
    target: float = 0.05
    """Divergence lambda that the term aims at."""
    own_scale: float = 1.0
    """Factor of a container's own action values before its softmax."""
    over_agents: Literal["sum", "mean"] = "sum"
    """Sum or mean of the divergences of a team's agents."""
    over_steps: Literal["episode", "step"] = "episode"
    """``episode``: the sum over steps is divided by the episodes; ``step``: by all valid steps."""
    available_only: bool = True
    """Give probability to available actions alone."""

    def __post_init__(self) -> None:
        if self.weight < 0 or self.target < 0 or self.own_scale <= 0:
            raise ConfigError(
                "diversity: weight and target must be at least 0, and own_scale above 0"
            )

    def mean_divergence(self, values: Tensor, batch: Trajectories) -> Tensor:
        """Return the divergence of the first head from the mean of all, a scalar.

        Args:
            values: Values of all actions by each head, the container's own first, shape
                (N, L + 1, K, n, A).
            batch: The episodes.
        """
        mask = batch.available if self.available_only else torch.ones_like(batch.available)
        apart = divergence(values[:, :-1], mask[:-1], own_scale=self.own_scale)
        team = apart.sum(2) if self.over_agents == "sum" else apart.mean(2)
        counted = batch.valid.to(team.dtype)
        if self.over_steps == "step":
            return (team * counted).sum() / counted.sum()
        return (team * counted).sum() / counted.shape[1]

    def penalty(self, mean_divergence: Tensor) -> Tensor:
        """Return the term of the loss, a scalar."""
        return self.weight * (mean_divergence - self.target).square()


AUTHORS = Diversity(own_scale=0.8, over_agents="mean", over_steps="step", available_only=False)
"""The reading of the authors' program, which also counts padding as steps; this one does not."""


def divergence(values: Tensor, available: Tensor, *, own_scale: float = 1.0) -> Tensor:
    """Return KL(pi_0 || mean of all pi_j) of each agent and step, shape (...).

    Args:
        values: Values of all actions by each of N heads, shape (N, ..., A).
        available: Mask of actions, shape (..., A); where there is none, the divergence is 0.
        own_scale: Factor of the values of head 0 in pi_0, but not in the mean.
    """
    allowed = values.masked_fill(~available, NEVER)
    own = (own_scale * values[0]).masked_fill(~available, NEVER).log_softmax(-1)
    mean = allowed.log_softmax(-1).logsumexp(0) - math.log(len(values))
    return (own.exp() * (own - mean)).sum(-1)
