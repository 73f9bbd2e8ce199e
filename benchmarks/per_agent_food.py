"""Food Collection sampled one agent, one pair and one step at a time, as a plain program does.

It follows the rules of [DARL1N]'s training: reset the team, let the agents around one agent act,
push and move, and show the observations of this agent and its next neighbours. It uses arrays of
two numbers and loops over objects, as do the particle worlds of [Lowe17]. ``local_interaction.py``
checks that its results equal those of ``ArenaNeighbourhood`` and measures both.
"""

from dataclasses import dataclass

import numpy as np

from fullrank.common.types import Array

SIZE, FOOD_SIZE, THRUST, TOP_SPEED = 0.05, 0.03, 5.0, 3.0


@dataclass
class Agent:
    """One agent's state."""

    position: Array
    velocity: Array


class Team:
    """M agents and M pieces of food."""

    def __init__(self, agents: int, *, distance: float, half_width: float, margin: float) -> None:
        self.count = agents
        self.distance, self.half_width, self.margin = distance, half_width, margin
        self.agents: list[Agent] = []
        self.food: list[Array] = []

    def reset(self, generator: np.random.Generator) -> None:
        """Place agents and food uniformly; draw velocities uniformly."""
        half = self.half_width
        self.agents = [
            Agent(generator.uniform(-half, half, 2), generator.uniform(-1 - half, 1 + half, 2))
            for _ in range(self.count)
        ]
        self.food = [generator.uniform(-half, half, 2) for _ in range(self.count)]

    def acting(self, central: int) -> list[int]:
        """Agents that move in a sample of one agent."""
        reach = 2 * (self.margin + self.distance)
        return [i for i in range(self.count) if self.apart(central, i) <= reach]

    def apart(self, one: int, other: int) -> float:
        """Distance of two agents."""
        delta = self.agents[one].position - self.agents[other].position
        return float(np.sqrt(np.sum(np.square(delta))))

    def observe(self, own: int) -> Array:
        """Observation of one agent."""
        me = self.agents[own]
        order = sorted(self.food, key=lambda food: float(np.sum(np.square(food - me.position))))
        shown = [np.append(food - me.position, 0.0) for food in order]
        places: list[Array] = []
        velocities: list[Array] = []
        lives: list[float] = []
        for other in range(self.count):
            if other != own and self.apart(own, other) <= self.distance:
                places.append(self.agents[other].position - me.position)
                velocities.append(self.agents[other].velocity)
                lives.append(1.0)
        empty = self.count - 1 - len(places)
        places += [np.zeros(2)] * empty
        velocities += [np.zeros(2)] * empty
        lives += [0.0] * empty
        itself = [me.velocity, me.position, np.ones(1)]
        return np.concatenate([*itself, *shown, *places, *velocities, np.array(lives)])

    def step(self, central: int, actions: dict[int, Array]) -> tuple[float, dict[int, Array]]:
        """Move the acting agents; return the central one's reward and the observations near it."""
        forces = {i: self._force(i, actions) for i in actions}
        for i, force in forces.items():
            self._move(self.agents[i], force)
        near = [i for i in range(self.count) if self.apart(central, i) <= self.distance]
        return self._earned(central), {i: self.observe(i) for i in near}

    def _force(self, own: int, actions: dict[int, Array]) -> Array:
        action = actions[own]
        force = THRUST * np.array([action[1] - action[2], action[3] - action[4]])
        for other in actions:
            if other != own:
                delta = self.agents[own].position - self.agents[other].position
                distance = np.sqrt(np.sum(np.square(delta)))
                depth = np.logaddexp(0, -(distance - 2 * SIZE) / 1e-3) * 1e-3
                force = force + 100.0 * delta / distance * depth
        return force

    def _move(self, agent: Agent, force: Array) -> None:
        velocity = agent.velocity * 0.75 + force * 0.1
        speed = np.sqrt(np.square(velocity[0]) + np.square(velocity[1]))
        if speed > TOP_SPEED:
            velocity = velocity / speed * TOP_SPEED
        agent.velocity = velocity
        moved = agent.position + velocity * 0.1
        agent.position = np.clip(moved, -self.half_width, self.half_width)

    def _earned(self, own: int) -> float:
        me = self.agents[own].position
        away = [float(np.sqrt(np.sum(np.square(food - me)))) for food in self.food]
        meals = sum(distance < SIZE + FOOD_SIZE for distance in away)
        others = (self.apart(own, i) for i in range(self.count) if i != own)
        return meals - min(away) - sum(distance < 2 * SIZE for distance in others)
