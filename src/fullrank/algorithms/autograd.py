"""Gradients and actors for arbitrary modules, by autograd of an algorithm's losses."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import isnan
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from fullrank.algorithms.groups import Networks
from fullrank.algorithms.problem import Problem
from fullrank.algorithms.transitions import Draws
from fullrank.algorithms.updates import Statistics
from fullrank.common.errors import ConfigError, Unsound
from fullrank.common.types import FloatArray, UnitIndex
from fullrank.environments.base import AgentSpec
from fullrank.networks.fused import kernels
from fullrank.networks.fused.mlp import mark_vanished
from fullrank.networks.heads import Choose, Head, MemorylessActor
from fullrank.networks.modules import layers_of, views

BatchOf: TypeAlias = Callable[[FloatArray], Callable[[UnitIndex, tuple[int, ...]], Any]]
"""Maps packed rows to a function that returns a unit's batch, given the unit and the key of its
draws; None where the unit has no rows."""

Losses: TypeAlias = Callable[
    [tuple[int, ...], Networks, Any, Draws], tuple[Mapping[str, Tensor], Statistics]
]
"""Computes the losses of a group's networks, by role, and the statistics beside them."""


Seal: TypeAlias = Callable[[FloatArray, Statistics, Any, tuple[int, ...]], FloatArray]
"""Makes the update of a unit, snapped, of a gradient at the networks of a group, shape (entries,),
the statistics beside its losses, the unit's batch, and the group."""


class AutogradGradients:
    """Gradients of an algorithm's losses by autograd; implements ``Gradients``.

    Every unit is computed by itself. Its bits do not depend on the other units, but they do on
    ``compute.threads``, which the fingerprint names.

    Args:
        losses: Losses of a group.
        nets: Networks at the broadcast parameters.
        problem: Units and their sizes.
        batch_of: Supplies each unit's rows.
        seal: Makes updates.
        agents: Specifications of all agents.
        clip_norm: L2 norm to which each variable's gradient is clipped; None: no clipping here.
        keyed_by_row: True if every holder of a unit makes its own draws.
        seed: The run's seed; unused by losses that draw nothing.
        device: Device of the parameters.
    """

    def __init__(
        self,
        losses: Losses,
        nets: Networks,
        problem: Problem,
        *,
        batch_of: BatchOf,
        seal: Seal,
        agents: Sequence[AgentSpec],
        clip_norm: float | None = None,
        keyed_by_row: bool = False,
        seed: int = 0,
        device: torch.device,
    ) -> None:
        self._losses, self._nets, self._problem = losses, nets, problem
        self._batch_of, self._seal, self._agents = batch_of, seal, agents
        self._clip_norm, self._keyed_by_row = clip_norm, keyed_by_row
        self._seed, self._device = seed, device
        self._in_parts = any(unit.part for unit in problem.units)

    def compute(
        self,
        batch: FloatArray,
        units: Sequence[UnitIndex],
        *,
        iteration: int,
        row: int | None = None,
        check_cancelled: Callable[[], None] = lambda: None,
    ) -> Iterator[tuple[UnitIndex, FloatArray]]:
        """Compute u_i for each requested unit, one after another; see ``Gradients.compute``."""
        batch_of = self._batch_of(batch)
        key = (iteration,) if row is None or not self._keyed_by_row else (iteration, row)
        for unit in units:
            agents, part = self._problem.units[unit]
            own = (*key, part) if self._in_parts else key
            draws = Draws(self._agents, seed=self._seed, key=own, device=self._device)
            check_cancelled()
            with kernels.DEFAULT.selected():
                data = batch_of(unit, own)
                check_cancelled()
                if data is None:
                    update = np.zeros(self._problem.unit_sizes[unit], np.float32)
                else:
                    update = self._update(agents, data, draws)
            yield unit, update

    def _update(self, agents: tuple[int, ...], batch: Any, draws: Draws) -> FloatArray:
        """Compute [gradient of each network's loss], clipped variable by variable, and seal it.

        Raises:
            Unsound: A statistic is not a number, though the gradient is finite.
        """
        losses, statistics = self._losses(agents, self._nets, batch, draws)
        gradient = gradient_of(losses, self._nets, agents, clip_norm=self._clip_norm).cpu().numpy()
        told = {
            name: share.item() if isinstance(share, Tensor) else share
            for name, share in statistics.items()
        }
        for name, share in told.items():
            if isnan(share) and np.isfinite(gradient).all():
                raise Unsound(f"losses return nan as the statistic {name!r}; record a number")
        return self._seal(gradient, told, batch, agents)

    def fingerprint(self) -> str:
        """Return the numeric identity of this process."""
        return kernels.fingerprint(kernels.DEFAULT, self._device)


def gradient_of(
    losses: Mapping[str, Tensor],
    nets: Networks,
    agents: tuple[int, ...],
    *,
    clip_norm: float | None = None,
) -> Tensor:
    """Return the gradients of a group's losses at their networks, one vector on their device.

    Args:
        losses: Losses by role.
        nets: All networks.
        agents: The group.
        clip_norm: L2 norm to which each variable's gradient is clipped; None: no clipping here.
    """
    first, group = agents[0], nets.group_of(agents[0])
    found = torch.zeros(group.size, device=group.rows.online.device)
    distinct = {id(loss): loss for loss in losses.values()}
    for number, loss in enumerate(distinct.values(), start=1):
        variables = [
            variable
            for role, own in losses.items()
            if own is loss
            for variable in views(getattr(nets, role)[first], found[group.networks[role]])
        ]
        gradients = torch.autograd.grad(
            loss,
            [parameter for parameter, _ in variables],
            retain_graph=number < len(distinct),  # which the next loss may share
            materialize_grads=True,
        )
        for gradient, (_, out) in zip(gradients, variables, strict=True):
            out.copy_(clipped(gradient, clip_norm))
    return found


def clipped(gradient: Tensor, norm: float | None) -> Tensor:
    """Scale a gradient by min(1, norm / its length); return it unchanged if ``norm`` is None.

    Where the length overflows, it is marked as by ``Clipper``.
    """
    if norm is None:
        return gradient
    scale = norm / torch.linalg.vector_norm(gradient).clamp_min(norm)
    scaled = torch.mul(gradient, scale)
    mark_vanished(scaled, scale)
    return scaled


class ModuleActor(MemorylessActor):
    """Modules of the role ``policy`` as an ``Actor``, without memory.

    Args:
        agents: Specifications of all agents.
        nets: Networks with the current parameters.
        heads: Heads that make each agent's actions of its policy's outputs.
        seed: Keys the exploration.
    """

    def __init__(
        self, agents: Sequence[AgentSpec], nets: Networks, *, heads: Sequence[Head], seed: int
    ) -> None:
        device = next(nets.policy[0].parameters()).device
        super().__init__([agent.action.size for agent in agents], device=device, seed=seed)
        self._agents, self._nets, self._heads = agents, nets, heads

    def _act(self, observation: Tensor, available: Tensor | None, choose: Choose) -> Tensor:
        outputs = self._outputs(observation, available)
        actions = [
            choose(head, output)[0] for head, output in zip(self._heads, outputs, strict=True)
        ]
        return torch.cat(actions)

    def _outputs(self, observation: Tensor, available: Tensor | None) -> list[Tensor]:
        """Compute each policy's outputs as heads take them, shape (1, outputs, copies)."""
        sizes = [agent.observation_size for agent in self._agents]
        with kernels.DEFAULT.selected(), torch.no_grad():
            outputs = [
                policy(observed).t().unsqueeze(0).contiguous()
                for policy, observed in zip(
                    self._nets.policy, torch.split(observation, sizes, 1), strict=True
                )
            ]
        if available is None:
            return outputs
        allowed = torch.split(available, [*self._action_sizes], 1)
        return [
            head.mask(output, mask.t().unsqueeze(0))
            for head, output, mask in zip(self._heads, outputs, allowed, strict=True)
        ]

    def policy(self, agent: int) -> tuple[FloatArray, ...]:
        """Return the agent's policy, layer by layer; see ``Actor.policy``."""
        layers = layers_of(self._nets.policy[agent])
        if layers is None:
            raise ConfigError(
                "only perceptrons with ReLU between their layers are exported, and this policy is "
                "another network; use its checkpoint"
            )
        matrices = [
            torch.cat([layer.weight, layer.bias[:, None]], 1).detach().cpu().numpy()
            for layer in layers
        ]
        matrices[-1] = matrices[-1][: self._action_sizes[agent]]  # without what explores
        return tuple(map(np.ascontiguousarray, matrices))
