"""Samples of one agent by neighbour interaction ([DARL1N], Sec. III), as its critic sees them.

A sample is one step from anywhere, as in the authors' training (``from_resets``), or one of the
steps that teams take in whole episodes (``from_episodes``).
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fullrank.common.types import BoolArray, FloatArray, IntArray
from fullrank.environments.neighbourhood import Neighbourhood, NeighbourhoodWorld

AgentPolicy: TypeAlias = Callable[[IntArray, FloatArray], FloatArray]
"""Maps acting agents, shape (n,), and their observations, shape (n, D), to (n, actions)."""


class Samples(NamedTuple):
    """S transitions of one agent; D entries of an observation, K places of A for actions."""

    seen: FloatArray
    """The agent's observation, then the actions of it and its neighbours, (S, D + K A)."""
    reward: NDArray[np.float64]
    """Rewards of the agent, shape (S,)."""
    seen_next: FloatArray
    """The same after the step, with target actions, (S, D + K A)."""


class MakeSamples(Protocol):
    """A method of making samples."""

    def __call__(
        self,
        world: NeighbourhoodWorld,
        agent: int,
        size: int,
        *,
        generator: np.random.Generator,
        act: AgentPolicy,
        act_next: AgentPolicy,
    ) -> Samples:
        """Let the agents around the agent act, and evaluate the next neighbours' actions.

        Args:
            world: Simulates the agents around the agent.
            agent: The central agent of the samples.
            size: Number of samples, S.
            generator: Generator of all draws of the world.
            act: The policies.
            act_next: The target policies.
        """


def from_resets(
    world: NeighbourhoodWorld,
    agent: int,
    size: int,
    *,
    generator: np.random.Generator,
    act: AgentPolicy,
    act_next: AgentPolicy,
) -> Samples:
    """See ``MakeSamples``; samples start anywhere, and only the agents around are simulated."""
    here = world.start(np.full(size, agent), generator=generator)
    action = _in_slots(act, here.agent, here.acting, here.observation, world)
    return _stepped(world, here, action, act_next)


def from_episodes(
    world: NeighbourhoodWorld,
    agent: int,
    size: int,
    *,
    generator: np.random.Generator,
    act: AgentPolicy,
    act_next: AgentPolicy,
) -> Samples:
    """See ``MakeSamples``; samples are the first S steps of whole episodes, side by side.

    Any agent may come near within an episode, so the whole team plays.
    """
    copies, agents = np.arange(-(-size // world.horizon)), len(world.agents)
    every_agent, central = np.tile(np.arange(agents), len(copies)), np.full(len(copies), agent)
    team = world.team(len(copies))
    seen = team.reset(generator.integers(2**62, size=len(copies)).tolist(), copies.tolist())
    parts = []
    for _ in range(world.horizon):
        joint = act(every_agent, seen.reshape(len(every_agent), -1))
        action = joint.reshape(len(copies), agents, -1)
        here = world.around(team, central, copies, generator=generator)
        near = action[copies[:, None], here.agent] * here.acting[..., None]
        parts.append(_stepped(world, here, near, act_next))
        seen = team.step(joint.reshape(len(copies), -1)).observation
    seen, reward, seen_next = (np.concatenate(part)[:size] for part in zip(*parts, strict=True))
    return Samples(seen, reward, seen_next)


def _stepped(
    world: NeighbourhoodWorld, here: Neighbourhood, action: FloatArray, act_next: AgentPolicy
) -> Samples:
    after = world.step(action)
    target = _in_slots(act_next, here.agent, after.neighbour, after.observation, world)
    places = 1 + world.neighbours_seen
    return Samples(
        _critic_input(here.observation, action, here.neighbour, here.central, places),
        after.reward,
        _critic_input(after.observation, target, after.neighbour, here.central, places),
    )


def _in_slots(
    act: AgentPolicy,
    agent: IntArray,
    who: BoolArray,
    observation: FloatArray,
    world: NeighbourhoodWorld,
) -> FloatArray:
    """Actions of the agents in a mask, zeros elsewhere, shape (S, W, A)."""
    acting = np.flatnonzero(who)
    action = np.zeros((who.size, world.agents[0].action.size), dtype=np.float32)
    seen = observation.reshape(who.size, -1).take(acting, axis=0)
    action[acting] = act(agent.take(acting), seen)
    return action.reshape(*who.shape, -1)


def _critic_input(
    observation: FloatArray,
    action: FloatArray,
    neighbour: BoolArray,
    central: IntArray,
    places: int,
) -> FloatArray:
    """Own observation and action, then neighbours' actions by index, and zeros for absent ones.

    Neighbours beyond the places are left out, as in observations.
    """
    sample = np.arange(len(central))
    others = neighbour.copy()
    others[sample, central] = False
    place = np.cumsum(others, axis=1)
    others &= place < places
    near, size = np.flatnonzero(others), action.shape[2]
    actions = np.zeros((len(sample) * places, size), dtype=np.float32)
    actions[::places] = action[sample, central]
    row = near // neighbour.shape[1]
    actions[row * places + place.take(near)] = action.reshape(-1, size).take(near, axis=0)
    own = observation[sample, central]
    return np.concatenate([own, actions.reshape(len(sample), -1)], axis=1)
