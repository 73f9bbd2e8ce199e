"""SMAC-lite: the interface of SMAC over modelled battles."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fullrank.common.errors import ConfigError, EnvironmentFailed
from fullrank.common.types import Array, BoolArray, FloatArray, IntArray
from fullrank.environments.base import AgentSpec, Discrete, Step, register
from fullrank.environments.particle.scene import Scene
from fullrank.environments.smac_lite.battle import (
    LARGEST_RETURN,
    VICTORY,
    Battle,
    Forces,
    damage_reward,
    judge,
)
from fullrank.environments.smac_lite.dynamics import Terrain, advance
from fullrank.environments.smac_lite.features import (
    DIRECTIONS,
    MOVES,
    TARGETS,
    Features,
    SideConstants,
    Standing,
)
from fullrank.environments.smac_lite.maps import SIDE, Ground, Map, Starts, map_of
from fullrank.environments.smac_lite.units import UnitType

LETTERS = {"marauder": "M", "medivac": "+", "spine_crawler": "c", "colossus": "C"}
"""Labels of types; the others bear their first letter."""


def scene_of(battle: Battle, ground: Ground, copy: int) -> Scene:
    """Return the units of one copy, those that fire, and the cells around the field."""
    forces = battle.forces
    units = len(forces.types)
    alive = (battle.health[:, copy] > 0).tolist()
    sides = ["agent"] * forces.agents + ["adversary"] * forces.enemies
    kinds = [side if living else "dead" for side, living in zip(sides, alive, strict=True)]
    walls = _walls(ground)
    engaged = np.flatnonzero(battle.engaged[:, copy]).tolist()
    position = np.concatenate([battle.position[:, :units, copy].T, walls]) - SIDE / 2
    return Scene(
        kinds=(*kinds, *["wall"] * len(walls)),
        size=np.concatenate([forces.radius, np.full(len(walls), 0.5)]),
        position=position,
        shots=tuple((unit, int(battle.target[unit, copy])) for unit in engaged if alive[unit]),
        bars={unit: _left(battle, unit, copy) for unit in range(units) if alive[unit]},
        labels={unit: _letter(kind) for unit, kind in enumerate(forces.types) if alive[unit]},
        key={"agent": "agents", "adversary": "enemies", "dead": "dead"}
        | {_letter(kind): kind.name.replace("_", " ") for kind in forces.types},
        half_width=SIDE / 2,
    )


def _letter(kind: UnitType) -> str:
    return LETTERS.get(kind.name, kind.name[0])


def _left(battle: Battle, unit: int, copy: int) -> tuple[float, ...]:
    """Return the shares of health and of shield that a unit has left."""
    kind = battle.forces.types[unit]
    health = float(battle.health[unit, copy]) / kind.health
    return (health, float(battle.shield[unit, copy]) / kind.shield) if kind.shield else (health,)


def _walls(ground: Ground) -> np.ndarray:
    """Return the centres of the cells that border on walkable ones, shape (k, 2)."""
    free = np.pad(ground.walkable(), 1)
    near = free[:-2, 1:-1] | free[2:, 1:-1] | free[1:-1, :-2] | free[1:-1, 2:]
    return np.argwhere(near & ~free[1:-1, 1:-1]) + 0.5


@register("smac_lite")
@dataclass(frozen=True, slots=True, kw_only=True)
class SmacLiteConfig:
    """Micromanagement of units against a scripted army, with the interface of [Samvelyan19]."""

    map: str = "3m"
    """Map, which fixes the agents: 3m, 8m, 2s3z, 5m_vs_6m, 10m_vs_11m, 1c3s5z, 2s_vs_1sc, 3s_vs_3z,
    3s_vs_5z, 3s5z_vs_3s6z, 6h_vs_8z, MMM2 or corridor."""
    variant: Literal["smac-lite"] = "smac-lite"
    """Source of dynamics: a model, not StarCraft II; results do not compare with those of SMAC."""

    def __post_init__(self) -> None:
        map_of(self.map)

    def make(self, *, agents: int, copies: int) -> "SmacLite":
        """Build E copies; ``agents`` is 0 or the map's number of agents."""
        task = map_of(self.map)
        number = len(task.allies.types)
        if agents not in (0, number):
            raise ConfigError(f"environment.agents: map {self.map} has {number} agents: {agents}")
        return SmacLite(task, copies=copies)


class SmacLite:
    """E copies of one map; see ``Environment`` and ``fullrank.environments.capabilities``.

    Attributes:
        battle: State of all copies.
        state_size: Entries of the state.
        step_limit: Most steps of an episode.
    """

    shared_reward = True

    def __init__(self, task: Map, *, copies: int) -> None:
        allies, enemies = task.allies.types, task.enemies.types
        self._task, self._number = task, len(allies)
        self._medics = np.array([unit.heals for unit in allies])
        self._enemy_medics = np.array([unit.heals for unit in enemies])
        self._features = Features(
            SideConstants.of(allies, task.kinds),
            SideConstants.of(enemies, task.enemy_kinds),
            cooldown_scale=np.array([[unit.cooldown_scale] for unit in allies]),
            healers=self._medics,
            walkable=task.ground.walkable(),
            area=task.ground.size,
        )
        self._terrain, self._starts = Terrain(task.ground), Starts(task)
        self.battle = Battle(Forces.of(allies, enemies), copies)
        self._orders = _Orders(self.battle.forces, self._features.actions)
        self.copies, self.step_limit = copies, task.limit
        self.agents = tuple(
            AgentSpec(
                name=f"agent_{i}",
                observation_size=self._features.observation_size,
                action=Discrete(self._features.actions),
            )
            for i in range(len(allies))
        )
        self.state_size = self._features.state_size
        first = np.arange(0, copies * len(allies) * self._features.actions, self._features.actions)
        self._first = first.reshape(copies, len(allies))
        self._steps = np.zeros(copies, dtype=np.int64)
        self._won = np.zeros(copies, dtype=bool)
        self._last = np.zeros((len(allies), self._features.actions, copies), dtype=bool)
        self._observation, self._available = self._look(slice(None))

    def reset(self, seeds: Sequence[int], copies: Sequence[int]) -> FloatArray:
        """Start new episodes; see ``Environment.reset``."""
        if copies:
            chosen = np.array(copies)
            self.battle.begin(chosen, self._starts.draw(seeds))
            self._steps[chosen] = 0
            self._last[:, :, chosen] = False
            self._observation, self._available = self._observation.copy(), self._available.copy()
            self._observation[chosen], self._available[chosen] = self._look(chosen)
        return self._observation

    def step(self, action: FloatArray) -> Step:
        """See ``Environment.step``.

        Raises:
            EnvironmentFailed: A living agent chose an action that is not available.
        """
        battle, n = self.battle, self._number
        acting = battle.health[:n] > 0
        enemies = battle.health[n:] + battle.shield[n:]
        chosen = self._choose(action, acting)
        self._orders.give(battle, chosen)
        advance(battle, self._terrain)
        self._last = chosen[:, None] == np.arange(self._features.actions)[:, None]
        self._observation, self._available = self._look(slice(None))
        self._steps += 1
        return self._outcome(acting, enemies)

    def state(self) -> FloatArray:
        """See ``Stated``: features of all units, and the last actions."""
        battle, n = self.battle, self._number
        allies, enemies = self._standing(slice(None))
        cooldown = np.where(self._medics[:, None], battle.energy[:n], battle.cooldown[:n])
        cooldown = np.maximum(cooldown, 0.0)
        return self._features.state(allies, enemies, cooldown=cooldown, last=self._last)

    def available(self) -> BoolArray:
        """Return the available actions; see ``Masked``."""
        return self._available

    def won(self) -> BoolArray:
        """Return the copies that are won; see ``Contested``."""
        return self._won

    def scene(self, copy: int) -> Scene:
        """The drawable state of one copy."""
        return scene_of(self.battle, self._task.ground, copy)

    def close(self) -> None:
        """Do nothing: no resource is held."""

    def _choose(self, action: FloatArray, acting: BoolArray) -> IntArray:
        """Return the actions, shape (n, E); the dead take the no-op."""
        actions = self._features.actions
        chosen: IntArray = action.reshape(self.copies, self._number, actions).argmax(axis=2)
        chosen *= acting.T
        permitted = self._available.ravel()[self._first + chosen]
        if not permitted.all():
            copy, agent = np.argwhere(~permitted)[0].tolist()
            raise EnvironmentFailed(
                f"agent_{agent} of copy {copy} chose action {chosen[copy, agent]}, which is not "
                "available; choose among the actions that available() permits"
            )
        return np.ascontiguousarray(chosen.T)

    def _outcome(self, acting: BoolArray, before: Array) -> Step:
        """Return the step, given who acted and what the enemies had left before it."""
        battle, n = self.battle, self._number
        alive = battle.health > 0
        won, over = judge(
            alive[:n], alive[n:], medics=self._medics, enemy_medics=self._enemy_medics
        )
        reward = damage_reward(before, battle.health[n:] + battle.shield[n:]) + VICTORY * won
        reward /= self._task.largest_return / LARGEST_RETURN
        self._won = won
        return Step(
            observation=self._observation,
            reward=np.repeat(reward[:, None], n, axis=1),
            terminated=np.ascontiguousarray((acting & (over | ~alive[:n])).T),
            alive=np.ascontiguousarray(alive[:n].T),
            ended=over | (self._steps >= self.step_limit),
        )

    def _look(self, copies: IntArray | slice) -> tuple[FloatArray, BoolArray]:
        """Return observations and available actions of some copies."""
        return self._features.look(*self._standing(copies))

    def _standing(self, copies: IntArray | slice) -> tuple[Standing, Standing]:
        """Return the units of both sides in some copies."""
        battle, n = self.battle, self._number
        agents, enemies = (
            Standing(
                position=battle.position[:, side, copies],
                health=battle.health[side, copies],
                shield=battle.shield[side, copies],
            )
            for side in (slice(n), slice(n, len(battle.forces.types)))
        )
        return agents, enemies


class _Orders:
    """Translation of actions into marches and targets.

    Args:
        forces: Both armies.
        actions: Number of actions.
    """

    def __init__(self, forces: Forces, actions: int) -> None:
        agents = forces.agents
        self._march = np.zeros((2, agents, actions))
        self._march[:, :, MOVES] = DIRECTIONS[:, None]
        self._march *= forces.speed[:agents]
        self._target = np.full((agents, actions), len(forces.types))
        opponent = np.arange(actions - TARGETS)
        self._target[:, TARGETS:] = agents + opponent
        self._target[forces.healers[forces.healers < agents], TARGETS:] = opponent
        self._agent = np.arange(agents)[:, None]

    def give(self, battle: Battle, chosen: IntArray) -> None:
        """Order the agents to take the chosen actions, shape (n, E)."""
        agents = len(chosen)
        battle.march[:, :agents] = self._march[:, self._agent, chosen]
        battle.marching[:agents] = (chosen >= MOVES.start) & (chosen < MOVES.stop)
        battle.target[:agents] = self._target[self._agent, chosen]
