"""The collector: environments played by an actor, iteration by iteration, into packed rows.

Environments and keys are fixed here, so the services and the one-process driver collect the same
transitions.
"""

from collections.abc import Callable, Mapping
from math import ceil
from typing import Any

import numpy as np

from fullrank.algorithms import Actor, DataMode
from fullrank.algorithms.transitions import layout_of
from fullrank.common.seeding import derive
from fullrank.common.types import FloatArray
from fullrank.environments import Environment
from fullrank.training.evaluation import Evaluations
from fullrank.training.rollouts import Collected, Rollout
from fullrank.training.trainer import part

WARM_UP = -1
"""The iteration that keys the exploration of the warm-up."""


class Collector:
    """Collects the transitions of each iteration, and those before the first one.

    Args:
        make_environment: Copies to that many environments stepped together.
        environment: Those that collect; closed with the collector.
        actor: Plays, with the current policies.
        data: Where learners collect for themselves, whole episodes are evaluated instead.
        seed: The run's seed.
        steps: Steps of each copy in one iteration.
        warmup: Transitions collected before the first iteration.
        warmup_copies: Environments that collect them.

    Attributes:
        agents: The environment's agents, in order.
        layout: Of one transition.
        warmup: Transitions collected before the first iteration; 0 where learners collect.
    """

    def __init__(
        self,
        make_environment: Callable[[int], Environment],
        environment: Environment,
        actor: Actor,
        data: DataMode,
        *,
        seed: int,
        steps: int,
        warmup: int,
        warmup_copies: int,
    ) -> None:
        self._make_environment, self._environment = make_environment, environment
        self._actor, self._seed, self._steps = actor, seed, steps
        self.agents, self.layout = environment.agents, layout_of(environment.agents)
        self.warmup, self._warmup_copies = warmup if data.batch_size else 0, warmup_copies
        self._rollout: Rollout | Evaluations = (
            Rollout(environment, actor, self.layout, seed=seed)
            if data.batch_size
            else Evaluations(environment, actor, self.layout, seed=seed, every=data.evaluate_every)
        )
        self._last: tuple[int, Collected] | None = None  # the last collection, by iteration

    def warm_up(self) -> FloatArray:
        """Transitions to append before the first iteration, shape (warmup, row_size).

        They are played in environments of their own, from other initial states than the run's.
        """
        if not self.warmup:
            return np.empty((0, self.layout.row_size), dtype=np.float32)
        environment = self._make_environment(self._warmup_copies)
        try:
            seed = derive(self._seed, "warm_up")
            rollout = Rollout(environment, self._actor, self.layout, seed=seed)
            steps = ceil(self.warmup / self._warmup_copies)
            return rollout.collect(steps, iteration=WARM_UP).rows[: self.warmup]
        finally:
            environment.close()

    def collect(self, iteration: int) -> Collected:
        """Play with the current policies, unless the iteration was played before."""
        if self._last is None or self._last[0] != iteration:
            self._last = iteration, self._rollout.collect(self._steps, iteration=iteration)
        return self._last[1]

    def state(self, *, resume_at: int) -> dict[str, np.ndarray[Any, Any]]:
        """Everything that ``load`` needs to go on with iteration ``resume_at``.

        Call it when ``resume_at - 1`` is applied; ``resume_at`` may already have been collected.
        """
        ahead: dict[str, np.ndarray[Any, Any]] = {}
        if self._last is not None and self._last[0] == resume_at:
            collected = self._last[1]
            sides = {f"side.{side}": value for side, value in collected.side_returns.items()}
            ahead = {"rows": collected.rows, "returns": collected.returns, **sides}
        parts = {"rollout": self._rollout.state(), "collected": ahead}
        return {
            f"{name}.{key}": array
            for name, arrays in parts.items()
            for key, array in arrays.items()
        }

    def load(self, state: Mapping[str, np.ndarray[Any, Any]], *, resume_at: int) -> None:
        """Go on with iteration ``resume_at`` from what ``state`` gave.

        Raises:
            CheckpointUnusable: It belongs to another environment or number of copies.
            EnvironmentFailed: The environments do not repeat themselves.
        """
        self._rollout.load(part(state, "rollout"))
        ahead = part(state, "collected")
        if ahead:
            sides = part(ahead, "side")
            self._last = resume_at, Collected(ahead["rows"], ahead["returns"], sides)

    def close(self) -> None:
        """Release the environments."""
        self._environment.close()
