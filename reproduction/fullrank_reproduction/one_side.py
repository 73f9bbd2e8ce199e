"""One side of a contest as an environment; a function plays the other side."""

from collections.abc import Callable, Sequence

import numpy as np

from fullrank.common.types import FloatArray
from fullrank.environments.base import Environment, Step
from fullrank_reproduction.entities import Entities


class OneSide:
    """The agents of the last side; the other side is part of the environment.

    Args:
        environment: Both sides; all agents act until the end.
        entities: Layout of the observations.
        others: Maps the observations of the other side, shape (E, sum of their observation sizes),
            to its actions; called once a step.
    """

    def __init__(
        self,
        environment: Environment,
        entities: Entities,
        others: Callable[[FloatArray], FloatArray],
    ) -> None:
        specs = environment.agents
        start = next(index for index, spec in enumerate(specs) if spec.side == specs[-1].side)
        self._environment, self._entities, self._others = environment, entities, others
        self._mine = slice(start, None)
        self._split = sum(spec.observation_size for spec in specs[:start])
        self._seen: FloatArray = np.zeros((environment.copies, self._split), dtype=np.float32)
        self.agents, self.copies = specs[self._mine], environment.copies

    def reset(self, seeds: Sequence[int], copies: Sequence[int]) -> FloatArray:
        """Start new episodes; see ``Environment.reset``."""
        return self._look(self._environment.reset(seeds, copies))

    def step(self, action: FloatArray) -> Step:
        """Step all copies; see ``Environment.step``."""
        joint = np.concatenate([self._others(self._seen), action], axis=1)
        step = self._environment.step(joint)
        return Step(
            observation=self._look(step.observation),
            reward=step.reward[:, self._mine],
            terminated=step.terminated[:, self._mine],
            alive=step.alive[:, self._mine],
            ended=step.ended,
        )

    def _look(self, observation: FloatArray) -> FloatArray:
        """Observations of the side; stores the actions of the others."""
        self._seen = observation[:, : self._split]
        return observation[:, self._split :]

    def entities(self) -> Entities:
        """Describe the entities; see ``Described``."""
        return self._entities.of(self._mine)

    def close(self) -> None:
        """Close the copies; see ``Environment.close``."""
        self._environment.close()
