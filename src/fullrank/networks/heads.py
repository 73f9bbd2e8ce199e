"""From a policy's outputs to actions and back, for both kinds of action.

Outputs, actions and noise have shape (units, action size, columns).
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from fullrank.common.types import FloatArray
from fullrank.environments.base import ActionSpec, Continuous, Discrete

SMALLEST_UNIFORM = np.float32(2.0**-25)
"""Stands for a uniform draw of 0, whose logarithm does not exist."""


class Head(Protocol):
    """How one kind of action is made."""

    def draw(self, generators: Sequence[np.random.Generator], shape: tuple[int, ...]) -> FloatArray:
        """The noise of actions, so much from each; made on the CPU for every device."""

    def sample(self, outputs: Tensor, noise: Tensor) -> Tensor:
        """The differentiable action that critics and policy losses see; may overwrite ``noise``."""

    def gradient(self, outputs: Tensor, actions: Tensor, action_gradient: Tensor) -> Tensor:
        """Gradient at the outputs, from that at the actions, which it may overwrite."""

    def explore(self, outputs: Tensor, generator: np.random.Generator) -> Tensor:
        """The action to take while collecting."""

    def mode(self, outputs: Tensor) -> Tensor:
        """The action to take without exploration."""

    def mask(self, outputs: Tensor, available: Tensor) -> Tensor:
        """Outputs that lead to available actions only; ``available`` has their shape."""


class Relaxed:
    """Discrete actions by Gumbel-softmax at temperature 1: softmax(logits - log(-log u)).

    Jang, Gu, Poole: Categorical Reparameterization with Gumbel-Softmax, ICLR 2017.
    """

    def __init__(self, spec: Discrete) -> None:
        self._relaxed = spec.relaxed

    def draw(self, generators: Sequence[np.random.Generator], shape: tuple[int, ...]) -> FloatArray:
        """Standard Gumbel noise, -log(-log u)."""
        drawn = np.empty((len(generators), *shape), dtype=np.float32)
        for generator, out in zip(generators, drawn, strict=True):
            generator.random(dtype=np.float32, out=out)
        np.log(np.maximum(drawn, SMALLEST_UNIFORM, out=drawn), out=drawn)
        np.log(np.negative(drawn, out=drawn), out=drawn)
        return np.negative(drawn, out=drawn)

    def sample(self, outputs: Tensor, noise: Tensor) -> Tensor:
        """A point of the simplex."""
        return _softmax(noise.add_(outputs))

    def gradient(self, outputs: Tensor, actions: Tensor, action_gradient: Tensor) -> Tensor:
        """Of the softmax."""
        inner = (actions * action_gradient).sum(1, keepdim=True)
        return action_gradient.sub_(inner).mul_(actions)

    def explore(self, outputs: Tensor, generator: np.random.Generator) -> Tensor:
        """The sample itself where the environment takes it, else its largest entry as one-hot."""
        (noise,) = torch.from_numpy(self.draw([generator], tuple(outputs.shape)))
        sample = self.sample(outputs, noise.to(outputs.device))
        return sample if self._relaxed else _one_hot(sample)

    def mode(self, outputs: Tensor) -> Tensor:
        """The likeliest action as one-hot."""
        return _one_hot(outputs)

    def mask(self, outputs: Tensor, available: Tensor) -> Tensor:
        """Logits of minus infinity where an action is not available."""
        return outputs.masked_fill(~available, -torch.inf)


class Squashed:
    """Continuous actions: tanh into [low, high]; Gaussian noise explores, nothing else is drawn.

    Args:
        spec: The box.
        noise: Standard deviation of the exploration, as a share of half the box.
        device: Where actions are made.
    """

    def __init__(self, spec: Continuous, *, noise: float, device: torch.device) -> None:
        low = torch.tensor(spec.low, device=device).unsqueeze(1)
        high = torch.tensor(spec.high, device=device).unsqueeze(1)
        self._low, self._high = low, high
        self._centre, self._half = (high + low) / 2, (high - low) / 2
        self._noise = noise

    def draw(self, generators: Sequence[np.random.Generator], shape: tuple[int, ...]) -> FloatArray:
        """Zeros: target actions and the policy loss are deterministic."""
        return np.zeros((len(generators), *shape), np.float32)

    def sample(self, outputs: Tensor, noise: Tensor) -> Tensor:
        """The mean."""
        return self.mode(outputs)

    def gradient(self, outputs: Tensor, actions: Tensor, action_gradient: Tensor) -> Tensor:
        """Of the squashing."""
        return (1 - outputs.tanh().square_()).mul_(self._half).mul_(action_gradient)

    def explore(self, outputs: Tensor, generator: np.random.Generator) -> Tensor:
        """The mean plus noise, kept within the box."""
        draws = generator.standard_normal(tuple(outputs.shape), dtype=np.float32)
        noise = torch.from_numpy(draws).to(outputs.device) * (self._noise * self._half)
        return torch.clamp(self.mode(outputs) + noise, self._low, self._high)

    def mode(self, outputs: Tensor) -> Tensor:
        """The mean."""
        return outputs.tanh().mul_(self._half).add_(self._centre)

    def mask(self, outputs: Tensor, available: Tensor) -> Tensor:
        """The outputs: every point of the box is available."""
        return outputs


def make_head(spec: ActionSpec, *, noise: float, device: torch.device) -> Head:
    """The head of an action specification."""
    if isinstance(spec, Discrete):
        return Relaxed(spec)
    return Squashed(spec, noise=noise, device=device)


def _softmax(outputs: Tensor) -> Tensor:
    """In place; ``torch.softmax`` over this axis splits its vector loop differently per thread."""
    outputs.sub_(outputs.amax(1, keepdim=True)).exp_()
    return outputs.div_(outputs.sum(1, keepdim=True))


def _one_hot(scores: Tensor) -> Tensor:
    best = scores.argmax(1, keepdim=True)
    return torch.zeros_like(scores).scatter_(1, best, 1.0)
