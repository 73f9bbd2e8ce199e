"""Action heads: map a policy's outputs to actions, and gradients back, for both kinds of action.

Outputs, actions and noise have shape (units, action size, columns). Actors whose policies see the
present alone choose by their heads.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

import numpy as np
import torch
from torch import Tensor

from fullrank.common.seeding import stream
from fullrank.common.types import BoolArray, FloatArray
from fullrank.environments.base import ActionSpec, Continuous, Discrete, MultiDiscrete

SMALLEST_UNIFORM = np.float32(2.0**-25)
"""Replacement for a uniform draw of 0, whose logarithm is infinite."""


class Head(Protocol):
    """Mapping from policy outputs to one kind of action."""

    def draw(self, generators: Sequence[np.random.Generator], shape: tuple[int, ...]) -> FloatArray:
        """Draw action noise, an array of ``shape`` per generator, on the CPU for every device."""

    def sample(self, outputs: Tensor, noise: Tensor) -> Tensor:
        """Return the differentiable action for critics and policy losses; may reuse ``noise``."""

    def gradient(self, outputs: Tensor, actions: Tensor, action_gradient: Tensor) -> Tensor:
        """Map the gradient at the actions, which may be overwritten, to that at the outputs."""

    def explore(self, outputs: Tensor, generator: np.random.Generator) -> Tensor:
        """Return the exploring action for collection."""

    def mode(self, outputs: Tensor) -> Tensor:
        """Return the action without exploration."""

    def mask(self, outputs: Tensor, available: Tensor) -> Tensor:
        """Restrict outputs to available actions; ``available`` has the shape of ``outputs``."""


class Relaxed:
    """Discrete actions by Gumbel-softmax at temperature 1: softmax(logits - log(-log u)).

    Jang, Gu, Poole: Categorical Reparameterization with Gumbel-Softmax, ICLR 2017.
    """

    def __init__(self, spec: Discrete) -> None:
        self._relaxed = spec.relaxed

    def draw(self, generators: Sequence[np.random.Generator], shape: tuple[int, ...]) -> FloatArray:
        """Draw standard Gumbel noise, -log(-log u)."""
        drawn = np.empty((len(generators), *shape), dtype=np.float32)
        for generator, out in zip(generators, drawn, strict=True):
            generator.random(dtype=np.float32, out=out)
        np.log(np.maximum(drawn, SMALLEST_UNIFORM, out=drawn), out=drawn)
        np.log(np.negative(drawn, out=drawn), out=drawn)
        return np.negative(drawn, out=drawn)

    def sample(self, outputs: Tensor, noise: Tensor) -> Tensor:
        """Return a point of the simplex."""
        return _softmax(noise.add_(outputs))

    def gradient(self, outputs: Tensor, actions: Tensor, action_gradient: Tensor) -> Tensor:
        """Apply the transposed Jacobian of the softmax."""
        inner = (actions * action_gradient).sum(1, keepdim=True)
        return action_gradient.sub_(inner).mul_(actions)

    def explore(self, outputs: Tensor, generator: np.random.Generator) -> Tensor:
        """Return the sample where the environment accepts it, else its argmax as one-hot."""
        (noise,) = torch.from_numpy(self.draw([generator], tuple(outputs.shape)))
        sample = self.sample(outputs, noise.to(outputs.device))
        return sample if self._relaxed else _one_hot(sample)

    def mode(self, outputs: Tensor) -> Tensor:
        """Return the likeliest action as one-hot."""
        return _one_hot(outputs)

    def mask(self, outputs: Tensor, available: Tensor) -> Tensor:
        """Set the logits of unavailable actions to minus infinity."""
        return outputs.masked_fill(~available, -torch.inf)


class Choices(Relaxed):
    """Several discrete actions at once, each chosen as ``Relaxed`` chooses one."""

    def __init__(self, spec: MultiDiscrete) -> None:
        super().__init__(Discrete(spec.size))
        self._sizes = list(spec.choices)

    def sample(self, outputs: Tensor, noise: Tensor) -> Tensor:
        """Return a point of each choice's simplex."""
        return torch.cat([*map(_softmax, torch.split(noise.add_(outputs), self._sizes, 1))], 1)

    def gradient(self, outputs: Tensor, actions: Tensor, action_gradient: Tensor) -> Tensor:
        """Apply the transposed Jacobian of each softmax."""
        by_choice = (
            torch.split(each, self._sizes, 1) for each in (outputs, actions, action_gradient)
        )
        parts = [Relaxed.gradient(self, *part) for part in zip(*by_choice, strict=True)]
        return torch.cat(parts, 1)

    def explore(self, outputs: Tensor, generator: np.random.Generator) -> Tensor:
        """Return the argmax of the sample, one-hot in each choice."""
        (noise,) = torch.from_numpy(self.draw([generator], tuple(outputs.shape)))
        return self.mode(self.sample(outputs, noise.to(outputs.device)))

    def mode(self, outputs: Tensor) -> Tensor:
        """Return the likeliest action of each choice as one-hot."""
        return torch.cat([*map(_one_hot, torch.split(outputs, self._sizes, 1))], 1)


class Squashed:
    """Continuous actions: tanh into [low, high], with Gaussian noise in exploration only.

    Args:
        spec: Range of the actions.
        noise: Standard deviation of the exploration, as a share of half the range.
        device: Device of the actions.
    """

    def __init__(self, spec: Continuous, *, noise: float, device: torch.device) -> None:
        low = torch.tensor(spec.low, device=device).unsqueeze(1)
        high = torch.tensor(spec.high, device=device).unsqueeze(1)
        self._low, self._high = low, high
        self._centre, self._half = (high + low) / 2, (high - low) / 2
        self._noise = noise

    def draw(self, generators: Sequence[np.random.Generator], shape: tuple[int, ...]) -> FloatArray:
        """Return zeros: target actions and the policy loss are deterministic."""
        return np.zeros((len(generators), *shape), np.float32)

    def sample(self, outputs: Tensor, noise: Tensor) -> Tensor:
        """Return the mean."""
        return self.mode(outputs)

    def gradient(self, outputs: Tensor, actions: Tensor, action_gradient: Tensor) -> Tensor:
        """Multiply by the derivative of tanh into the range."""
        return (1 - outputs.tanh().square_()).mul_(self._half).mul_(action_gradient)

    def explore(self, outputs: Tensor, generator: np.random.Generator) -> Tensor:
        """Return the mean plus noise, clamped to the range."""
        draws = generator.standard_normal(tuple(outputs.shape), dtype=np.float32)
        noise = torch.from_numpy(draws).to(outputs.device) * (self._noise * self._half)
        return torch.clamp(self.mode(outputs) + noise, self._low, self._high)

    def mode(self, outputs: Tensor) -> Tensor:
        """Return the mean."""
        return outputs.tanh().mul_(self._half).add_(self._centre)

    def mask(self, outputs: Tensor, available: Tensor) -> Tensor:
        """Return the outputs unchanged: every action in the range is available."""
        return outputs


def make_head(spec: ActionSpec, *, noise: float, device: torch.device) -> Head:
    """Return the head for an action specification."""
    if isinstance(spec, Discrete):
        return Relaxed(spec)
    if isinstance(spec, MultiDiscrete):
        return Choices(spec)
    return Squashed(spec, noise=noise, device=device)


def _softmax(outputs: Tensor) -> Tensor:
    """Softmax in place; the vector loop of ``torch.softmax`` on this axis depends on threads."""
    outputs.sub_(outputs.amax(1, keepdim=True)).exp_()
    return outputs.div_(outputs.sum(1, keepdim=True))


def _one_hot(scores: Tensor) -> Tensor:
    best = scores.argmax(1, keepdim=True)
    return torch.zeros_like(scores).scatter_(1, best, 1.0)


Choose: TypeAlias = Callable[[Head, Tensor], Tensor]
"""Makes actions from the outputs of policies, both of shape (agents, action size, copies)."""


class MemorylessActor(ABC):
    """Choose actions from the outputs of policies; the memory is empty.

    Args:
        action_sizes: Entries of each agent's action.
        seed: Keys the exploration.
    """

    def __init__(self, action_sizes: Sequence[int], *, seed: int) -> None:
        self._action_sizes, self._seed = action_sizes, seed

    @abstractmethod
    def _act(
        self, observation: FloatArray, available: BoolArray | None, choose: Choose
    ) -> FloatArray:
        """Return joint actions, shape (E, sum of action sizes)."""

    def memory(self, copies: int) -> tuple[()]:
        """Return the empty memory."""
        return ()

    def act(
        self,
        observation: FloatArray,
        memory: tuple[FloatArray, ...],
        *,
        iteration: int,
        step: int,
        alive: BoolArray,
        available: BoolArray | None = None,
    ) -> tuple[FloatArray, tuple[FloatArray, ...]]:
        """Return exploring joint actions, keyed by (seed, iteration, step); see ``Actor.act``."""
        generator = stream(self._seed, "act", iteration, step)
        actions = self._act(
            observation, available, lambda head, outputs: head.explore(outputs, generator)
        )
        return actions * np.repeat(alive, self._action_sizes, axis=1), memory

    def act_greedily(
        self,
        observation: FloatArray,
        memory: tuple[FloatArray, ...],
        *,
        available: BoolArray | None = None,
    ) -> tuple[FloatArray, tuple[FloatArray, ...]]:
        """Return the likeliest actions as one-hot, or the means."""
        return self._act(observation, available, lambda head, outputs: head.mode(outputs)), memory
