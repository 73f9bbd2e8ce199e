"""M agents with networks for any M ([Long20], Sec. 4.1): parameters and actions."""

from collections.abc import Mapping, Sequence
from itertools import groupby

import numpy as np
import torch
from torch import Tensor

from fullrank.algorithms.base import Memory
from fullrank.common.errors import ConfigError
from fullrank.common.seeding import stream
from fullrank.common.types import BoolArray, FloatArray
from fullrank.environments.base import AgentSpec, Discrete
from fullrank.networks.heads import Relaxed
from fullrank_reproduction.baselines.epc.copies import Copies
from fullrank_reproduction.baselines.epc.entity_observations import (
    EntityObservations,
    ObservationParser,
)
from fullrank_reproduction.baselines.epc.networks import Critic, EntityNetwork, SideEncoders
from fullrank_reproduction.entities import Entities


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
