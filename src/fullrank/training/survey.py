"""Survey of an environment: what random play shows of its agents, masks, rewards and seeds.

Random play also tells whether the agents are one team, whose summed reward a value-based algorithm
may learn. Sides that an environment of this package declares are its word. Another package declares
none, or by the names of its agents; then it matters whether all are paid the same, or whether the
rewards cancel.
"""

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fullrank.common.seeding import derive
from fullrank.common.types import Array, BoolArray, FloatArray
from fullrank.environments.base import AgentSpec, Environment
from fullrank.environments.capabilities import available_of, state_of
from fullrank.environments.instances import Instances
from fullrank.training.episodes import Episodes
from fullrank.training.evaluation import random_actions

TRIAL_STEPS = 100
"""Steps of the random play; shorter episodes follow each other."""
CANCELS = 1e-6
"""Largest sum of rewards that cancel, as a share of the largest reward."""


class Payment(NamedTuple):
    """The rewards of some steps, as far as they tell friend from foe."""

    alike: bool
    """True if all agents that acted were paid the same in every step, and not always zero."""
    cancels: bool
    """True if the rewards of two agents or more summed to zero in every step, not always zero."""


def payment_of(reward: Array, alive: BoolArray) -> Payment:
    """Judge rewards, shape (steps, M), of the agents that acted, of the same shape."""
    paid = bool(reward.any())
    lowest = np.where(alive, reward, np.inf).min(axis=1)
    highest = np.where(alive, reward, -np.inf).max(axis=1)
    total, largest = np.abs(reward.sum(axis=1)), np.abs(reward).max(initial=0.0)
    several = reward.shape[1] > 1
    return Payment(
        alike=paid and bool((lowest == highest).all()),
        cancels=paid and several and bool((total <= CANCELS * largest).all()),
    )


def sides_of(agents: Sequence[AgentSpec]) -> list[str]:
    """Return the sides in order of first appearance."""
    return [*dict.fromkeys(agent.side for agent in agents)]


def random_payment(environment: Environment, *, seed: int) -> Payment:
    """Judge the rewards of random play in an environment of one copy, which is reset."""
    episodes, act = Episodes(environment), random_actions(environment.agents, seed=seed)
    rewards, alive = [], []
    for step in range(TRIAL_STEPS):
        if episodes.ended[0]:
            episodes.begin(episodes.waiting(), [derive(seed, "trial", step)])
        alive.append(episodes.alive[0])
        action = act(episodes.observation, episodes.available())
        rewards.append(episodes.advance(action).reward[0])
    return payment_of(np.array(rewards), np.array(alive))


def several_teams(agents: Sequence[AgentSpec], payment: Payment | None) -> str:
    """Say why algorithms that learn a team's reward refuse agents; empty if they are one team.

    Args:
        agents: Agents that do not share one reward.
        payment: Their rewards in random play; None where the sides are the environment's word.
    """
    sides, learns = sides_of(agents), "one team learns from the sum of all rewards"
    remedy = (
        "use maddpg, mfac, masac, isac or ippo, in which each agent learns from its own, or set "
        "algorithm.reward = 'own' where the algorithm has it"
    )
    if payment is not None and payment.cancels:
        names = ", ".join(agent.name for agent in agents)
        return f"{learns}, and those of {names} cancel in every step of random play; {remedy}"
    if len(sides) == 1 or (payment is not None and payment.alike):
        return ""
    if payment is not None:
        remedy += "; or, if all are one team, give the environment the attribute sides, a mapping "
        remedy += "from each of possible_agents to one name"
    return f"{learns}, and {' and '.join(sides)} are sides that are paid apart; {remedy}"


MOST_STEPS = 2000
"""Steps after which an episode that does not end is cut off."""


class PlayedEpisode(NamedTuple):
    """One episode of T steps in one copy."""

    observation: FloatArray
    """Shape (T + 1, sum of observation sizes)."""
    state: FloatArray
    """Before each step, shape (T, S)."""
    available: BoolArray
    """Shape (T + 1, sum of action sizes)."""
    alive: BoolArray
    """Agents that act in a step, shape (T, M)."""
    reward: Array
    """Shape (T, M)."""
    terminated: BoolArray
    """Shape (T, M)."""
    ended: bool
    """False if the episode was cut off."""
    step_s: float
    """Mean time of a step, seconds."""

    def difference(self, other: "PlayedEpisode", agents: Sequence[AgentSpec]) -> str:
        """Name the first difference from another play of the same seed; empty if there is none."""
        steps = min(len(self.reward), len(other.reward))
        owner = np.repeat(np.arange(len(agents)), [agent.observation_size for agent in agents])
        for step in range(steps + 1):
            seen = np.flatnonzero(self.observation[step] != other.observation[step])
            if seen.size:
                return f"{agents[owner[seen[0]]].name} observes something else after step {step}"
            if not np.array_equal(self.available[step], other.available[step]):
                return f"other actions are available after step {step}"
            if step == steps:
                break
            if not np.array_equal(self.state[step], other.state[step]):
                return f"the state differs after step {step}"
            for differing, what in (
                (self.alive[step] != other.alive[step], "acts or not"),
                (self.reward[step] != other.reward[step], "is paid otherwise"),
                (self.terminated[step] != other.terminated[step], "terminates or not"),
            ):
                if (whose := np.flatnonzero(differing)).size:
                    return f"{agents[whose[0]].name} {what} in step {step + 1}"
        if len(self.reward) != len(other.reward):
            return f"one play has {len(self.reward)} steps, and another {len(other.reward)}"
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSurvey:
    """What was seen of an agent."""

    spec: AgentSpec
    observed: tuple[float, float]
    """Least and largest entry of its observations; zeros if it observes nothing."""
    rewards: tuple[float, float]
    """Least and largest reward of a step in which it acted."""
    permitted: float
    """Mean share of its actions that were available to it."""
    acted: int
    """Number of steps in which it acted."""
    terminated: int
    """Number of times that it terminated before the episode's last step."""
    left: int
    """Number of times that it left without terminating before the last step."""
    came_back: int
    """Number of times that it came back within an episode."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentSurvey:
    """What was seen of an environment."""

    agents: tuple[AgentSurvey, ...]
    lengths: tuple[int, ...]
    """Steps of each episode."""
    unended: int
    """Number of episodes that were cut off."""
    payment: Payment
    differs: str
    """First difference between plays of one seed; empty if there is none."""
    seeded: bool
    """True if episodes of different seeds differ."""
    step_s: float
    """Mean time of a step of one copy, seconds."""
    ignored: tuple[str, ...]
    """What the environment says and an adapter does not use."""


def survey(
    make: Callable[[], Environment], *, episodes: int, seed: int, clock: Callable[[], float]
) -> EnvironmentSurvey:
    """Play episodes at random, the first one three times, the last time in another instance.

    Args:
        make: Makes an environment of one copy.
        episodes: Number of different episodes.
        seed: Keys initial states and actions.
        clock: Seconds, monotonic.

    Raises:
        EnvironmentFailed: The environment raised.
    """

    def play(environment: Environment, number: int) -> PlayedEpisode:
        return _play(environment, seed=derive(seed, "survey", number), clock=clock)

    with closing(make()) as environment:
        traces = [play(environment, number) for number in range(episodes)]
        again = play(environment, 0)
        agents = environment.agents
        ignored = environment.ignored() if isinstance(environment, Instances) else []
    with closing(make()) as fresh:
        apart = play(fresh, 0)
    differences = (traces[0].difference(other, agents) for other in (again, apart))
    steps = sum(len(trace.reward) for trace in traces)
    return EnvironmentSurvey(
        agents=tuple(_of_agent(agents, index, traces) for index in range(len(agents))),
        lengths=tuple(len(trace.reward) for trace in traces),
        unended=sum(not trace.ended for trace in traces),
        payment=payment_of(
            np.concatenate([trace.reward for trace in traces]),
            np.concatenate([trace.alive for trace in traces]),
        ),
        differs=next(filter(None, differences), ""),
        seeded=any(other.difference(traces[0], agents) for other in traces[1:]),
        step_s=sum(trace.step_s * len(trace.reward) for trace in traces) / steps,
        ignored=tuple(ignored),
    )


def _play(environment: Environment, *, seed: int, clock: Callable[[], float]) -> PlayedEpisode:
    episodes, act = Episodes(environment), random_actions(environment.agents, seed=seed)
    episodes.begin(episodes.waiting(), [seed])
    observation, available = [episodes.observation[0]], [available_of(environment)[0]]
    alive, reward, terminated = list[BoolArray](), list[Array](), list[BoolArray]()
    state = list[FloatArray]()
    spent_s = 0.0
    while not episodes.ended[0] and len(reward) < MOST_STEPS:
        alive.append(episodes.alive[0])
        state.append(state_of(environment, episodes.observation)[0].copy())
        action, began_s = act(episodes.observation, episodes.available()), clock()
        step = episodes.advance(action)
        spent_s += clock() - began_s
        reward.append(step.reward[0])
        terminated.append(step.terminated[0])
        observation.append(step.observation[0])
        available.append(available_of(environment)[0])
    return PlayedEpisode(
        np.stack(observation),
        np.stack(state),
        np.stack(available),
        np.stack(alive),
        np.stack(reward),
        np.stack(terminated),
        ended=bool(episodes.ended[0]),
        step_s=spent_s / len(reward),
    )


def _of_agent(
    agents: Sequence[AgentSpec], index: int, traces: Sequence[PlayedEpisode]
) -> AgentSurvey:
    spec = agents[index]
    seen = sum(agent.observation_size for agent in agents[:index])
    acts = sum(agent.action.size for agent in agents[:index])
    alive = [trace.alive[:, index] for trace in traces]

    def while_alive(part: Callable[[PlayedEpisode], NDArray[Any]]) -> NDArray[Any]:
        pairs = zip(traces, alive, strict=True)
        return np.concatenate([part(trace)[lives] for trace, lives in pairs])

    observed = while_alive(
        lambda trace: trace.observation[:-1, seen : seen + spec.observation_size]
    )
    permitted = while_alive(lambda trace: trace.available[:-1, acts : acts + spec.action.size])
    rewards = while_alive(lambda trace: trace.reward[:, index])
    died = sum(int(trace.terminated[:-1, index].sum()) for trace in traces)
    gone = sum(int((lives[:-1] & ~lives[1:]).sum()) for lives in alive)
    return AgentSurvey(
        spec=spec,
        observed=(float(observed.min()), float(observed.max())) if observed.size else (0.0, 0.0),
        rewards=(float(rewards.min()), float(rewards.max())),
        permitted=float(permitted.mean()) if spec.action.choices else 1.0,
        acted=sum(int(lives.sum()) for lives in alive),
        terminated=died,
        left=gone - died,
        came_back=sum(int((~lives[:-1] & lives[1:]).sum()) for lives in alive),
    )
