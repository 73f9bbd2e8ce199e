"""Inputs in units of their moving mean and deviation, which updates move and no gradient does.

The averages lie among the parameters of the network that sees the inputs, so that they are
published, committed, audited and resumed as these are. In place of a gradient, an update holds a
unit's share of the first two moments of the inputs in the minibatch (docs/adr/0126).

A second moment of 2^25 or more cannot be summed. The unit then says so by the bound as the coarse
entry of the first moment, which is otherwise at most 2^12.5, and the averages of the input stay.
"""

import numpy as np
import torch
from torch import Tensor, nn

from fullrank.codes.targets import LIMIT
from fullrank.common.types import Array, BoolArray, FloatArray
from fullrank.networks.fused.gradients import COARSE, FINE, encoded

DECAY = 0.999
"""Weight of the averages of before in an update."""

LEAST = 1e-8
"""Term added to variances."""

FARTHEST = 10.0
"""Magnitude to which inputs are clipped, in deviations from their mean."""


class Normalising(nn.Module):
    """A network that sees its first inputs in units of their moving mean and deviation.

    Args:
        size: Number of these inputs; what follows them is seen as it is.
        network: Maps inputs to outputs.

    Attributes:
        averages: Weight, mean and variance of each input; the last row is 0, since a moment takes
            two entries of an update.
    """

    def __init__(self, size: int, network: nn.Module) -> None:
        super().__init__()
        self.averages = nn.Parameter(torch.zeros(4, size))
        self.network = network

    def forward(self, inputs: Tensor, *state: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        """Return what the network returns of the inputs."""
        size = self.averages.shape[1]
        scaled = torch.cat([self.sees(inputs), inputs[..., size:]], -1)
        found: Tensor | tuple[Tensor, Tensor] = self.network(scaled, *state)
        return found

    def sees(self, inputs: Tensor) -> Tensor:
        """Return the first inputs in units of mean and deviation, at first as they are."""
        weight, mean, variance, _ = self.averages.detach()
        deviation = torch.where(weight > 0.0, (variance + LEAST).sqrt(), 1.0)
        own = inputs[..., : len(mean)]
        scaled: Tensor = ((own - mean) / deviation).clamp(-FARTHEST, FARTHEST)
        return scaled

    def moments(self, inputs: Tensor, counted: Tensor, counts: Array | float) -> FloatArray:
        """Return the entries of a unit's share of both moments about the present mean.

        Args:
            inputs: The first inputs of the unit's steps, shape (..., size).
            counted: 1 where they count, else 0, shape (..., 1 or size).
            counts: Number of those that count in the minibatch, of all or of each input.
        """
        size = self.averages.shape[1]
        mean = self.averages.detach()[1].cpu().numpy().astype(np.float64)
        away = (inputs.cpu().numpy().astype(np.float64) - mean) * counted.cpu().numpy()
        away = away.reshape(-1, size)
        shares = np.stack([away.sum(0), np.square(away).sum(0)]) / np.maximum(counts, 1.0)
        shares = shares.ravel()
        entries = encoded(shares)
        entries[: 2 * size : 2][shares[size:] >= LIMIT * COARSE] = LIMIT
        return entries

    @staticmethod
    def clamped(entries: FloatArray) -> BoolArray:
        """Tell the inputs with a unit of clamped moments, from the sum of units' entries."""
        clamped: BoolArray = entries[: len(entries) // 2 : 2] > LIMIT / 2
        return clamped

    @staticmethod
    def moved(averages: FloatArray, entries: FloatArray) -> FloatArray:
        """Return flat averages after an update whose units' entries sum to these.

        Those of an input with clamped moments are as before.
        """
        pairs = entries.reshape(-1, 2).astype(np.float64)
        first, second = (pairs[:, 0] * COARSE + pairs[:, 1] * FINE).reshape(2, -1)
        before = averages.reshape(4, -1).astype(np.float64)
        weight, mean, variance, none = before
        after = DECAY * weight + (1.0 - DECAY)
        share = (1.0 - DECAY) / after
        about: Array = (1.0 - share) * variance + share * second - np.square(share * first)
        found = np.stack([after, mean + share * first, about.clip(0.0), none])
        found = np.where(Normalising.clamped(entries), before, found)
        return found.astype(np.float32).reshape(-1)
