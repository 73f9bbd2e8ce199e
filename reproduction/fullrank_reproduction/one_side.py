"""One side of a contest as an environment of its own, in which somebody plays the other side."""

from collections.abc import Callable, Sequence

import numpy as np

from fullrank.common.types import FloatArray
from fullrank.environments.base import Environment, Step
from fullrank_reproduction.entities import Entities


class OneSide:
    """The agents of the last side; those before them are part of the world.

    Args:
        environment: Both sides; all agents act until the end.
        entities: What its agents see.
        others: From what the agents of the other side see, shape (E, sum of their observation
            sizes), to what they do. Asked once a step.
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
        """See ``Environment.reset``."""
        return self._look(self._environment.reset(seeds, copies))

    def step(self, action: FloatArray) -> Step:
        """See ``Environment.step``."""
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
        """What the agents see; what the others do is kept for them."""
        self._seen = observation[:, : self._split]
        return observation[:, self._split :]

    def entities(self) -> Entities:
        """See ``Described``."""
        return self._entities.of(self._mine)

    def close(self) -> None:
        """See ``Environment.close``."""
        self._environment.close()
