"""Returns of a run whose learners make their own samples: whole episodes, now and then."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fullrank.algorithms import Algorithm
from fullrank.common.seeding import derive
from fullrank.environments.base import Environment
from fullrank.replay.layout import Layout
from fullrank.training.rollouts import Collected, evaluate


class Evaluations:
    """Takes the place of ``Rollout``: gives returns without exploration, and no transitions.

    Args:
        environment: An evaluation plays one episode in each copy.
        algorithm: Acts.
        layout: Of the transitions that there are none of.
        seed: Evaluation k is keyed by (seed, "evaluations", k).
        every: Iterations from one evaluation to the next.
    """

    def __init__(
        self,
        environment: Environment,
        algorithm: Algorithm,
        layout: Layout,
        *,
        seed: int,
        every: int,
    ) -> None:
        self._environment, self._algorithm = environment, algorithm
        self._nothing = np.empty((0, layout.row_size), dtype=np.float32)
        self._seed, self._every = seed, every

    def collect(self, steps: int, iteration: int) -> Collected:
        """Play the iteration's evaluation if it has one; episodes are whole, whatever ``steps``."""
        if iteration % self._every:
            return Collected(self._nothing, np.empty(0), {})
        played = evaluate(
            self._environment,
            self._algorithm.act_greedily,
            self._environment.copies,
            derive(self._seed, "evaluations", iteration),
        )
        return Collected(self._nothing, played.returns, played.side_returns)

    def state(self) -> dict[str, NDArray[Any]]:
        """Nothing lasts from one evaluation to the next."""
        return {}

    def load(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on."""
