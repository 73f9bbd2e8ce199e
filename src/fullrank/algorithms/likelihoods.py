"""Distributions of actions: how likely an action was, how uncertain it is, and draws.

Discrete actions are drawn from a softmax of logits, over those that are available; of several
choices at once, each from its own part of the logits. A continuous action is a draw of a Gaussian,
clipped to its range [low, high], or mapped into it by tanh. Clipped, its mean is the range's share
tanh of an output, and its likelihood is that of the clipped action [Fujita18]: a bound has the
probability of all that lies beyond it, so that nothing but the action itself need be kept.
"""

from collections.abc import Sequence
from functools import cache
from math import log, pi

import numpy as np
import torch
from torch import Tensor, nn

from fullrank.environments.base import Continuous
from fullrank.networks.heads import Squashed

UNAVAILABLE = -1e9
"""Logit of an action that may not be chosen, whose probability is 0."""

LOG_DEVIATIONS = -5.0, 2.0
"""Range of the logarithms of deviations of actions before tanh."""


def log_probabilities(logits: Tensor, available: Tensor | None) -> Tensor:
    """Return the log-probability of every action, shape (..., A).

    Args:
        logits: Outputs of the policy, shape (..., A).
        available: Mask of the actions that may be chosen, of the same shape; None: all.
    """
    if available is not None:
        logits = logits.masked_fill(~available, UNAVAILABLE)
    return logits.log_softmax(-1)


def categorical(logits: Tensor, available: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
    """Return the log-probability of each action and the entropy, both of shape (...).

    Args:
        logits: Outputs of the policy, shape (..., A).
        available: Mask of the actions that may be chosen, of the same shape.
        action: Index of the action, shape (...).
    """
    every = log_probabilities(logits, available)
    chosen = every.gather(-1, action[..., None])[..., 0]
    return chosen, -(every.exp() * every).sum(-1)


def categoricals(
    logits: Tensor, available: Tensor, action: Tensor, choices: Sequence[int]
) -> tuple[Tensor, Tensor]:
    """Return the log-probability and the entropy of independent choices: the sums of theirs.

    Args:
        logits: Outputs of the policy, choice by choice, shape (..., A).
        available: Mask of the actions that may be chosen, of the same shape.
        action: The actions, one-hot in each choice, of the same shape.
        choices: Number of actions in each choice.
    """
    by_choice = (torch.split(each, list(choices), -1) for each in (logits, available, action))
    parts = [
        categorical(outputs, offered, taken.argmax(-1))
        for outputs, offered, taken in zip(*by_choice, strict=True)
    ]
    chosen, entropy = (torch.stack(each).sum(0) for each in zip(*parts, strict=True))
    return chosen, entropy


def clipped_gaussian(outputs: Tensor, action: Tensor, box: Continuous) -> tuple[Tensor, Tensor]:
    """Return the log-likelihood of each clipped action, and the entropy before it is clipped.

    Both are of shape (...), and those of an action in units of half its range. An entry whose range
    is one value counts in neither.

    Args:
        outputs: Outputs of the policy, shape (..., 2 A).
        action: The action, shape (..., A).
        box: Its range.
    """
    low, high, wide = wide_range(box, action.device)
    if len(wide) < box.size:
        action = action.index_select(-1, wide)
        outputs = outputs.index_select(-1, torch.cat([wide, wide + box.size]))
    before, log_deviation = outputs.chunk(2, -1)
    mean, deviation = before.tanh(), log_deviation.exp()
    places = (action - (high + low) / 2) / ((high - low) / 2)
    inside = -((places - mean) / deviation).square() / 2 - log_deviation - log(2 * pi) / 2
    beyond = torch.where(action <= low, -1.0 - mean, mean - 1.0) / deviation
    at_bound = (action <= low) | (action >= high)
    likelihood = torch.where(at_bound, torch.special.log_ndtr(beyond), inside)
    return likelihood.sum(-1), (log_deviation + log(2 * pi) / 2 + 0.5).sum(-1)


@cache  # a graph copies nothing from the host
def wide_range(box: Continuous, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Return the bounds of the entries with more than one value, and their places."""
    low, high = np.array(box.low, "f4"), np.array(box.high, "f4")
    wide = np.flatnonzero(low < high)
    with torch.inference_mode(mode=False):  # which autograd may save
        found = [torch.from_numpy(each).to(device) for each in (low[wide], high[wide], wide)]
    return found[0], found[1], found[2]


class LearnedSpread(Squashed):
    """Continuous actions with a learned deviation; outputs are means and its logarithms."""

    def __init__(self, spec: Continuous, *, device: torch.device) -> None:
        super().__init__(spec, noise=1.0, device=device)

    def explore(self, outputs: Tensor, generator: np.random.Generator) -> Tensor:
        """Return a draw, clamped to the range."""
        means, log_deviation = outputs.chunk(2, 1)
        draws = generator.standard_normal(tuple(means.shape), dtype=np.float32)
        noise = torch.from_numpy(draws).to(outputs.device) * log_deviation.exp() * self._half
        return torch.clamp(super().mode(means) + noise, self._low, self._high)

    def mode(self, outputs: Tensor) -> Tensor:
        """Return the mean."""
        return super().mode(outputs.chunk(2, 1)[0])


def drawn_before_tanh(outputs: Tensor, noise: Tensor, box: Continuous) -> tuple[Tensor, Tensor]:
    """Return actions that are draws of a Gaussian, mapped by tanh into a range, and log-densities.

    Densities are those of actions in units of half the range, of entries with more than one value.

    Args:
        outputs: Means before tanh, and what ``deviation_of`` maps, shape (..., 2 A).
        noise: Standard normal numbers, shape (..., A).
        box: Range of an action.

    Returns:
        Shapes (..., A) and (...).
    """
    low, high = (torch.tensor(bound, device=outputs.device) for bound in (box.low, box.high))
    means, rest = outputs.chunk(2, -1)
    log_deviation = log_deviation_of(rest)
    before = means + log_deviation.exp() * noise
    slope = 2.0 * (log(2.0) - before - nn.functional.softplus(-2.0 * before))  # ln(1 - tanh^2)
    density = -noise.square() / 2 - log_deviation - log(2 * pi) / 2 - slope
    density = torch.where(low < high, density, 0.0)
    return (high + low) / 2 + (high - low) / 2 * before.tanh(), density.sum(-1)


def log_deviation_of(outputs: Tensor) -> Tensor:
    """Map outputs of any size into the range of logarithms of deviations, as CleanRL does."""
    least, most = LOG_DEVIATIONS
    return least + (most - least) / 2 * (outputs.tanh() + 1.0)


class DrawnBeforeTanh(LearnedSpread):
    """Continuous actions of which means and deviations are those before tanh."""

    def explore(self, outputs: Tensor, generator: np.random.Generator) -> Tensor:
        """Return a draw."""
        means, rest = outputs.chunk(2, 1)
        draws = generator.standard_normal(tuple(means.shape), dtype=np.float32)
        noise = torch.from_numpy(draws).to(outputs.device) * log_deviation_of(rest).exp()
        action = (means + noise).tanh() * self._half + self._centre
        return torch.clamp(action, self._low, self._high)
