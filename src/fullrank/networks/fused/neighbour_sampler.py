"""Collection of one agent's transitions by simulating the agents near it."""

from collections.abc import Callable

import torch
from torch import Tensor

from fullrank.common.seeding import stream
from fullrank.common.types import FloatArray, IntArray, UnitIndex
from fullrank.environments.neighbour_samples import Act, MakeSamples, Samples
from fullrank.environments.neighbourhood import NeighbourhoodWorld
from fullrank.networks.fused.mlp import Mlp
from fullrank.networks.fused.neighbour_policies import act_individually
from fullrank.networks.fused.network_group import NetworkGroup


class NeighbourSampler:
    """Collect an agent's transitions with the broadcast policies and target policies.

    Args:
        world: Simulator of an agent's neighbourhood.
        make_samples: Collects single steps, or the steps of whole episodes.
        group: All agents.
        batch_size: B, transitions per agent.
        seed: The run's seed.
    """

    def __init__(
        self,
        world: NeighbourhoodWorld,
        make_samples: MakeSamples,
        group: NetworkGroup,
        *,
        batch_size: int,
        seed: int,
    ) -> None:
        self._world, self._make_samples, self._group = world, make_samples, group
        self._batch_size, self._seed = batch_size, seed

    def __call__(self, agent: UnitIndex, key: tuple[int, ...]) -> Samples:
        """Collect the agent's transitions; every draw is keyed by (purpose, *key, agent)."""
        return self._make_samples(
            self._world,
            agent,
            self._batch_size,
            generator=stream(self._seed, "local_world", *key, agent),
            act=self._act_of(agent, key),
            act_next=self._act_next_of(agent, key),
        )

    def _act_of(self, agent: UnitIndex, key: tuple[int, ...]) -> Act:
        """Return the exploring policies for collecting the agent's transitions."""
        head, generator = self._group.head, stream(self._seed, "local_action", *key, agent)
        return self._player(self._group.rows.online, lambda out: head.explore(out, generator))

    def _act_next_of(self, agent: UnitIndex, key: tuple[int, ...]) -> Act:
        """Return the target policies for the agent's transitions."""
        head, generator = self._group.head, stream(self._seed, "target_action", *key, agent)

        def sample(outputs: Tensor) -> Tensor:
            (noise,) = torch.from_numpy(head.draw([generator], tuple(outputs.shape)))
            return head.sample(outputs, noise.to(outputs.device))

        return self._player(self._group.rows.target, sample)

    def _player(self, rows: Tensor, choose: Callable[[Tensor], Tensor]) -> Act:
        policy = self._group.policy
        own = rows[:, policy.start : policy.end]
        apart = Mlp(0, policy.inputs, policy.hidden, policy.outputs)

        def act(agents: IntArray, observation: FloatArray) -> FloatArray:
            with torch.inference_mode():
                return act_individually(apart, own, agents, observation, choose)

        return act
