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

from fullrank.common.seeding import key, keyed, stream
from fullrank.common.types import BoolArray, FloatArray
from fullrank.environments.base import ActionSpec, Continuous, Discrete, MultiDiscrete
from fullrank.networks.cards.noise import fill_gumbel
from fullrank.networks.fused.cuda import sent
from fullrank.networks.fused.products import row_sum

SMALLEST_UNIFORM = np.float32(2.0**-25)
"""Replacement for a uniform draw of 0, whose logarithm is infinite."""


class Head(Protocol):
    """Mapping from policy outputs to one kind of action."""

    def draw(self, generators: Sequence[np.random.Generator], shape: tuple[int, ...]) -> FloatArray:
        """Draw action noise, an array of ``shape`` per generator, on the CPU."""

    def fill(self, out: Tensor, keys: Tensor, size: int) -> Tensor:
        """Draw action noise on CUDA; see ``fill_gumbel``."""

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

    def fill(self, out: Tensor, keys: Tensor, size: int) -> Tensor:
        """Draw the same uniform numbers, and Gumbel noise by another logarithm."""
        return fill_gumbel(out, keys, size)

    def sample(self, outputs: Tensor, noise: Tensor) -> Tensor:
        """Return a point of the simplex."""
        return _softmax(noise.add_(outputs))

    def gradient(self, outputs: Tensor, actions: Tensor, action_gradient: Tensor) -> Tensor:
        """Apply the transposed Jacobian of the softmax."""
        inner = row_sum(actions * action_gradient)
        return action_gradient.sub_(inner).mul_(actions)

    def explore(self, outputs: Tensor, generator: np.random.Generator) -> Tensor:
        """Return the exploring action for noise that is drawn here."""
        (noise,) = torch.from_numpy(self.draw([generator], tuple(outputs.shape)))
        return self.chosen(outputs, noise.to(outputs.device))

    def chosen(self, outputs: Tensor, noise: Tensor) -> Tensor:
        """Return the sample where the environment accepts it, else its argmax as one-hot."""
        sample = self.sample(outputs, noise)
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

    def chosen(self, outputs: Tensor, noise: Tensor) -> Tensor:
        """Return the argmax of the sample, one-hot in each choice."""
        return self.mode(self.sample(outputs, noise))

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

    def fill(self, out: Tensor, keys: Tensor, size: int) -> Tensor:
        """Return zeros, as ``draw`` does."""
        return out.zero_()

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


def draws_there(device: torch.device) -> bool:
    """Return whether noise is drawn on its device, with bits of its own: on CUDA."""
    return device.type == "cuda"


def keys_of(seed: int, purpose: str, *indices: int, last: Sequence[int]) -> Tensor:
    """Return the keys of streams, one for each last index, int32 in host memory, (streams, 4)."""
    return torch.from_numpy(np.stack([key(seed, purpose, *indices, each) for each in last]))


def action_noise(head: Head, keys: Tensor, shape: tuple[int, int], *, width: int) -> Tensor:
    """Draw the noise of actions where the keys lie.

    Args:
        head: The head of the actions.
        keys: Of ``keys_of``.
        shape: Entries of an action, and columns.
        width: Columns of the result, at least those of ``shape``.

    Returns:
        Noise, shape (streams, entries, width), zero in further columns.
    """
    entries, size = shape
    if draws_there(keys.device):
        out = torch.empty(len(keys), entries, width, device=keys.device)
        return head.fill(out, keys, size)
    noise = torch.from_numpy(head.draw([keyed(words) for words in keys.numpy()], shape))
    return noise if width == size else torch.nn.functional.pad(noise, (0, width - size))


def _softmax(outputs: Tensor) -> Tensor:
    """Softmax in place; the vector loop of ``torch.softmax`` on this axis depends on threads."""
    outputs.sub_(outputs.amax(1, keepdim=True)).exp_()
    return outputs.div_(row_sum(outputs))


def _one_hot(scores: Tensor) -> Tensor:
    best = scores.argmax(1, keepdim=True)
    return torch.zeros_like(scores).scatter_(1, best, 1.0)


Choose: TypeAlias = Callable[[Head, Tensor], Tensor]
"""Makes actions from the outputs of policies, both of shape (agents, action size, copies)."""


class MemorylessActor(ABC):
    """Choose actions from the outputs of policies; the memory is empty.

    Args:
        action_sizes: Entries of each agent's action.
        device: Device of the policies.
        seed: Keys the exploration.

    Attributes:
        device: As given.
    """

    def __init__(self, action_sizes: Sequence[int], *, device: torch.device, seed: int) -> None:
        self._action_sizes, self._seed = action_sizes, seed
        self.device = device

    @abstractmethod
    def _act(self, observation: Tensor, available: Tensor | None, choose: Choose) -> Tensor:
        """Return joint actions on the device, shape (sum of action sizes, E).

        Args:
            observation: Joint observations on the device, shape (E, sum of observation sizes).
            available: Permitted actions there, shape (E, sum of action sizes); None: all.
            choose: Makes the agents' actions of the outputs of their policies.
        """

    def _act_for_host(
        self, observation: FloatArray, available: BoolArray | None, choose: Choose
    ) -> FloatArray:
        """Return joint actions in host memory, shape (E, sum of action sizes)."""
        seen = torch.from_numpy(np.require(observation, requirements="W")).to(self.device)
        mask = None if available is None else torch.from_numpy(available).to(self.device)
        return np.ascontiguousarray(self._act(seen, mask, choose).t().cpu().numpy())

    def noise(self, copies: int, *, iteration: int, steps: int) -> Tensor:
        """Draw the noise of ``steps`` calls of ``act`` by agents with discrete actions.

        Returns:
            Noise on the device, shape (steps, sum of action sizes * E), in the order in which heads
            take it.
        """
        keys = sent(keys_of(self._seed, "act", iteration, last=range(steps)), self.device)
        entries = sum(self._action_sizes) * copies
        return action_noise(Relaxed(Discrete(1)), keys, (1, entries), width=entries)[:, 0]

    def explore(self, observation: Tensor, noise: Tensor) -> Tensor:
        """Return exploring joint actions on the device; all agents have discrete actions.

        Args:
            observation: Joint observations there, shape (E, sum of observation sizes).
            noise: One row of ``noise`` there, which is overwritten.

        Returns:
            Shape (sum of action sizes, E).
        """
        rest = noise

        def choose(head: Head, outputs: Tensor) -> Tensor:
            nonlocal rest
            own, rest = rest[: outputs.numel()], rest[outputs.numel() :]
            assert isinstance(head, Relaxed)
            return head.chosen(outputs, own.view_as(outputs))

        return self._act(observation, None, choose)

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
        actions = self._act_for_host(
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
        actions = self._act_for_host(
            observation, available, lambda head, outputs: head.mode(outputs)
        )
        return actions, memory
