"""The trainer: which sample an iteration draws, and how its decoded targets are applied.

Iteration k collects with the current policies, appends the transitions to the table, draws its
sample from all that the table then holds, and applies the decoded targets. Sample and optimiser are
fixed here, so the services and the one-process driver commit the same bits.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from blake3 import blake3

from fullrank.algorithms import Algorithm
from fullrank.common.types import FloatArray
from fullrank.common.updates import DIGEST_BYTES
from fullrank.replay import TABLE, Priority, Sample


class Trainer:
    """The schedule of samples and the optimiser of one run.

    Args:
        algorithm: Holds the truth about all parameters.
        seed: The run's seed; with equal arguments it gives equal runs.
        priority: Draws transitions with larger rewards more often; None: all alike.
    """

    def __init__(
        self, algorithm: Algorithm, *, seed: int, priority: Priority | None = None
    ) -> None:
        self.algorithm = algorithm
        self._seed, self._priority = seed, priority

    def sample(self, iteration: int, *, tail: int, head: int) -> Sample:
        """The iteration's minibatch, over what the table held when it was fixed."""
        return Sample(
            table=TABLE,
            seed=self._seed,
            iteration=iteration,
            tail=tail,
            head=head,
            size=self.algorithm.problem.data.batch_size,
            priority=self._priority,
        )

    def apply(self, targets: FloatArray) -> None:
        """Optimiser step and target networks, from the decoded targets, shape (K, P)."""
        self.algorithm.optimiser.step(targets)

    def state(self) -> dict[str, np.ndarray[Any, Any]]:
        """Parameters, targets and optimiser, as ``load`` takes them."""
        state = self.algorithm.optimiser.state()
        return {f"algorithm.{name}": array for name, array in state.items()}

    def load(self, state: Mapping[str, np.ndarray[Any, Any]]) -> None:
        """Restore what ``state`` gave; other parts of a checkpoint are ignored.

        Raises:
            CheckpointUnusable: It belongs to another algorithm or environment.
        """
        self.algorithm.optimiser.load(part(state, "algorithm"))

    def digest(self) -> str:
        """Digest of parameters, targets and optimiser: equal digests mean equal bits."""
        hasher = blake3()
        for name, array in sorted(self.algorithm.optimiser.state().items()):
            hasher.update(f"{name} {array.dtype.str} {array.shape}".encode())
            hasher.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        return hasher.hexdigest(DIGEST_BYTES)


def part(state: Mapping[str, np.ndarray[Any, Any]], name: str) -> dict[str, np.ndarray[Any, Any]]:
    """One part of a checkpoint: ``algorithm``, ``rollout`` or ``collected``."""
    prefix = f"{name}."
    return {
        key.removeprefix(prefix): array for key, array in state.items() if key.startswith(prefix)
    }
