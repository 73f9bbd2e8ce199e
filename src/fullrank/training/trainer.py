"""The trainer: chooses the sample of an iteration and applies the decoded targets.

Iteration k collects with the current policies, appends the transitions to the table, draws its
sample from the table's contents, and applies the decoded targets. Sample and optimiser are fixed
here, so that the services and the one-process driver commit the same bits.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from blake3 import blake3

from fullrank.algorithms import Algorithm
from fullrank.common.errors import ConfigError, Unsound
from fullrank.common.rows import Rows
from fullrank.common.updates import DIGEST_BYTES
from fullrank.replay.samplers import EachOnce, Priority, Sample
from fullrank.replay.table import TABLE


class Trainer:
    """The samples and the optimiser of one run.

    Args:
        algorithm: Holds the authoritative parameters.
        seed: The run's seed; equal arguments give equal runs.
        priority: Draws items with larger rewards more often; None: draws uniformly.
        updates: K, updates over one collection.

    Attributes:
        algorithm: As given.
        updates: As given.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        *,
        seed: int,
        priority: Priority | None = None,
        updates: int = 1,
    ) -> None:
        self.algorithm, self.updates = algorithm, updates
        self._seed, self._priority = seed, priority

    def sample(self, iteration: int, *, tail: int, head: int, first: int | None = None) -> Sample:
        """Return the iteration's sample.

        Args:
            iteration: Number of the iteration.
            tail: Position of the oldest row that may be drawn.
            head: One past the newest row.
            first: Position of the first row of the iteration's collection; by default ``tail``.

        Raises:
            ConfigError: Every item of the collection is drawn once, and some are not held any more.
        """
        problem = self.algorithm.problem
        once, newest = None, problem.data.newest_episodes
        if epochs := problem.data.epochs:
            first = tail if first is None else first
            if first < tail:
                raise ConfigError(
                    f"a collection of {head - first} rows is more than replay holds; raise "
                    "replay.capacity, or lower environment.copies"
                )
            tail = first
            collection, step = divmod(iteration, self.updates)
            epoch, part = divmod(step, self.updates // epochs)
            once = EachOnce(collection=collection, epoch=epoch, part=part)
            newest = problem.data.batch_size * self.updates // epochs
        return Sample(
            table=TABLE,
            seed=self._seed,
            iteration=iteration,
            tail=tail,
            head=head,
            size=problem.data.batch_size,
            priority=self._priority,
            draw=problem.draw(newest=newest),
            once=once,
        )

    def apply(self, targets: Rows, *, iteration: int) -> Mapping[str, float]:
        """Step the optimiser and the target networks with the decoded targets, shape (K, P).

        Returns:
            Statistics of the step; see ``Optimiser.step``.

        Raises:
            Unsound: The parameters are not those of a committed iteration any more.
        """
        try:
            return self.algorithm.optimiser.step(targets)
        except Unsound as error:
            raise Unsound(f"iteration {iteration}: {error}") from error

    def state(self) -> dict[str, np.ndarray[Any, Any]]:
        """Return parameters, targets and optimiser state for ``load``.

        Raises:
            Unsound: An entry is not finite, which an optimiser of a plug-in may not have noticed.
        """
        state = self.algorithm.optimiser.state()
        for name, array in state.items():
            if not np.isfinite(array).all():
                raise Unsound(f"{name!r} of the optimiser is not finite; nothing is checkpointed")
        return {f"algorithm.{name}": array for name, array in state.items()}

    def load(self, state: Mapping[str, np.ndarray[Any, Any]]) -> None:
        """Restore the arrays returned by ``state``; ignore other parts of a checkpoint.

        Raises:
            CheckpointUnusable: The state belongs to another algorithm or environment.
        """
        self.algorithm.optimiser.load(part(state, "algorithm"))

    def digest(self) -> str:
        """Hash parameters, targets and optimiser state: equal digests mean equal bits."""
        hasher = blake3()
        for name, array in sorted(self.algorithm.optimiser.state().items()):
            hasher.update(f"{name} {array.dtype.str} {array.shape}".encode())
            hasher.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        return hasher.hexdigest(DIGEST_BYTES)


def part(state: Mapping[str, np.ndarray[Any, Any]], name: str) -> dict[str, np.ndarray[Any, Any]]:
    """Extract one part of a checkpoint, for example ``algorithm``, ``rollout`` or ``collected``."""
    prefix = f"{name}."
    return {
        key.removeprefix(prefix): array for key, array in state.items() if key.startswith(prefix)
    }
