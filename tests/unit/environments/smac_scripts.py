"""Scripted agents of SMAC-lite, all through the actions that agents have."""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np

from fullrank.environments.smac_lite.environment import SmacLite, SmacLiteConfig

from .recordings import AnyArray

Play: TypeAlias = Callable[[SmacLite, np.random.Generator], AnyArray]
"""Chooses the agents' actions, shape (E, n)."""

STOP, FIRST_MOVE, FIRST_TARGET = 1, 2, 6
MOVES = np.array([[0.0, 1.0], [0.0, -1.0], [1.0, 0.0], [-1.0, 0.0]])
"""Directions of the actions from the first move on."""


class View(NamedTuple):
    """Units of all copies, and the agents' available actions."""

    agents: AnyArray
    """Positions, shape (E, n, 2)."""
    enemies: AnyArray
    """Positions, shape (E, m, 2)."""
    distance: AnyArray
    """Distance of each agent from each enemy, infinite for dead enemies, shape (E, n, m)."""
    left: AnyArray
    """Health and shield of each enemy, shape (E, m)."""
    ready: AnyArray
    """True for agents whose weapon is ready, shape (E, n)."""
    available: AnyArray
    """Shape (E, n, actions)."""


def view(environment: SmacLite) -> View:
    battle, n = environment.battle, len(environment.agents)
    units = len(battle.health)
    position = battle.position[:, :units].T
    agents, enemies = position[:, :n], position[:, n:]
    left = (battle.health + battle.shield)[n:].T
    distance = np.linalg.norm(agents[:, :, None] - enemies[:, None], axis=-1)
    distance = np.where(left[:, None] > 0, distance, np.inf)
    available = environment.available().reshape(environment.copies, n, -1)
    return View(agents, enemies, distance, left, battle.cooldown[:n].T <= 2, available)


def towards(seen: View, away: bool = False) -> AnyArray:
    """The available move that brings each agent nearest to, or farthest from, the nearest enemy."""
    place = seen.agents[:, :, None] + MOVES
    gap = np.linalg.norm(place[:, :, :, None] - seen.enemies[:, None, None], axis=-1)
    gap = np.where(seen.left[:, None, None] > 0, gap, np.inf).min(axis=-1)
    cost = np.where(seen.available[..., FIRST_MOVE:FIRST_TARGET], -gap if away else gap, np.inf)
    return np.where(np.isfinite(cost).any(-1), FIRST_MOVE + cost.argmin(axis=-1), STOP)


def strike(environment: SmacLite, seen: View, cost: AnyArray) -> AnyArray:
    """Attack the available enemy of least cost, shape (E, n, m), else move to the nearest."""
    options = seen.available[..., FIRST_TARGET:]
    target = FIRST_TARGET + np.where(options, cost, np.inf).argmin(axis=-1)
    chosen = np.where(options.any(axis=-1), target, towards(seen))
    for medic in np.flatnonzero([unit.heals for unit in environment.battle.forces.types]).tolist():
        if medic < chosen.shape[1]:
            chosen[:, medic] = tend(environment, seen, medic)
    return np.where(seen.available[..., 0], 0, chosen)


def tend(environment: SmacLite, seen: View, medic: int) -> AnyArray:
    """Heal the agent in reach that lost most, else move to the nearest fighter."""
    battle, n = environment.battle, len(environment.agents)
    lost = (battle.forces.health - battle.health)[:n].T
    options = seen.available[:, medic, FIRST_TARGET : FIRST_TARGET + n]
    living = battle.health[:n].T > 0
    living[:, medic] = False
    gap = np.linalg.norm(seen.agents - seen.agents[:, medic, None], axis=-1)
    there = np.take_along_axis(
        seen.agents, np.where(living, gap, np.inf).argmin(axis=1)[:, None, None], axis=1
    )
    step = np.linalg.norm(seen.agents[:, medic, None] + MOVES - there, axis=-1)
    moves = seen.available[:, medic, FIRST_MOVE:FIRST_TARGET]
    move = FIRST_MOVE + np.where(moves, step, np.inf).argmin(axis=1)
    heal = FIRST_TARGET + np.where(options, lost, -1.0).argmax(axis=1)
    return np.where(options.any(axis=1), heal, np.where(moves.any(axis=1), move, STOP))


def nearest(environment: SmacLite, generator: np.random.Generator) -> AnyArray:
    """Attack the nearest enemy."""
    seen = view(environment)
    return strike(environment, seen, seen.distance)


def focus(environment: SmacLite, generator: np.random.Generator) -> AnyArray:
    """Attack the weakest enemy among those in reach of the weapon."""
    seen, forces, n = view(environment), environment.battle.forces, len(environment.agents)
    near = seen.distance <= forces.reach[:n, n:-1]
    return strike(environment, seen, np.where(near, seen.left[:, None], 1e4 + seen.distance))


def random(environment: SmacLite, generator: np.random.Generator) -> AnyArray:
    """Uniform over the available actions."""
    shape = (environment.copies, len(environment.agents), -1)
    available = environment.available().reshape(shape)
    chosen: AnyArray = (generator.random(available.shape) * available).argmax(axis=-1)
    return chosen


class Score(NamedTuple):
    """Results of whole episodes, one of each copy."""

    won: float
    """Share of victories."""
    returned: float
    """Mean return of an episode."""


def score(task: str, play: Play, *, copies: int, seed: int = 0) -> Score:
    """Results of one episode in each copy."""
    environment = SmacLiteConfig(map=task).make(agents=0, copies=copies)
    generator = np.random.default_rng(seed)
    everything = list(range(copies))
    environment.reset([seed * copies + copy for copy in everything], everything)
    eye = np.eye(environment.agents[0].action.size, dtype=np.float32)
    running, won, earned = np.ones(copies, bool), np.zeros(copies, bool), np.zeros(copies)
    while running.any():
        action = eye[play(environment, generator)].reshape(copies, -1)
        step = environment.step(action)
        earned += step.reward[:, 0] * running
        won |= environment.won() & running
        running &= ~step.ended
    return Score(float(won.mean()), float(earned.mean()))
