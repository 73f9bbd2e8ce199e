"""Base of actors whose policies see the present alone."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
from torch import Tensor

from fullrank.common.seeding import stream
from fullrank.common.types import BoolArray, FloatArray
from fullrank.networks.heads import Head

Choose: TypeAlias = Callable[[Head, Tensor], Tensor]
"""Makes actions from the outputs of policies, both of shape (agents, action size, copies)."""


class MemorylessActor(ABC):
    """Choose actions from the outputs of policies; the memory is empty.

    Args:
        action_sizes: Entries of each agent's action.
        seed: Keys the exploration.
    """

    def __init__(self, action_sizes: Sequence[int], *, seed: int) -> None:
        self._action_sizes, self._seed = action_sizes, seed

    @abstractmethod
    def _act(
        self, observation: FloatArray, available: BoolArray | None, choose: Choose
    ) -> FloatArray:
        """Return joint actions, shape (E, sum of action sizes)."""

    def memory(self, copies: int) -> tuple[()]:
        """Return the empty memory."""
        return ()

    def act(
        self,
        observation: FloatArray,
        memory: tuple[FloatArray, ...],
        *,
        iteration: int,
        step: int,
        alive: BoolArray,
        available: BoolArray | None = None,
    ) -> tuple[FloatArray, tuple[FloatArray, ...]]:
        """Return exploring joint actions, keyed by (seed, iteration, step); see ``Actor.act``."""
        generator = stream(self._seed, "act", iteration, step)
        actions = self._act(
            observation, available, lambda head, outputs: head.explore(outputs, generator)
        )
        return actions * np.repeat(alive, self._action_sizes, axis=1), memory

    def act_greedily(
        self,
        observation: FloatArray,
        memory: tuple[FloatArray, ...],
        *,
        available: BoolArray | None = None,
    ) -> tuple[FloatArray, tuple[FloatArray, ...]]:
        """Return the likeliest actions as one-hot, or the means."""
        return self._act(observation, available, lambda head, outputs: head.mode(outputs)), memory
