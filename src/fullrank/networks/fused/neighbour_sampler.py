"""Collection of one agent's transitions by simulating the agents near it."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from fullrank.common.seeding import stream
from fullrank.common.types import FloatArray, IntArray, UnitIndex
from fullrank.environments.neighbour_samples import AgentPolicy, MakeSamples, Samples
from fullrank.environments.neighbourhood import NeighbourhoodWorld
from fullrank.networks.fused.mlp import Activations, Mlp, forward
from fullrank.networks.fused.network_group import NetworkGroup
from fullrank.networks.parameters import aligned

MOST = 208
"""Maximum number of rows of one agent that are computed as one matrix."""


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

    def _act_of(self, agent: UnitIndex, key: tuple[int, ...]) -> AgentPolicy:
        """Return the exploring policies for collecting the agent's transitions."""
        head, generator = self._group.head, stream(self._seed, "local_action", *key, agent)
        return self._player(self._group.rows.online, lambda out: head.explore(out, generator))

    def _act_next_of(self, agent: UnitIndex, key: tuple[int, ...]) -> AgentPolicy:
        """Return the target policies for the agent's transitions."""
        head, generator = self._group.head, stream(self._seed, "target_action", *key, agent)

        def sample(outputs: Tensor) -> Tensor:
            (noise,) = torch.from_numpy(head.draw([generator], tuple(outputs.shape)))
            return head.sample(outputs, noise.to(outputs.device))

        return self._player(self._group.rows.target, sample)

    def _player(self, rows: Tensor, choose: Callable[[Tensor], Tensor]) -> AgentPolicy:
        policy = self._group.policy
        own = rows[:, policy.start : policy.end]
        apart = Mlp(0, policy.inputs, policy.hidden, policy.outputs)

        def act(agents: IntArray, observation: FloatArray) -> FloatArray:
            with torch.inference_mode():
                return act_individually(apart, own, agents, observation, choose)

        return act


def act_individually(
    policy: Mlp,
    parameters: Tensor,
    who: IntArray,
    observation: FloatArray,
    choose: Callable[[Tensor], Tensor],
) -> FloatArray:
    """Apply to each row the policy of its agent, all agents in one call.

    An agent's rows are cut into pieces of the mean number of rows per agent, the last one padded
    with any row, so that the work grows with the rows and not with the agents; each piece is one
    matrix of a ``bmm``. There are at least as many pieces as threads, because several threads on
    one matrix would change its bits.

    Args:
        policy: Places the policy's layers in a row of ``parameters``.
        parameters: Rows of all agents, shape (M, >= policy.end).
        who: Agent of each row, shape (n,).
        observation: Observation of each row, shape (n, D).
        choose: Maps outputs to actions, both of shape (pieces, actions, rows of a piece).

    Returns:
        Actions, shape (n, actions).
    """
    narrow = who.astype(np.min_scalar_type(len(parameters)))  # up to 16 bits sort by radix
    order = np.argsort(narrow, kind="stable")
    counts = np.bincount(who)
    agents = np.flatnonzero(counts)
    counts = counts[agents]
    length = min(aligned(-(-len(who) // len(agents))), MOST)
    pieces = -(-counts // length)
    pieces[-1] += max(0, torch.get_num_threads() - pieces.sum())
    skipped = length * pieces - counts
    place = np.arange(len(who)) + np.repeat(np.cumsum(skipped) - skipped, counts)
    source = np.zeros(length * int(pieces.sum()), dtype=np.int64)
    source[place] = order
    rows = observation.take(source, axis=0)
    owners = torch.from_numpy(np.repeat(agents, pieces)).to(parameters.device)
    inputs = torch.from_numpy(rows).to(parameters.device).view(len(owners), length, -1)
    own = torch.index_select(parameters, 0, owners)
    actions = choose(_outputs(policy, own, inputs.transpose(1, 2)))
    target = np.empty_like(order)
    target[order] = place
    taken = actions.transpose(1, 2).reshape(len(rows), -1).cpu().numpy()
    return taken.take(target, axis=0)


def _outputs(policy: Mlp, parameters: Tensor, inputs: Tensor) -> Tensor:
    """Map inputs, shape (pieces, inputs, columns), to outputs, shape (pieces, outputs, columns)."""
    pieces, _, columns = inputs.shape
    below = inputs.new_empty(pieces, policy.hidden, columns)
    activations = Activations(below, below)
    out = inputs.new_empty(pieces, policy.outputs, columns)
    return forward(policy.weights(parameters), inputs, activations, out)
