"""Evaluations in place of collections, where learners make their own samples."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fullrank.algorithms.roles import Player
from fullrank.common.seeding import derive
from fullrank.environments.base import Environment
from fullrank.replay.layout import Layout
from fullrank.training.evaluation import Greedy, evaluate
from fullrank.training.rollouts import Collected


class EvaluationRollout:
    """Substitute for ``Rollout`` where learners collect: episode returns without transitions.

    Args:
        environment: Environment; an evaluation runs one episode in each copy.
        actor: Selects actions without exploration.
        layout: Layout of a transition.
        seed: The run's seed; the evaluation of iteration k is keyed by (seed, "evaluations", k).
        every: Number of iterations between evaluations.
    """

    def __init__(
        self,
        environment: Environment,
        actor: Player,
        layout: Layout,
        *,
        seed: int,
        every: int,
    ) -> None:
        self._environment, self._actor = environment, actor
        self._nothing = np.empty((0, layout.row_size), dtype=np.float32)
        self._seed, self._every = seed, every

    def collect(self, steps: int, iteration: int) -> Collected:
        """Run the iteration's evaluation, if due, on whole episodes; ``steps`` is ignored."""
        if iteration % self._every:
            return Collected(self._nothing, np.empty(0), {})
        played = evaluate(
            self._environment,
            Greedy(self._actor),
            self._environment.copies,
            derive(self._seed, "evaluations", iteration),
        )
        return Collected(self._nothing, played.returns, played.side_returns, played.won)

    def state(self) -> dict[str, NDArray[Any]]:
        """Return no arrays: evaluations are independent of one another."""
        return {}

    def load(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Do nothing: evaluations have no state."""
