"""One network for each of M agents, computed together; parameters are flat rows, one per agent."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from fullrank.common.seeding import stream
from fullrank.common.types import FloatArray
from fullrank.networks.adam import Adam, Rows


class Copies:
    """M networks of one shape.

    Args:
        make: Makes one network; its own parameters are never used.
        agents: M, the number of agents.

    Attributes:
        rows: Parameters, targets and moments, each of shape (M, size).
    """

    def __init__(self, make: Callable[[], nn.Module], agents: int) -> None:
        with torch.device("meta"):
            self._network = make()
        self._shapes = {name: part.shape for name, part in self._network.named_parameters()}
        size = sum(shape.numel() for shape in self._shapes.values())
        self.rows = Rows(*(torch.zeros(agents, size) for _ in range(4)))

    def initialise(self, seed: int, purpose: str) -> None:
        """Glorot-uniform weights, zero biases, unit norms, keyed by (seed, purpose, agent)."""
        for agent in range(len(self.rows.online)):
            generator = stream(seed, purpose, agent)
            for name, part in self._parts(self.rows.online[agent : agent + 1]).items():
                part[0] = torch.from_numpy(_initial(name, tuple(part.shape[1:]), generator))
        self.rows.target.copy_(self.rows.online)

    def begin(self, parameters: FloatArray) -> None:
        """Set the parameters, shape (M, size), and equal targets."""
        self.rows.online.copy_(torch.tensor(parameters))
        self.rows.target.copy_(self.rows.online)

    def compute(self, parameters: Tensor, *inputs: Any, along: Sequence[int | None]) -> Tensor:
        """Outputs of all networks, the agents' axis first.

        Args:
            parameters: Parameters of all networks, such as ``rows.online``.
            inputs: Inputs of the network: tensors, or trees of them.
            along: Axis of agents in each input; None if all networks get the same input.
        """
        call = vmap(lambda own, *given: functional_call(self._network, own, given), (0, *along))
        outputs: Tensor = call(self._parts(parameters), *inputs)
        return outputs

    def step(self, gradient: Tensor, adam: Adam, *, count: int, clip_norm: float) -> None:
        """Take a step of the optimiser, each variable of each agent clipped to an L2 norm."""
        for part in self._parts(gradient).values():
            lengths = part.flatten(1).norm(dim=1).clamp_min(clip_norm)
            part *= (clip_norm / lengths).view(-1, *[1] * (part.dim() - 1))
        self.rows.step(gradient, adam, count=count)

    def _parts(self, rows: Tensor) -> dict[str, Tensor]:
        """Views of flat rows by variable."""
        sizes = [shape.numel() for shape in self._shapes.values()]
        parts = torch.split_with_sizes(rows, sizes, dim=1)
        return {
            name: part.view(-1, *shape)
            for (name, shape), part in zip(self._shapes.items(), parts, strict=True)
        }


def _initial(
    name: str, shape: tuple[int, ...], generator: np.random.Generator
) -> np.ndarray[Any, Any]:
    if len(shape) == 2:
        limit = (6.0 / sum(shape)) ** 0.5
        return generator.uniform(-limit, limit, shape)
    return np.full(shape, float(name.endswith("norm.weight")))
