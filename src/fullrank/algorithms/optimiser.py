"""Optimisers of parameters by group: for agents' own networks, and for networks of all agents."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fullrank.algorithms.updates import CLAMPED, LARGEST, Entries
from fullrank.codes.targets import LIMIT
from fullrank.common.errors import CheckpointUnusable, GradientTooLarge, Unsound
from fullrank.common.rows import Rows
from fullrank.common.types import FloatArray
from fullrank.common.updates import GRID
from fullrank.networks.adam import Adam, AdamSteps, moved
from fullrank.networks.fused.cuda import tensor_of
from fullrank.networks.fused.mlp import VANISHED, take_mark
from fullrank.networks.parameters import EXPONENT, GroupedParameters, ParameterGroup

CLIP_OVERFLOW = "clip_overflow"
"""Begins the names of networks with variables that clipping lost; see ``Clipper``."""

RAISED, MOST = 4, 8
"""By how much an exponent is raised where a unit's gradient was out of range, and to what at most.
"""

NORM_BLOCK = 1024
"""Entries of a gradient whose squares are added up in float32."""


class GroupedOptimiser:
    """Checkpoints of parameters, targets, moments and the number of steps.

    Args:
        parameters: Parameters of all groups, updated in place.
        learning_rate: The learning rate, which faults name.
    """

    def __init__(self, parameters: GroupedParameters, *, learning_rate: float) -> None:
        self._parameters, self._learning_rate, self._steps = parameters, learning_rate, 0
        self._most = MOST

    def fit(self, agent: int, gradient: Tensor, *, exceeded: bool) -> None:
        """Fit the exponent of an agent's sums to what an iteration committed.

        It is a function of committed sums alone, so every run of equal updates has the same one.

        Args:
            agent: Index of the agent or group.
            gradient: Its decoded sum.
            exceeded: True if a unit's gradient was out of range.
        """
        exponents = self._parameters.exponents
        if exceeded:
            exponents[agent] = min(exponents[agent] + RAISED, self._most)
        elif exponents[agent] and gradient.abs().max() < LIMIT / 2.0 ** (RAISED + 1):
            exponents[agent] -= 1

    def check(self, targets: Rows) -> None:
        """Check the state after a step along decoded targets.

        Raises:
            Unsound: An entry is not finite, or too large to be multiplied.
        """
        wrong = self._parameters.unsound()
        if wrong is not None:
            largest = np.abs(np.asarray(targets)).max()
            raise Unsound(
                f"{wrong} after an update with entries up to {largest:.1e} at a "
                f"learning rate of {self._learning_rate:g}: begin a run with a smaller "
                "algorithm.learning_rate"
            )

    def _exponents(self) -> dict[str, FloatArray]:
        exponents = self._parameters.exponents
        return {
            f"{EXPONENT}/{agent}": exponents[agent : agent + 1] for agent in range(len(exponents))
        }

    def state(self) -> Mapping[str, np.ndarray[Any, Any]]:
        """Return copies of every network (``role/agent``), both moments and the step count.

        The exponents of sums (``exponent/agent``) are among them where they are raised.
        """
        state = {name: part.cpu().numpy().copy() for name, part in self._parameters.parts()}
        raised = {name: own.copy() for name, own in self._exponents().items() if own.any()}
        return {**state, "steps": np.array([self._steps], np.int64), **raised}

    def load(self, state: Mapping[str, np.ndarray[Any, Any]]) -> None:
        """Restore the arrays returned by ``state``.

        Raises:
            CheckpointUnusable: A name is missing or a shape differs.
        """
        parts = dict(self._parameters.parts())
        exponents = self._exponents()
        state = {name: np.zeros_like(own) for name, own in exponents.items()} | dict(state)
        shapes = {name: tuple(part.shape) for name, part in (parts | exponents).items()}
        shapes["steps"] = (1,)
        for name, shape in shapes.items():
            stored = state[name].shape if name in state else "nothing"
            if stored != shape:
                raise CheckpointUnusable(
                    f"the checkpoint holds {stored} as {name!r} where this configuration needs "
                    f"{shape}; resume with the configuration that wrote it"
                )
        for name, part in parts.items():
            part.copy_(torch.from_numpy(np.array(state[name])))
        for name, own in exponents.items():
            own[:] = state[name]
        self._steps = int(state["steps"][0])
        for group in self._parameters.groups:
            group.changed()


class AdamOptimiser(GroupedOptimiser):
    """Adam with Polyak-averaged target networks; implements ``Optimiser``.

    Row i of the decoded targets is the gradient of agent i's networks.

    Args:
        parameters: Parameters of all agents, updated in place.
        adam: Hyperparameters.
        clip: Clips a group's decoded gradients in place; None if learners clip.
        variables: Yields the network and the entries of each variable in a row of a group; clipping
            marks those that it lost.
        entries: Statistics that follow a gradient.
        weight: Weight of a transition where the targets are sums over transitions, each followed by
            the sum of their weights; None: the targets are whole updates.
    """

    def __init__(
        self,
        parameters: GroupedParameters,
        adam: Adam,
        *,
        clip: Callable[[ParameterGroup, Tensor], None] | None = None,
        variables: Callable[[ParameterGroup, Tensor], Iterable[tuple[str, Tensor]]],
        entries: Entries,
        weight: float | None = None,
    ) -> None:
        super().__init__(parameters, learning_rate=float(adam.learning_rate))
        self._adam, self._clip, self._entries = adam, clip, entries
        self._weighted = weight is not None
        if weight is not None:  # scaled weights have to stay on the grid
            self._most = min(MOST, int(np.log2(weight / GRID)))
        self._variables = variables
        self._device = parameters.groups[0].rows.online.device
        self._moves = AdamSteps(adam, self._device)
        self._firsts = {
            group.agents: torch.tensor(
                [
                    int(variable.storage_offset())
                    for _, variable in variables(group, torch.empty(group.size, device="meta"))
                ],
                device=self._device,
            )
            for group in parameters.groups
        }

    def step(self, targets: Rows) -> Mapping[str, float]:
        """Apply Adam to every online row, then move the targets; equal input gives equal bits.

        Returns:
            Statistics of each group, ``name/group``, and ``grad_norm/group``, the L2 norm of its
            decoded gradient, before it is clipped here or after learners clipped;
            ``learning_rate``; number of variables of each network, ``clip_overflow/role/group``,
            that clipping lost.

        Raises:
            GradientTooLarge: A sum is not exact; no parameter is changed.
            Unsound: A parameter or moment is not finite afterwards.
        """
        lost = self.step_of(targets, range(len(self._parameters.place)))
        self.check(targets)
        return lost

    def step_of(self, targets: Rows, agents: range) -> Mapping[str, float]:
        """Apply the targets of some agents to their networks, unchecked, as ``step`` does all."""
        decoded = tensor_of(targets)
        lost, statistics = Counter[str](), {"learning_rate": self._learning_rate}
        with torch.inference_mode():
            decoded = moved(decoded, self._device)
            owners = [*self._parameters.rows_of(agents)]
            found = [self._taken_apart(group, rows, decoded, agents) for group, rows in owners]
            self._steps += 1
            gradients = list[Tensor]()
            for (group, rows), (gradient, own) in zip(owners, found, strict=True):
                statistics |= own
                gradients.append(self._without_marks(group, rows, gradient, lost))
                group.changed()
            states = [group.rows.part(rows) for group, rows in owners]
            self._moves.step(agents, states, gradients, count=self._steps)
        return statistics | {name: float(count) for name, count in lost.items()}

    def _without_marks(
        self, group: ParameterGroup, rows: slice, gradient: Tensor, lost: Counter[str]
    ) -> Tensor:
        """Take the marks of variables off that clipping lost, and count these by network."""
        marked = (gradient.index_select(1, self._firsts[group.agents]) == VANISHED).any(1)
        if not marked.any():
            return gradient
        gradient = gradient.clone()
        for row in marked.nonzero().flatten().tolist():
            for role, variable in self._variables(group, gradient[row]):
                if take_mark(variable):
                    lost[f"{CLIP_OVERFLOW}/{role}/{group.agents[rows][row]}"] += 1
        return gradient

    def _taken_apart(
        self, group: ParameterGroup, rows: slice, decoded: Tensor, agents: range
    ) -> tuple[Tensor, dict[str, float]]:
        """Return the gradients of rows of a group, clipped, and their statistics."""
        owners, end = group.agents[rows], group.size + self._weighted
        whole = len(owners) == len(decoded)
        own = decoded if whole else decoded[[agent - agents.start for agent in owners]]
        gradient, weights = own[:, : group.size], [1.0] * len(owners)
        if self._weighted:
            gradient, weights = self._means(owners, gradient, own[:, group.size])
        told = torch.cat([row_norms(gradient)[:, None], own[:, end:]], 1).cpu().numpy()
        statistics = {
            f"{name}/{owner}": value / weight
            for owner, entries, weight in zip(owners, told[:, 1:], weights, strict=True)
            for name, value in self._entries.sums(entries).items()
            if weight > 0.0
        } | {
            f"{CLAMPED}/gradient/{owner}": 1.0
            for owner, weight in zip(owners, weights, strict=True)
            if weight < 0.0
        }
        named = (f"grad_norm/{owner}" for owner in owners)
        statistics |= dict(zip(named, told[:, 0].tolist(), strict=True))
        if self._clip is not None:
            gradient = gradient.clone()
            self._clip(group, gradient)
        return gradient, statistics

    def _means(
        self, owners: Sequence[int], sums: Tensor, scaled: Tensor
    ) -> tuple[Tensor, list[float]]:
        """Return the gradients of means, and the weights behind them; fit the exponents.

        The gradient of a row with a summand that was too large is 0, and its weight negative; a
        group that never acted has sums of 0 and a small weight.

        Raises:
            GradientTooLarge: A summand was too large at the largest exponent.
        """
        beyond = scaled < -LIMIT / 2
        exceeded = dict(zip(owners, beyond.tolist(), strict=True))
        for owner in owners:
            if exceeded[owner] and self._parameters.exponents[owner] == self._most:
                raise GradientTooLarge(
                    f"the gradient of {self._parameters.owner} {owner} over a micro-batch exceeds "
                    f"{LARGEST * 2.0**self._most:g}, up to which sums are exact: make rewards "
                    "smaller, or set algorithm.micro_batches = 1, which clips before it sums"
                )
        divisors = scaled.clamp_min(2.0**-100)
        means = (sums / divisors[:, None]).masked_fill_(beyond[:, None], 0.0)
        scaled_by = [self._parameters.factor(owner) for owner in owners]
        weights = torch.where(beyond, -1.0, divisors) / scaled.new_tensor(scaled_by)
        for owner, row in zip(owners, sums, strict=True):
            self.fit(owner, row, exceeded=exceeded[owner])
        return means, weights.tolist()

    def follow(self, agents: range, roles: Sequence[str]) -> None:
        """Move the targets of agents whose networks were stepped elsewhere, with the same bits."""
        for group, rows in self._parameters.rows_of(agents):
            columns = [group.networks[role] for role in roles]
            reach = slice(min(c.start for c in columns), max(c.stop for c in columns))
            group.rows.part(rows).follow(self._adam, reach, size=group.size)
            group.changed()


def row_norms(rows: Tensor) -> Tensor:
    """Return the L2 norm of each row in float64; no bit depends on other rows or on threads.

    Blocks of a row are reduced in float32, which takes a fifth of the time of a copy in float64.
    """
    norm = torch.linalg.vector_norm
    if rows.device.type != "cpu":
        return torch.stack([norm(row, dtype=torch.float64) for row in rows])
    end = rows.shape[1] // NORM_BLOCK * NORM_BLOCK
    blocks = norm(torch.unflatten(rows[:, :end], 1, (-1, NORM_BLOCK)), dim=2)
    rest = norm(rows[:, end:], dim=1, keepdim=True)
    whole: Tensor = norm(torch.cat([blocks, rest], 1), dim=1, dtype=torch.float64)
    return whole
