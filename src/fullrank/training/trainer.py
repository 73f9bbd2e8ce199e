"""What every driver of a run does alike: what is collected when, and which sample follows.

Iteration k collects with the current policies, appends what it collected to the table, draws its
sample from all that the table then holds, and applies the updates. Environments, keys and sample
are fixed here, so the services and the one-process driver commit the same bits.
"""

from collections.abc import Mapping
from math import ceil
from typing import Any, TypeAlias

import numpy as np
from blake3 import blake3

from fullrank.algorithms import (
    AlgorithmConfig,
    LocalAlgorithmConfig,
    algorithms,
    recipe_in,
)
from fullrank.common.seeding import derive
from fullrank.common.types import FloatArray
from fullrank.common.updates import DIGEST_BYTES
from fullrank.environments import Environment, make_environment, variant_of
from fullrank.replay import TABLE, Layout, Priority, Sample
from fullrank.training.episode_returns import Evaluations
from fullrank.training.rollouts import Collected, Rollout

Params: TypeAlias = Mapping[str, Any]

WARM_UP = -1
"""The iteration that keys the exploration of the warm-up."""


class Training:
    """The controller's side of a run, without its network: environments, parameters, optimiser.

    Args:
        seed: The run's seed; with equal arguments it gives equal runs.
        environment: Registered name, or ``package.module:factory``.
        environment_params: Its parameters.
        agents: M; 0 means the environment's own number.
        algorithm: Registered name.
        algorithm_params: Its parameters.
        device: ``auto``, ``cpu`` or ``cuda``.
        copies: E, environments that collect.
        steps: Steps of each copy in one iteration.
        warmup: Transitions collected before the first iteration.
        warmup_copies: Environments that collect them.
        priority_gain: Draw transitions with larger rewards more often, by so much; None: all alike.

    Attributes:
        agents: The environment's agents, in order.
        algorithm: The truth about all parameters.
        layout: Of one transition.
        batch_size: B; 0 if learners make the samples of their units.
        warmup: Transitions collected before the first iteration; 0 if B is 0.
        variant: Whose dynamics and rewards the environment has.
    """

    def __init__(
        self,
        *,
        seed: int,
        environment: str,
        environment_params: Params,
        agents: int,
        algorithm: str,
        algorithm_params: Params,
        device: str,
        copies: int,
        steps: int,
        warmup: int,
        warmup_copies: int,
        priority_gain: float | None = None,
    ) -> None:
        self._seed, self._steps = seed, steps
        self.warmup, self._warmup_copies = warmup, warmup_copies
        self._environment_table = (environment, agents, dict(environment_params))
        self.variant = variant_of(environment, environment_params)
        self._environment = self._make_environment(copies)
        self.agents = specs = self._environment.agents
        config = algorithms.build(algorithm, **algorithm_params)
        recipe = recipe_in(
            config, environment=environment, agents=agents, params=environment_params
        )
        self.batch_size = recipe.batch_size
        self.algorithm = recipe.make(specs, seed=seed, device=device)
        self.layout = Layout(
            observation_sizes=tuple(agent.observation_size for agent in specs),
            action_sizes=tuple(agent.action.size for agent in specs),
        )
        self._priority = _priority_of(self.layout, priority_gain)
        self._rollout = self._rollout_of(config)
        if not self.batch_size:
            self.warmup = 0
        self._last: tuple[int, Collected] | None = None  # the last collection, by iteration

    def _rollout_of(self, config: AlgorithmConfig | LocalAlgorithmConfig) -> Rollout | Evaluations:
        """What is played in an iteration: to learn from, or to see what was learnt."""
        played = (self._environment, self.algorithm, self.layout)
        if isinstance(config, LocalAlgorithmConfig):
            return Evaluations(*played, seed=self._seed, every=config.evaluate_every)
        return Rollout(*played, seed=self._seed)

    def warm_up(self) -> FloatArray:
        """Transitions to append before the first iteration, shape (warmup, row_size).

        They are played in environments of their own, from other initial states than the run's.
        """
        if not self.warmup:
            return np.empty((0, self.layout.row_size), dtype=np.float32)
        environment = self._make_environment(self._warmup_copies)
        try:
            seed = derive(self._seed, "warm_up")
            rollout = Rollout(environment, self.algorithm, self.layout, seed=seed)
            steps = ceil(self.warmup / self._warmup_copies)
            return rollout.collect(steps, iteration=WARM_UP).rows[: self.warmup]
        finally:
            environment.close()

    def collect(self, iteration: int) -> Collected:
        """Play with the current policies, unless the iteration was played before."""
        if self._last is None or self._last[0] != iteration:
            self._last = iteration, self._rollout.collect(self._steps, iteration=iteration)
        return self._last[1]

    def sample(self, iteration: int, *, tail: int, head: int) -> Sample:
        """The iteration's minibatch, over what the table held when it was fixed."""
        return Sample(
            table=TABLE,
            seed=self._seed,
            iteration=iteration,
            tail=tail,
            head=head,
            size=self.batch_size,
            priority=self._priority,
        )

    def apply(self, updates: FloatArray) -> None:
        """Optimiser step and target networks, from the decoded updates, shape (M, P)."""
        self.algorithm.apply(updates)

    def state(self, *, resume_at: int) -> dict[str, np.ndarray[Any, Any]]:
        """Everything that ``load`` needs to go on with iteration ``resume_at``.

        Call it when ``resume_at - 1`` is applied; ``resume_at`` may already have been collected.
        """
        ahead: dict[str, np.ndarray[Any, Any]] = {}
        if self._last is not None and self._last[0] == resume_at:
            collected = self._last[1]
            sides = {f"side.{side}": value for side, value in collected.side_returns.items()}
            ahead = {"rows": collected.rows, "returns": collected.returns, **sides}
        parts: dict[str, Mapping[str, np.ndarray[Any, Any]]] = {
            "algorithm": self.algorithm.state(),
            "rollout": self._rollout.state(),
            "collected": ahead,
        }
        return {
            f"{part}.{name}": array
            for part, arrays in parts.items()
            for name, array in arrays.items()
        }

    def load(self, state: Mapping[str, np.ndarray[Any, Any]], *, resume_at: int) -> None:
        """Go on with iteration ``resume_at`` from what ``state`` gave.

        Raises:
            CheckpointUnusable: It belongs to another environment, algorithm or number of copies.
            EnvironmentFailed: The environments do not repeat themselves.
        """
        self.load_algorithm(state)
        self._rollout.load(part(state, "rollout"))
        ahead = part(state, "collected")
        if ahead:
            sides = part(ahead, "side")
            self._last = resume_at, Collected(ahead["rows"], ahead["returns"], sides)

    def load_algorithm(self, state: Mapping[str, np.ndarray[Any, Any]]) -> None:
        """Restore the algorithm alone, to play with its policies.

        Raises:
            CheckpointUnusable: It belongs to another algorithm or environment.
        """
        self.algorithm.load(part(state, "algorithm"))

    def digest(self) -> str:
        """Of the parameters, targets and optimiser: equal digests mean equal bits."""
        hasher = blake3()
        for name, array in sorted(self.algorithm.state().items()):
            hasher.update(f"{name} {array.dtype.str} {array.shape}".encode())
            hasher.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        return hasher.hexdigest(DIGEST_BYTES)

    def close(self) -> None:
        """Release the environments."""
        self._environment.close()

    def _make_environment(self, copies: int) -> Environment:
        name, agents, params = self._environment_table
        return make_environment(name, agents=agents, copies=copies, **params)


def _priority_of(layout: Layout, gain: float | None) -> Priority | None:
    if gain is None:
        return None
    return Priority(first=layout.reward.start, count=layout.agents, gain=gain)


def part(state: Mapping[str, np.ndarray[Any, Any]], name: str) -> dict[str, np.ndarray[Any, Any]]:
    """One part of a state: ``algorithm``, ``rollout`` or ``collected``."""
    prefix = f"{name}."
    return {
        key.removeprefix(prefix): array for key, array in state.items() if key.startswith(prefix)
    }
