"""Policies that returns are compared with: random play, standing still, and a good one.

A good policy is an optimum or a heuristic; it reads the environment's state, all of it. Its return
is a lower bound of the best.

* ``cooperative_navigation``, ``food_collection``: each agent has a target of its own, by the
  assignment of least total distance, and steers to it by proportional and derivative control.
* ``ising``: all spins up, which is an optimum.
"""

from collections.abc import Mapping

import numpy as np

from fullrank.common.seeding import stream
from fullrank.common.types import Array, BoolArray, FloatArray, Interval
from fullrank.environments import Environment
from fullrank.environments.arena.environment import Arena
from fullrank.environments.arena.food_collection import FoodCollection
from fullrank.environments.lattice.ising import Spins
from fullrank.environments.particle.cooperative_navigation import Navigation
from fullrank.environments.particle.environment import ParticleEnvironment
from fullrank.environments.particle.scene import MOVES
from fullrank.runs.statistics import RESAMPLES, interval_of
from fullrank.training.evaluation import Act, Evaluation, random_actions

RANDOM, STILL, GOOD = "random", "still", "good"

APPROACH = 5.0
"""Wanted speed for each unit of distance."""
KEPT, GAINED = 0.75, 0.5
"""Share of the velocity that a step keeps, and velocity that it gains by full thrust."""


def references(environment: Environment, *, seed: int) -> Mapping[str, Act]:
    """The reference policies of an environment; each acts on the environment itself.

    Args:
        environment: The environment that they will play.
        seed: Keys random play.
    """
    acts = {RANDOM: random_actions(environment.agents, seed=seed)}
    moves = all(agent.action == MOVES for agent in environment.agents)
    if moves and isinstance(environment, ParticleEnvironment | Arena):
        acts[STILL] = _constant(len(environment.agents), MOVES.n, 0)
    good = _good(environment)
    return acts if good is None else {**acts, GOOD: good}


def gap_closed(returns: Array, random: Array, good: Array) -> Interval:
    """Share of the gap between random play and the good policy, with a 95 % interval.

    Args:
        returns: Returns of a policy, shape (episodes,).
        random: Those of random play from the same initial states.
        good: Those of the good policy from the same initial states.
    """
    picked = stream(0, "gap_closed").integers(len(returns), size=(RESAMPLES, len(returns)))
    low, mid, high = (values[picked].mean(axis=1) for values in (random, returns, good))
    mean = (returns.mean() - random.mean()) / (good.mean() - random.mean())
    return interval_of(np.array([mean]), (mid - low) / (high - low), size=len(returns))


def share_closed(played: Mapping[str, Evaluation], policy: str) -> Interval | None:
    """``gap_closed`` by a policy that played beside the references; None without a good one."""
    if GOOD not in played or RANDOM not in played:
        return None
    return gap_closed(*(played[name].returns for name in (policy, RANDOM, GOOD)))


def _good(environment: Environment) -> Act | None:
    if isinstance(environment, Navigation):
        return _to_landmarks(environment)
    if isinstance(environment, Arena) and isinstance(environment.config, FoodCollection):
        return _to_food(environment)
    if isinstance(environment, Spins):
        return _constant(len(environment.agents), 2, 0)
    return None


def _constant(agents: int, choices: int, chosen: int) -> Act:
    """Always one action, of any number of copies."""
    row = np.tile(np.eye(choices, dtype=np.float32)[chosen], agents)

    def act(observation: FloatArray, available: BoolArray | None = None, /) -> FloatArray:
        return np.tile(row, (len(observation), 1))

    return act


def _to_landmarks(environment: Navigation) -> Act:
    m = len(environment.agents)

    def act(observation: FloatArray, available: BoolArray | None = None, /) -> FloatArray:
        world = environment.world
        places = np.moveaxis(world.position, 2, 0)
        return _steer(places[:, :, :m], np.moveaxis(world.velocity, 2, 0), places[:, :, m:])

    return act


def _to_food(environment: Arena) -> Act:
    def act(observation: FloatArray, available: BoolArray | None = None, /) -> FloatArray:
        crowd = environment.crowd
        by_copy = (
            np.moveaxis(values, 1, 0) for values in (crowd.position, crowd.velocity, crowd.food)
        )
        return _steer(*by_copy)

    return act


def _steer(position: Array, velocity: Array, targets: Array) -> FloatArray:
    """Soft actions that bring each agent to the target that it is assigned.

    Args:
        position: Positions of the agents, shape (E, 2, M).
        velocity: Their velocities, shape (E, 2, M).
        targets: Positions of the targets, shape (E, 2, L); with L < M the others stand still.

    Returns:
        Shape (E, 5 M).
    """
    from scipy.optimize import linear_sum_assignment  # large, and needed for these policies only

    line = targets[:, :, None] - position[:, :, :, None]
    away = np.zeros_like(position)
    for copy, distance in enumerate(np.hypot(line[:, 0], line[:, 1])):
        agent, target = linear_sum_assignment(distance)
        away[copy][:, agent] = line[copy][:, agent, target]
    thrust = (APPROACH * away - KEPT * velocity) / GAINED
    thrust /= np.maximum(np.abs(thrust).sum(axis=1, keepdims=True), 1.0)
    x, y = thrust[:, 0], thrust[:, 1]
    idle = 1.0 - np.abs(thrust).sum(axis=1)
    parts = [idle, np.maximum(x, 0), np.maximum(-x, 0), np.maximum(y, 0), np.maximum(-y, 0)]
    return np.stack(parts, axis=2).reshape(len(position), -1).astype(np.float32)
