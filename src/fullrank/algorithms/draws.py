"""Random numbers of one unit's update, keyed so that every holder of the unit draws the same."""

from collections.abc import Sequence

import torch
from torch import Tensor

from fullrank.common.seeding import stream
from fullrank.environments.base import AgentSpec, Continuous
from fullrank.networks.heads import make_head


class Draws:
    """Draws keyed by (seed, purpose, iteration, agent), made on the CPU for every device.

    Args:
        agents: All agents.
        seed: The run's.
        key: Iteration, and the row of C where holders draw for themselves.
        device: Where the tensors lie.
    """

    def __init__(
        self, agents: Sequence[AgentSpec], *, seed: int, key: tuple[int, ...], device: torch.device
    ) -> None:
        self._agents, self._seed, self._key, self._device = agents, seed, key, device

    @property
    def iteration(self) -> int:
        """The iteration that the update belongs to."""
        return self._key[0]

    def action(self, purpose: str, agent: int, outputs: Tensor) -> Tensor:
        """A differentiable sample of an agent's action, shape (B, action size).

        Discrete actions are relaxed by Gumbel-softmax at temperature 1 (Jang, Gu, Poole, ICLR
        2017); continuous ones are the mean, tanh into their range.

        Args:
            purpose: What is drawn, for example ``target_action``.
            agent: Its index.
            outputs: Of its policy, shape (B, action size): logits, or the mean before tanh.
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
        return torch.softmax(outputs + noise.t().to(self._device), dim=1)

    def normal(self, purpose: str, agent: int, shape: Sequence[int]) -> Tensor:
        """Standard normal numbers."""
        generator = stream(self._seed, purpose, *self._key, agent)
        drawn = generator.standard_normal(tuple(shape), dtype="float32")
        return torch.from_numpy(drawn).to(self._device)
