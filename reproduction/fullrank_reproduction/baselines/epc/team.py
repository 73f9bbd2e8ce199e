"""M agents with networks for any M ([Long20], Sec. 4.1): parameters and actions."""

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from fullrank.algorithms.roles import Memory
from fullrank.common.errors import ConfigError
from fullrank.common.seeding import stream
from fullrank.common.types import BoolArray, FloatArray
from fullrank.environments.base import AgentSpec, Discrete
from fullrank.networks.adam import Adam, AdamState
from fullrank.networks.heads import Relaxed
from fullrank_reproduction.baselines.epc.entity_observations import (
    EntityObservations,
    ObservationParser,
)
from fullrank_reproduction.baselines.epc.networks import Critic, EntityNetwork, SideEncoders
from fullrank_reproduction.entities import Entities


class Copies:
    """M networks of one shape.

    Args:
        make: Makes one network; its own parameters are never used.
        agents: M, the number of agents.

    Attributes:
        rows: Parameters, targets and moments, each of shape (M, size).
    """

    def __init__(self, make: Callable[[], nn.Module], agents: int) -> None:
        with torch.device("meta"):
            self._network = make()
        self._shapes = {name: part.shape for name, part in self._network.named_parameters()}
        size = sum(shape.numel() for shape in self._shapes.values())
        self.rows = AdamState(*(torch.zeros(agents, size) for _ in range(4)))

    def initialise(self, seed: int, purpose: str) -> None:
        """Glorot-uniform weights, zero biases, unit norms, keyed by (seed, purpose, agent)."""
        for agent in range(len(self.rows.online)):
            generator = stream(seed, purpose, agent)
            for name, part in self._parts(self.rows.online[agent : agent + 1]).items():
                part[0] = torch.from_numpy(_initial(name, tuple(part.shape[1:]), generator))
        self.rows.target.copy_(self.rows.online)

    def begin(self, parameters: FloatArray) -> None:
        """Set the parameters, shape (M, size), and equal targets."""
        self.rows.online.copy_(torch.tensor(parameters))
        self.rows.target.copy_(self.rows.online)

    def compute(self, parameters: Tensor, *inputs: Any, along: Sequence[int | None]) -> Tensor:
        """Outputs of all networks, the agents' axis first.

        Args:
            parameters: Parameters of all networks, such as ``rows.online``.
            inputs: Inputs of the network: tensors, or trees of them.
            along: Axis of agents in each input; None if all networks get the same input.
        """
        call = vmap(lambda own, *given: functional_call(self._network, own, given), (0, *along))
        outputs: Tensor = call(self._parts(parameters), *inputs)
        return outputs

    def step(self, gradient: Tensor, adam: Adam, *, count: int, clip_norm: float) -> None:
        """Take a step of the optimiser, each variable of each agent clipped to an L2 norm."""
        for part in self._parts(gradient).values():
            lengths = part.flatten(1).norm(dim=1).clamp_min(clip_norm)
            part *= (clip_norm / lengths).view(-1, *[1] * (part.dim() - 1))
        self.rows.step(gradient, adam, count=count)

    def _parts(self, rows: Tensor) -> dict[str, Tensor]:
        """Views of flat rows by variable."""
        sizes = [shape.numel() for shape in self._shapes.values()]
        parts = torch.split_with_sizes(rows, sizes, dim=1)
        return {
            name: part.view(-1, *shape)
            for (name, shape), part in zip(self._shapes.items(), parts, strict=True)
        }


def _initial(
    name: str, shape: tuple[int, ...], generator: np.random.Generator
) -> np.ndarray[Any, Any]:
    if len(shape) == 2:
        limit = (6.0 / sum(shape)) ** 0.5
        return generator.uniform(-limit, limit, shape)
    return np.full(shape, float(name.endswith("norm.weight")))


class Team:
    """Policies and critics of M agents, one of each per agent.

    Args:
        specs: The agents, with the same discrete actions.
        entities: Layout of the observations.
        seed: Seed of parameters and exploration.

    Attributes:
        networks: By name: ``policy``, ``critic``, and ``encoder`` of the other agents.
        head: Action head.
        parser: Parser of observations.

    Raises:
        ConfigError: Actions are not discrete.
    """

    def __init__(self, specs: Sequence[AgentSpec], entities: Entities, *, seed: int) -> None:
        action, agents, sides = specs[0].action, len(specs), sides_of(specs)
        if not isinstance(action, Discrete):
            raise ConfigError("the baseline EPC plays discrete actions; choose another task")
        self._seed, self._actions = seed, action.n
        self._mine = torch.eye(agents, dtype=torch.bool)
        self.head = Relaxed(action)
        self.parser = ObservationParser(entities, agents=agents)
        kinds = [kind.columns.shape[2] for kind in entities.kinds]
        own = len(entities.own)
        acting = own + action.n
        self.networks = {
            "policy": Copies(lambda: EntityNetwork(own, kinds, action.n), agents),
            "encoder": Copies(lambda: SideEncoders(sides, acting, kinds), agents),
            "critic": Copies(lambda: Critic(sides, acting, kinds), agents),
        }
        for name, networks in self.networks.items():
            networks.initialise(seed, name)

    def parameters(self) -> dict[str, FloatArray]:
        """Copies of the networks, one row for each agent."""
        return {name: own.rows.online.numpy().copy() for name, own in self.networks.items()}

    def begin(self, parameters: Mapping[str, FloatArray]) -> None:
        """Set the networks and their targets to ``parameters``."""
        for name, networks in self.networks.items():
            networks.begin(parameters[name])

    def logits(self, policies: Tensor, observation: EntityObservations) -> Tensor:
        """Logits of all policies, shape (M, B, actions)."""
        return self.networks["policy"].compute(policies, observation, along=[1])

    def encode(self, encoders: Tensor, observation: EntityObservations) -> Tensor:
        """Encodings of all agents for all critics, shape (M, B, M, width)."""
        return self.networks["encoder"].compute(encoders, observation, along=[None])

    def values(self, critics: Tensor, observation: EntityObservations, others: Tensor) -> Tensor:
        """All critics' values, shape (M, B).

        Args:
            critics: Parameters.
            observation: Each agent's own observation and action.
            others: From ``encode``; the agent's own entry is not used.
        """
        return self.networks["critic"].compute(
            critics, observation, others, self._mine, along=[1, 0, 0]
        )

    def memory(self, copies: int) -> Memory:
        """An empty memory: policies use the current observation alone."""
        return ()

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
        """Exploring joint actions, keyed by (seed, iteration, step); see ``Player.act``."""
        generator = stream(self._seed, "act", iteration, step)
        actions = self.head.explore(self._outputs(observation), generator)
        return _packed(actions) * np.repeat(alive, self._actions, axis=1), memory

    def act_greedily(
        self, observation: FloatArray, memory: Memory, *, available: BoolArray | None = None
    ) -> tuple[FloatArray, Memory]:
        """The most likely actions as one-hot vectors."""
        return _packed(self.head.mode(self._outputs(observation))), memory

    @torch.no_grad()
    def _outputs(self, observation: FloatArray) -> Tensor:
        """Logits as heads take them, shape (M, actions, E)."""
        parsed = self.parser.parse(torch.tensor(observation))
        return self.logits(self.networks["policy"].rows.online, parsed).transpose(1, 2)


def sides_of(specs: Sequence[AgentSpec]) -> list[slice]:
    """Index ranges of the sides, in order of agents."""
    sizes = [len(list(group)) for _, group in groupby(specs, key=lambda spec: spec.side)]
    ends = np.cumsum(sizes).tolist()
    return [slice(end - size, end) for size, end in zip(sizes, ends, strict=True)]


def _packed(actions: Tensor) -> FloatArray:
    """Joint actions, shape (E, M actions), from shape (M, actions, E)."""
    return np.ascontiguousarray(actions.permute(2, 0, 1).flatten(1).numpy())
