"""Gradients and actors for arbitrary modules, by autograd of an algorithm's losses."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from threading import Lock
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from fullrank.algorithms.base import EnvironmentSpec
from fullrank.algorithms.draws import Draws
from fullrank.algorithms.transitions import Transitions
from fullrank.common.errors import ConfigError
from fullrank.common.seeding import derive
from fullrank.common.types import BoolArray, FloatArray, UnitIndex
from fullrank.common.updates import snap
from fullrank.environments.base import AgentSpec
from fullrank.networks.actor import Choose, MemorylessActor
from fullrank.networks.fused import kernels
from fullrank.networks.fused.clip import mark_vanished
from fullrank.networks.heads import make_head
from fullrank.networks.modules import bind, flat_size, layers_of, views, write
from fullrank.networks.parameters import GroupedParameters, ParameterGroup

MakeNetworks: TypeAlias = Callable[[int], Mapping[str, nn.Module]]
"""Builds the networks of an agent, by role."""

BatchOf: TypeAlias = Callable[[FloatArray], Callable[[UnitIndex, tuple[int, ...]], Any]]
"""Maps packed transitions to a function that returns a unit's batch, given the unit and the key of
its draws."""

Losses: TypeAlias = Callable[[int, "Networks", Any, Draws], Mapping[str, Tensor]]


_GENERATOR = Lock()
"""Held while modules draw from torch's generator, of which a process has one for all threads."""


def initial_groups(
    make: MakeNetworks, agents: int, seed: int, device: torch.device
) -> tuple[ParameterGroup, ...]:
    """Make one group per agent, with the initial parameters that its modules draw.

    Modules draw from torch's generator, seeded by (seed, "initialise", agent); its state is
    restored afterwards.
    """
    groups = []
    for agent in range(agents):
        with _GENERATOR, torch.random.fork_rng(devices=[]):
            torch.manual_seed(derive(seed, "initialise", agent))
            modules = make(agent)
        columns, start = {}, 0
        for role, module in modules.items():
            columns[role] = slice(start, start + flat_size(module))
            start = columns[role].stop
        group = ParameterGroup([agent], columns, device=device)
        for role, module in modules.items():
            write(module, group.host[0][0, columns[role]])
        group.host[1].copy_(group.host[0])
        group.push()
        groups.append(group)
    return tuple(groups)


class Networks:
    """All networks at the current parameters, by role and agent: ``nets.target_critic[k](x)``.

    Args:
        make: Builds an agent's networks, of which only the structure is used.
        parameters: Current parameters, read in place.
    """

    def __init__(self, make: MakeNetworks, parameters: GroupedParameters) -> None:
        self.parameters = parameters
        self._modules: dict[str, list[nn.Module]] = {}
        for agent in sorted(parameters.place):
            group, row = parameters.place[agent]
            for prefix, source in (("", group.rows.online), ("target_", group.rows.target)):
                with torch.device("meta"):
                    modules = make(agent)
                for role, module in modules.items():
                    bind(module, source[row, group.networks[role]])
                    module.requires_grad_(not prefix)
                    self._modules.setdefault(f"{prefix}{role}", []).append(module)

    def __getattr__(self, role: str) -> list[nn.Module]:
        if role.startswith("_") or role not in self._modules:
            raise AttributeError(f"there is no network {role!r}")
        return self._modules[role]


def shared_batches(
    environment: EnvironmentSpec, device: torch.device, *, weight: float | None = None
) -> BatchOf:
    """Supply the minibatch from replay, the same for every unit; ``weight`` as in Transitions."""

    def load(rows: FloatArray) -> Callable[[UnitIndex, tuple[int, ...]], Transitions]:
        batch = Transitions(
            rows, environment.agents, masked=environment.masked, device=device, weight=weight
        )
        return lambda unit, key: batch

    return load


class AutogradGradients:
    """Gradients of an algorithm's losses by autograd; implements ``Gradients``.

    Args:
        losses: Losses of an agent; see ``ActorCritic.losses``.
        nets: Networks at the broadcast parameters.
        batch_of: Supplies each unit's transitions.
        agents: Specifications of all agents.
        clip_norm: L2 norm to which each variable's gradient is clipped; None: no clipping here.
        keyed_by_row: True if every holder of a unit makes its own draws.
        seed: The run's seed.
        device: Device of the parameters.
    """

    def __init__(
        self,
        losses: Losses,
        nets: Networks,
        batch_of: BatchOf,
        agents: Sequence[AgentSpec],
        *,
        clip_norm: float | None,
        keyed_by_row: bool,
        seed: int,
        device: torch.device,
    ) -> None:
        self._losses, self._nets, self._batch_of, self._agents = losses, nets, batch_of, agents
        self._clip_norm, self._keyed_by_row = clip_norm, keyed_by_row
        self._seed, self._device = seed, device

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
        key = (iteration,) if row is None or not self._keyed_by_row else (iteration, row)
        return self.keyed(batch, units, key=key, check_cancelled=check_cancelled)

    def keyed(
        self,
        batch: FloatArray,
        agents: Sequence[int],
        *,
        key: tuple[int, ...],
        check_cancelled: Callable[[], None],
    ) -> Iterator[tuple[int, FloatArray]]:
        """Compute the agents' gradients with draws keyed by ``key`` and agent."""
        batch_of = self._batch_of(batch)
        draws = Draws(self._agents, seed=self._seed, key=key, device=self._device)
        for agent in agents:
            check_cancelled()
            with kernels.DEFAULT.selected():
                data = batch_of(agent, key)
                check_cancelled()
                update = self._update(agent, data, draws)
            yield agent, update

    def _update(self, agent: int, batch: Any, draws: Draws) -> FloatArray:
        """Compute [gradient of each network's loss], clipped variable by variable, snapped."""
        group, _ = self._nets.parameters.place[agent]
        update = torch.zeros(group.size, device=self._device)
        losses = self._losses(agent, self._nets, batch, draws)
        for number, (role, loss) in enumerate(losses.items(), start=1):
            module = getattr(self._nets, role)[agent]
            variables = [*views(module, update[group.networks[role]])]
            gradients = torch.autograd.grad(
                loss,
                [parameter for parameter, _ in variables],
                retain_graph=number < len(losses),  # which the next loss may share
                materialize_grads=True,
            )
            for gradient, (_, out) in zip(gradients, variables, strict=True):
                out.copy_(clipped(gradient, self._clip_norm))
        return snap(update.cpu().numpy())

    def fingerprint(self) -> str:
        """Return the numeric identity of this process."""
        return kernels.fingerprint(kernels.DEFAULT, self._device)


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
        noise: Standard deviation of continuous exploration, as a share of half the range.
        seed: Keys the exploration.
    """

    def __init__(
        self, agents: Sequence[AgentSpec], nets: Networks, *, noise: float, seed: int
    ) -> None:
        super().__init__([agent.action.size for agent in agents], seed=seed)
        self._agents, self._nets = agents, nets
        self._device = next(nets.policy[0].parameters()).device
        self._heads = [
            make_head(agent.action, noise=noise, device=self._device) for agent in agents
        ]

    def _act(
        self, observation: FloatArray, available: BoolArray | None, choose: Choose
    ) -> FloatArray:
        outputs = self._outputs(observation, available)
        actions = [
            choose(head, output)[0] for head, output in zip(self._heads, outputs, strict=True)
        ]
        return np.ascontiguousarray(torch.cat(actions).t().cpu().numpy())

    def _outputs(self, observation: FloatArray, available: BoolArray | None) -> list[Tensor]:
        """Compute each policy's outputs as heads take them, shape (1, action size, copies)."""
        sizes = [agent.observation_size for agent in self._agents]
        joint = torch.from_numpy(np.require(observation, requirements="W")).to(self._device)
        with kernels.DEFAULT.selected(), torch.no_grad():
            outputs = [
                policy(observed).t().unsqueeze(0).contiguous()
                for policy, observed in zip(
                    self._nets.policy, torch.split(joint, sizes, 1), strict=True
                )
            ]
        if available is None:
            return outputs
        allowed = torch.split(
            torch.from_numpy(available).to(self._device), [*self._action_sizes], 1
        )
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
        return tuple(
            np.ascontiguousarray(
                torch.cat([layer.weight, layer.bias[:, None]], 1).detach().cpu().numpy()
            )
            for layer in layers
        )
