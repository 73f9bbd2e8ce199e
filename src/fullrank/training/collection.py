"""Collection of a run's iterations in the process of its parameters, step by step.

One of these, or a collection by blocks (``block_collection``), is chosen where a run is built.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fullrank.algorithms.roles import Player
from fullrank.common.seeding import derive
from fullrank.common.types import FloatArray
from fullrank.environments.base import Environment
from fullrank.environments.capabilities import doing, horizon_of
from fullrank.replay.layout import Layout
from fullrank.training.evaluation import Greedy, evaluate
from fullrank.training.rollouts import Collected, Rollout
from fullrank.training.soundness import check_rows
from fullrank.training.trainer import part


class Collection(Protocol):
    """Makes the collections of a run, with the current parameters or earlier ones.

    Where every collection is for one update, their numbers are those of the iterations.
    """

    @property
    def rows(self) -> int:
        """Rows of every collection; 0 if their number differs."""

    def publish(self, number: int) -> None:
        """Keep the current parameters, before a collection's updates, for what is played ahead."""

    def collect(self, number: int) -> Collected:
        """Collect in this process, or return what was collected ahead.

        Raises:
            Unsound: An observation, an action or a reward is not finite.
            EnvironmentFailed: The environment raised.
            ConfigError: Collectors play freely instead.
        """

    def state(self, *, resume_at: int) -> dict[str, NDArray[Any]]:
        """Return the arrays from which ``load`` resumes at collection ``resume_at``.

        Call this once the updates over ``resume_at - 1`` are applied; ``resume_at`` may already
        have been collected.
        """

    def load(self, state: Mapping[str, NDArray[Any]], *, resume_at: int) -> None:
        """Resume at collection ``resume_at`` from the arrays returned by ``state``.

        Raises:
            CheckpointUnusable: The state belongs to another configuration.
            EnvironmentFailed: The environments are not reproducible.
        """

    def doing(self) -> str:
        """Name the copy whose environment is called now, its step and seed; any thread may ask."""

    def close(self) -> None:
        """Close the environments."""


class OwnCollection:
    """Plays in the run's own environments, with the current parameters.

    Args:
        environment: Environment of the collections; closed with the collection.
        layout: Layout of one transition.
        rows: Rows of a collection.
        play: Collects.

    Attributes:
        rows: As given.
    """

    def __init__(
        self,
        environment: Environment,
        layout: Layout,
        *,
        rows: int,
        play: Callable[[int], Collected],
    ) -> None:
        self._environment, self._layout, self._play = environment, layout, play
        self.rows = rows
        self._newest: tuple[int, Collected] | None = None

    def publish(self, number: int) -> None:
        """Do nothing: a collection begins with the current parameters."""

    def collect(self, number: int) -> Collected:
        """Collect; return the stored collection on a repeated call.

        Raises:
            Unsound: An observation, an action or a reward is not finite.
        """
        if self._newest is None or self._newest[0] != number:
            collected = self._play(number)
            check_rows(collected.rows, self._layout, what=f"iteration {number}")
            self._newest = number, collected
        return self._newest[1]

    def state(self, *, resume_at: int) -> dict[str, NDArray[Any]]:
        """Return what was collected ahead."""
        if self._newest is None or self._newest[0] != resume_at:
            return {}
        collected = self._newest[1]
        arrays: dict[str, NDArray[Any]] = {"rows": collected.rows, "returns": collected.returns}
        arrays |= {f"side.{side}": value for side, value in collected.side_returns.items()}
        if collected.won is not None:
            arrays["won"] = collected.won
        return {f"collected.{name}": array for name, array in arrays.items()}

    def load(self, state: Mapping[str, NDArray[Any]], *, resume_at: int) -> None:
        """Resume at collection ``resume_at`` from the arrays returned by ``state``."""
        ahead = part(state, "collected")
        if ahead:
            sides, won = part(ahead, "side"), ahead.get("won")
            self._newest = resume_at, Collected(ahead["rows"], ahead["returns"], sides, won)

    def doing(self) -> str:
        """Name the copy whose environment is called now, its step and seed; any thread may ask."""
        return doing([self._environment])

    def close(self) -> None:
        """Close the environment."""
        self._environment.close()


class StepCollection(OwnCollection):
    """Steps every copy equally often in each collection; episodes continue from one to the next.

    Args:
        environment: Environment of the collections; closed with the collection.
        player: Selects actions, with the current policies.
        layout: Layout of one transition.
        seed: The run's seed.
        steps: Steps of each copy in one collection.
    """

    def __init__(
        self, environment: Environment, player: Player, layout: Layout, *, seed: int, steps: int
    ) -> None:
        horizon = horizon_of(environment)
        stagger = horizon if horizon and steps % horizon else 0
        self._rollout = rollout = Rollout(environment, player, layout, seed=seed, stagger=stagger)
        rows, play = steps * environment.copies, partial(rollout.collect, steps)
        super().__init__(environment, layout, rows=rows, play=play)

    def state(self, *, resume_at: int) -> dict[str, NDArray[Any]]:
        """Return the state of the environments, and what was collected ahead."""
        rollout = {f"rollout.{name}": array for name, array in self._rollout.state().items()}
        return rollout | super().state(resume_at=resume_at)

    def load(self, state: Mapping[str, NDArray[Any]], *, resume_at: int) -> None:
        """Resume at collection ``resume_at`` from the arrays returned by ``state``.

        Raises:
            CheckpointUnusable: The state belongs to another environment or number of copies.
            EnvironmentFailed: The environments are not reproducible.
        """
        self._rollout.load(part(state, "rollout"))
        super().load(state, resume_at=resume_at)


class EvaluationCollection(OwnCollection):
    """Evaluates in place of collecting, where learners make their own samples.

    Args:
        environment: Environment; an evaluation runs one episode in each copy.
        player: Selects actions without exploration.
        layout: Layout of a transition.
        seed: The run's seed; the evaluation of iteration k is keyed by (seed, "evaluations", k).
        every: Number of iterations between evaluations.
    """

    def __init__(
        self, environment: Environment, player: Player, layout: Layout, *, seed: int, every: int
    ) -> None:
        super().__init__(environment, layout, rows=0, play=self._evaluated)
        self._player, self._seed, self._every = player, seed, every

    def _evaluated(self, iteration: int) -> Collected:
        """Run the iteration's evaluation on whole episodes, if it is due."""
        nothing: FloatArray = np.empty((0, self._layout.row_size), dtype=np.float32)
        if iteration % self._every:
            return Collected(nothing, np.empty(0), {})
        seed = derive(self._seed, "evaluations", iteration)
        player, copies = Greedy(self._player), self._environment.copies
        played = evaluate(self._environment, player, copies, seed)
        return Collected(nothing, played.returns, played.side_returns, played.won)
