"""What algorithms share in which every agent has a policy and a critic: all but the samples.

Parameters, targets and moments of M agents, how they act, how a policy is improved and how an
update is applied; u_i = [gradient of the critic loss; gradient of the policy loss].
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fullrank.algorithms.base import Section
from fullrank.common.errors import CheckpointUnusable, ConfigError
from fullrank.common.seeding import stream
from fullrank.common.types import BoolArray, FloatArray, UnitIndex
from fullrank.common.updates import snap
from fullrank.networks.fused import kernels
from fullrank.networks.fused.adam import Adam
from fullrank.networks.fused.chunk import Chunk, Chunks
from fullrank.networks.fused.cohort import Cohort
from fullrank.networks.fused.heads import Head
from fullrank.networks.fused.minibatch import tile_columns
from fullrank.networks.fused.mlp import Tape, accumulate, backward, forward, hidden
from fullrank.replay.layout import Layout

SNAP_ENTRIES = 2**16
"""Entries snapped at a time, which stay in cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorCriticConfig:
    """Hyperparameters, by default those of [Wang21] and [DARL1N]."""

    batch_size: int = 1024
    """B, transitions that an update is the mean over."""
    hidden: int = 64
    """Width of both hidden layers of policies and critics."""
    learning_rate: float = 0.01
    """Of Adam, for policies and critics."""
    discount: float = 0.95
    """gamma."""
    target_rate: float = 0.01
    """Weight of the new parameters in the targets (1 - tau in the notation of [Wang21])."""
    clip_norm: float = 0.5
    """L2 norm that each variable's gradient is clipped to."""
    logit_penalty: float = 1e-3
    """Weight of the mean square of the policy's outputs in its loss."""
    exploration_noise: float = 0.1
    """Continuous actions: standard deviation of the noise, as a share of half the range."""

    def __post_init__(self) -> None:
        if self.batch_size < 1 or self.hidden < 1:
            raise ConfigError("algorithm.batch_size and algorithm.hidden must be at least 1")
        if self.clip_norm <= 0:
            raise ConfigError("algorithm.clip_norm must be above 0")


class ActorCritics:
    """Policies, critics, targets and moments of M agents; extended by who computes updates.

    Args:
        config: Hyperparameters.
        cohorts: All agents.
        layout: Of joint observations and actions.
        seed: The run's.
        device: Where parameters lie.
    """

    units: int
    sections: tuple[Section, ...]

    def __init__(
        self,
        config: ActorCriticConfig,
        cohorts: Sequence[Cohort],
        layout: Layout,
        *,
        seed: int,
        device: torch.device,
    ) -> None:
        self._config, self._seed, self._device = config, seed, device
        self._cohorts, self._layout = cohorts, layout
        for cohort in cohorts:
            cohort.initialise(seed)
        self._place = {
            agent: (cohort, row) for cohort in cohorts for row, agent in enumerate(cohort.agents)
        }
        self._adam = Adam(learning_rate=config.learning_rate, target_rate=config.target_rate)
        self._steps = 0
        self._columns = tile_columns(config.batch_size, hidden=config.hidden, device=device)
        self._kernel = kernels.choose(device, least_product=config.hidden * self._columns)
        self._chunks = [Chunks(cohort, clip_norm=config.clip_norm) for cohort in cohorts]

    def view(self, section: int) -> FloatArray:
        """The section's parameters as a writable flat array on the CPU."""
        cohort, row = self._place[self.sections[section].unit]
        return cohort.view(row, self.sections[section].role)

    def written(self) -> None:
        """Refresh the device's copy."""
        for cohort in self._cohorts:
            cohort.push()

    def _noise(self, chunk: Chunk, purpose: str, *key: int, size: int, width: int) -> Tensor:
        """What each agent's actions need of chance, keyed by (purpose, *key, agent).

        Returns:
            Shape (units, actions, width), zeros from column ``size`` on.
        """
        generators = [stream(self._seed, purpose, *key, agent) for agent in chunk.agents]
        drawn = chunk.cohort.head.draw(generators, (chunk.cohort.policy.outputs, size))
        noise = torch.from_numpy(drawn).to(self._device)
        return noise if width == size else torch.nn.functional.pad(noise, (0, width - size))

    def _policy_gradient(
        self,
        chunk: Chunk,
        own: Tensor,
        replayed: Tensor,
        noise: Tensor,
        *,
        weight: Tensor,
        beta: float,
    ) -> None:
        """Only own actions differ from the critic's pass, so only their columns are computed.

        Args:
            chunk: Its space holds the pre-activation of the critics' first layer.
            own: Own observations, shape (units, own, columns).
            replayed: The own actions that the critics saw, shape (units, actions, columns).
            noise: Of the new actions, of the same shape.
            weight: Of each transition, (units, 1, columns).
            beta: The gradients are added to so much of what is there.
        """
        space, head = chunk.space, chunk.cohort.head
        outputs = forward(chunk.policy, own, space.policy, space.outputs)
        actions = head.sample(outputs, noise)
        space.first.baddbmm_(space.action_weights, actions - replayed)
        hidden(chunk.critic, space.first, space.critic)
        backward(chunk.critic, -weight, space.critic)
        action_gradient = torch.bmm(space.action_weights.transpose(1, 2), space.critic.below)
        gradient = head.gradient(outputs, actions, action_gradient)
        penalty = 2.0 * self._config.logit_penalty / chunk.cohort.policy.outputs
        gradient.addcmul_(outputs, weight, value=penalty)
        backward(chunk.policy, gradient, space.policy)
        first, second, third = space.policy_gradient
        accumulate(first, space.policy.below, own.transpose(1, 2), beta=beta)
        space.policy.upper_gradients(gradient, second, third, beta=beta)

    def apply(self, updates: FloatArray) -> None:
        """Adam on every online row, then the targets; equal updates give equal parameters."""
        self._steps += 1
        gradients = torch.from_numpy(np.require(updates, requirements="W"))
        for cohort in self._cohorts:
            own = gradients if len(cohort.agents) == self.units else gradients[[*cohort.agents]]
            with self._kernel.active():
                cohort.rows.step(own[:, : cohort.size], self._adam, count=self._steps)
            cohort.pull()

    def act(
        self, observation: FloatArray, *, iteration: int, step: int, alive: BoolArray
    ) -> FloatArray:
        """Exploring joint actions, keyed by (seed, iteration, step)."""
        generator = stream(self._seed, "act", iteration, step)
        actions = self._act(observation, lambda head, outputs: head.explore(outputs, generator))
        return actions * np.repeat(alive, self._layout.action_sizes, axis=1)

    def act_greedily(self, observation: FloatArray) -> FloatArray:
        """The likeliest actions as one-hot, or the means."""
        return self._act(observation, lambda head, outputs: head.mode(outputs))

    def _act(self, observation: FloatArray, choose: Callable[[Head, Tensor], Tensor]) -> FloatArray:
        with self._kernel.active():
            copies = len(observation)
            joint = torch.empty(self._layout.action.stop, copies, device=self._device)
            seen = torch.from_numpy(np.require(observation, requirements="W"))
            joint[: self._layout.action.start] = seen.t()
            for cohort in self._cohorts:
                policy = cohort.policy.weights(cohort.rows.online)
                agents = len(cohort.agents)
                own = joint.index_select(0, cohort.observation_index.flatten())
                own = own.view(agents, -1, copies)
                below = own.new_empty(agents, self._config.hidden, copies)
                tape = Tape(below, below)
                outputs = own.new_empty(agents, cohort.policy.outputs, copies)
                actions = choose(cohort.head, forward(policy, own, tape, outputs))
                joint.index_copy_(0, cohort.action_index.flatten(), actions.flatten(0, 1))
            return np.ascontiguousarray(joint[self._layout.action].t().cpu().numpy())

    def policy(self, unit: UnitIndex) -> tuple[FloatArray, ...]:
        """The unit's policy, layer by layer."""
        cohort, row = self._place[unit]
        return cohort.policy_layers(row)

    def state(self) -> Mapping[str, np.ndarray[Any, Any]]:
        """Copies of every network (``role/unit``), both moments, and the number of steps."""
        state = {name: part.cpu().numpy().copy() for name, part in self._parts()}
        return {**state, "steps": np.array([self._steps], np.int64)}

    def _parts(self) -> Iterator[tuple[str, Tensor]]:
        for unit, (cohort, row) in self._place.items():
            for name, part in cohort.parts(row):
                yield f"{name}/{unit}", part

    def load(self, state: Mapping[str, np.ndarray[Any, Any]]) -> None:
        """Restore what ``state`` gave."""
        shapes = {name: tuple(part.shape) for name, part in self._parts()} | {"steps": (1,)}
        for name, shape in shapes.items():
            found = state[name].shape if name in state else "nothing"
            if found != shape:
                raise CheckpointUnusable(
                    f"the checkpoint holds {found} as {name!r} where this configuration needs "
                    f"{shape}; resume with the configuration that wrote it"
                )
        for name, part in self._parts():
            part.copy_(torch.from_numpy(np.array(state[name])))
        self._steps = int(state["steps"][0])
        for cohort in self._cohorts:
            cohort.pull()

    def fingerprint(self) -> str:
        """Numeric identity of this process."""
        return kernels.fingerprint(self._kernel, self._device)


def snapped(row: FloatArray) -> FloatArray:
    """A snapped copy, made in blocks that stay in cache: twice as fast for millions of entries."""
    copy = np.empty_like(row)
    for start in range(0, row.size, SNAP_ENTRIES):
        block = slice(start, start + SNAP_ENTRIES)
        snap(row[block], out=copy[block])
    return copy


def device_of(name: str) -> torch.device:
    """``auto``, ``cpu`` or ``cuda``; ``ConfigError`` if it is not here."""
    available = torch.cuda.is_available()
    if name == "cuda" and not available:
        raise ConfigError("device 'cuda' is not available here; use 'cpu' or 'auto'")
    if name not in ("auto", "cpu", "cuda"):
        raise ConfigError(f"unknown device {name!r}; use 'auto', 'cpu' or 'cuda'")
    return torch.device("cuda" if available and name != "cpu" else "cpu")
