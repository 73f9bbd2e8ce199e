"""The roles of an algorithm that compute: gradients, optimiser and actor.

A learner evaluates ``Gradients`` at the broadcast parameters, the controller's ``Optimiser``
applies the decoded targets, and an ``Actor`` selects actions in collection, evaluation and exports.
The roles of one process share its ``Parameters``.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np

from fullrank.algorithms.problem import Problem
from fullrank.common.rows import Rows
from fullrank.common.types import BoolArray, FloatArray, UnitIndex


class Parameters(Protocol):
    """All networks of one process, section by section."""

    def view(self, section: int) -> FloatArray:
        """Return the section's parameters as a writable flat CPU array, shape (size,)."""

    def written(self) -> None:
        """Apply values written through ``view``, for example by refreshing a device copy."""


class Gradients(Protocol):
    """The learner's role: units' updates at the broadcast parameters."""

    def compute(
        self,
        batch: FloatArray,
        units: Sequence[UnitIndex],
        *,
        iteration: int,
        row: int | None = None,
        check_cancelled: Callable[[], None] = ...,
    ) -> Iterator[tuple[UnitIndex, FloatArray]]:
        """Compute u_i, snapped to the grid, for each requested unit; pure in all its arguments.

        Unit i's bits depend on the parameters, the batch, the run's seed, the iteration, i and, in
        the ``independent`` mode, the row; they do not depend on the identity, number or order of
        the other units in the call.

        Args:
            batch: Packed transitions, shape (B, row_size) float32, or all rows of B episodes;
                empty where B is 0. Rows of items that the units do not read may be zero, except
                for the lengths of episodes.
            units: Units to compute, in any order, without repeats.
            iteration: Keys the draws.
            row: Row of C for which the units are computed; keys ``independent`` draws.
            check_cancelled: Called between stages; raises ``Cancelled`` to abandon the work.

        Yields:
            (i, u_i) with u_i of shape (P_i,) float32, in the order of completion.
        """

    def fingerprint(self) -> str:
        """Return the process's numeric identity: kernel, instructions, torch, threads, device."""


@runtime_checkable
class Divided(Protocol):
    """Gradients of which a thread may compute a part."""

    def run_beside(self, executor: Executor) -> None:
        """Compute a part of every further update on a thread, to the same bits.

        Args:
            executor: Runs one call at a time.
        """


class Optimiser(Protocol):
    """The controller's role: application of decoded targets to the parameters."""

    def step(self, targets: Rows) -> Mapping[str, float]:
        """Apply the decoded targets, shape (K, P) float32, and move the target networks.

        Returns:
            Statistics of the step for the iteration's record, by name; may be empty.
        """

    def state(self) -> Mapping[str, np.ndarray[Any, Any]]:
        """Return named copies of the arrays in a checkpoint: parameters, targets, moments."""

    def load(self, state: Mapping[str, np.ndarray[Any, Any]]) -> None:
        """Restore the arrays returned by ``state``.

        Raises:
            CheckpointUnusable: A name is missing or a shape differs.
        """


ACTING = ("policy", "agent")
"""Roles of the networks that select actions: each agent's own policy, or one network of all."""

Memory: TypeAlias = tuple[FloatArray, ...]
"""Recurrent state of an actor, arrays of shape (copies, ...); empty for perceptrons. A copy's
entries are zero when its episode starts."""


class Player(Protocol):
    """Mapping from joint observations and memory to joint actions and memory."""

    def memory(self, copies: int) -> Memory:
        """Return the initial memory for ``copies`` environments."""

    def act(
        self,
        observation: FloatArray,
        memory: Memory,
        *,
        iteration: int,
        step: int,
        alive: BoolArray,
        available: BoolArray | None = None,
    ) -> tuple[FloatArray, Memory]:
        """Return exploring joint actions, keyed by (seed, iteration, step), and the new memory.

        Args:
            observation: Packed observations, shape (E, sum of observation sizes) float32.
            memory: Memory returned by the previous step.
            iteration: Iteration of the collection (-1 for the warm-up).
            step: Step within the iteration's collection.
            alive: Mask of agents, shape (E, M); agents that are not alive get zero actions.
            available: Mask of permitted discrete actions, shape (E, sum of action sizes); by
                default all are permitted.
        """

    def act_greedily(
        self, observation: FloatArray, memory: Memory, *, available: BoolArray | None = None
    ) -> tuple[FloatArray, Memory]:
        """Return joint actions without exploration: mode (discrete) or mean (continuous)."""


@runtime_checkable
class Annealed(Protocol):
    """A player whose exploration depends on the number of steps that were played."""

    def anneal(self, env_steps: int) -> float:
        """Set the number of environment steps played before the next collection.

        Returns:
            The probability of a random action in it.
        """


class Convolution(NamedTuple):
    """A convolution, which a ReLU follows."""

    kernel: FloatArray
    """Shape (outputs, channels, side, side)."""
    bias: FloatArray
    """Shape (outputs,)."""
    stride: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ImageLayers:
    """The layers that make features of an image of bytes, taken as they are."""

    image: tuple[int, int, int]
    """Height, width and channels."""
    convolutions: tuple[Convolution, ...]
    """From the input up."""
    last: FloatArray
    """[W | b] from their outputs, channel by channel, to the features, which a ReLU follows."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RecurrentLayers:
    """One agent's part of a team's network of action values, as matrices [W | b].

    It has the agent's own inputs and actions, and a recurrent state of H entries.
    """

    first: FloatArray
    """From the observation and, with ``last_action``, the last action as one-hot; H rows. The
    identity of the agent is part of the bias."""
    input_gates: FloatArray
    """Reset, update and new gate of the GRU from the ReLU of the first layer, 3 H rows. Without a
    recurrent state, a layer with ReLU, H rows."""
    state_gates: FloatArray | None
    """The same gates from the recurrent state, 3 H rows; None without a recurrent state."""
    last: FloatArray
    """To the values of the agent's actions."""
    last_action: bool
    """True if the network sees the last action."""
    normalised: bool
    """True if outputs have mean 0 and deviation 1 before a ReLU, as by ``layer_norm``; those of
    convolutions do not."""
    image: ImageLayers | None = None
    """Layers whose features take the place of the observation; None: it is no image."""


class Actor(Player, Protocol):
    """The role that selects actions in collection and evaluation, and is exported."""

    def policy(self, agent: int) -> tuple[FloatArray, ...] | RecurrentLayers:
        """Return the agent's policy, a perceptron with ReLU between its layers, or recurrent.

        Returns:
            Each layer of a perceptron, from the input up, as one matrix [W | b], shape (outputs,
            inputs + 1). The outputs of the last layer are logits (discrete) or the mean before tanh
            and scaling (continuous). A recurrent policy chooses the action of highest value.

        Raises:
            ConfigError: The policy is neither.
        """


Prepare: TypeAlias = Callable[[FloatArray], None]
"""Fills the derived columns of the rows of whole episodes, shape (rows, row_size), in place.

It is a pure function of the rows and the current parameters, which are those that played them; the
bits of an episode do not depend on the others.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Algorithm:
    """The four roles of one process, which share its parameters."""

    problem: Problem
    parameters: Parameters
    gradients: Gradients
    optimiser: Optimiser
    actor: Actor
    prepare: Prepare | None = None
    """Given where rows have derived columns (``EpisodeLayout.derived``)."""
