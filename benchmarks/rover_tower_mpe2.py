"""Rover Tower [Iqbal19] on mpe2's engine, which lacks this task, in mpe2's per-agent style."""

from typing import Any

import numpy as np
from mpe2._mpe_utils.core import Agent, Landmark, World
from mpe2._mpe_utils.scenario import BaseScenario
from mpe2._mpe_utils.simple_env import SimpleEnv, make_env
from numpy.typing import NDArray
from pettingzoo.utils.conversions import parallel_wrapper_fn

PAIRS = 4
LANDMARKS = 6
SYMBOLS = 5


class Scenario(BaseScenario):  # type: ignore[misc]
    """Four rovers, four towers, six landmarks."""

    def make_world(self) -> World:
        world = World()
        world.dim_c = SYMBOLS
        world.agents = [Agent() for _ in range(2 * PAIRS)]
        for i, agent in enumerate(world.agents):
            rover = i < PAIRS
            agent.name = f"rover_{i}" if rover else f"tower_{i - PAIRS}"
            agent.movable, agent.silent, agent.collide = rover, rover, False
            agent.size, agent.accel, agent.max_speed = 0.075, 2.25, 1.0
        world.landmarks = [Landmark() for _ in range(LANDMARKS)]
        for landmark in world.landmarks:
            landmark.collide, landmark.size = False, 0.04
        return world

    def reset_world(self, world: World, np_random: np.random.Generator) -> None:
        for entity in world.entities:
            entity.state.p_pos = np_random.uniform(-1, 1, world.dim_p)
            entity.state.p_vel = np.zeros(world.dim_p)
            entity.color = np.zeros(3)
        for agent in world.agents:
            agent.state.c = np.zeros(world.dim_c)
        rovers, towers = world.agents[:PAIRS], world.agents[PAIRS:]
        for tower, index in zip(towers, np_random.permutation(PAIRS), strict=True):
            goal = world.landmarks[np_random.integers(LANDMARKS)]
            tower.partner, rovers[index].partner = rovers[index], tower
            tower.goal = rovers[index].goal = goal

    def reward(self, agent: Any, world: World) -> float:
        rover = agent if agent.movable else agent.partner
        squared = np.sum(np.square(rover.state.p_pos - agent.goal.state.p_pos))
        near = squared < 1.5 * (rover.size + agent.goal.size)
        return float(10.0 * near - squared)

    def observation(self, agent: Any, world: World) -> NDArray[np.float64]:
        partner = agent.partner
        who = np.array([float(other is partner) for other in world.agents])
        if agent.movable:
            state = [partner.state.c, agent.state.p_pos, agent.state.p_vel]
            return np.concatenate([who[PAIRS:], *state])
        return np.concatenate([who[:PAIRS], partner.state.p_pos, agent.goal.state.p_pos])


class RoverTower(SimpleEnv):  # type: ignore[misc]
    """Rover Tower as an agent-by-agent environment."""

    def __init__(self, *, max_cycles: int = 25, render_mode: str | None = None) -> None:
        scenario = Scenario()
        world = scenario.make_world()
        super().__init__(
            scenario=scenario, world=world, render_mode=render_mode, max_cycles=max_cycles
        )
        self.metadata["name"] = "rover_tower"


parallel_env = parallel_wrapper_fn(make_env(RoverTower))
