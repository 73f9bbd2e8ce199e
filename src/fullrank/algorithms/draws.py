"""Random numbers for a unit's update, keyed so that all holders of the unit draw the same ones."""

from collections.abc import Sequence

import torch
from torch import Tensor

from fullrank.common.seeding import stream
from fullrank.environments.base import AgentSpec, Continuous
from fullrank.networks.heads import make_head


class Draws:
    """Draws keyed by (seed, purpose, iteration, agent), made on the CPU for every device.

    Args:
        agents: Specifications of all agents.
        seed: The run's seed.
        key: Iteration, followed by the row of C if every holder makes its own draws.
        device: Device of the returned tensors.
    """

    def __init__(
        self, agents: Sequence[AgentSpec], *, seed: int, key: tuple[int, ...], device: torch.device
    ) -> None:
        self._agents, self._seed, self._key, self._device = agents, seed, key, device

    @property
    def iteration(self) -> int:
        """Return the iteration of the update."""
        return self._key[0]

    def action(
        self, purpose: str, agent: int, outputs: Tensor, available: Tensor | None = None
    ) -> Tensor:
        """Draw a differentiable sample of an agent's action, shape (B, action size).

        Discrete actions are relaxed by Gumbel-softmax at temperature 1 (Jang, Gu, Poole, ICLR
        2017); continuous ones are the mean, mapped by tanh into their range.

        Args:
            purpose: Purpose of the draw, for example ``target_action``.
            agent: Index of the agent.
            outputs: Outputs of its policy, shape (B, action size): logits, or means before tanh.
            available: Mask of the discrete actions that it may choose, of the same shape; the
                others get probability 0, and their logits gradient 0. None: all are available.
        """
        spec = self._agents[agent].action
        if isinstance(spec, Continuous):
            low, high = (
                torch.tensor(bound, device=self._device) for bound in (spec.low, spec.high)
            )
            return (high + low) / 2 + (high - low) / 2 * outputs.tanh()
        head = make_head(spec, noise=0.0, device=self._device)
        generator = stream(self._seed, purpose, *self._key, agent)
        (noise,) = torch.from_numpy(head.draw([generator], (outputs.shape[1], outputs.shape[0])))
        if available is not None:
            outputs = outputs.masked_fill(~available, -torch.inf)
        return torch.softmax(outputs + noise.t().to(self._device), dim=1)

    def normal(self, purpose: str, agent: int, shape: Sequence[int]) -> Tensor:
        """Draw standard normal numbers of the given shape."""
        generator = stream(self._seed, purpose, *self._key, agent)
        drawn = generator.standard_normal(tuple(shape), dtype="float32")
        return torch.from_numpy(drawn).to(self._device)
