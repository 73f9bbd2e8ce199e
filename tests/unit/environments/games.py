"""Small games of other packages' forms, each with one peculiarity of choice."""

from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pettingzoo
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete, Tuple

COUNTER = count()
"""A state that no reset clears."""


class Game(pettingzoo.ParallelEnv):  # type: ignore[misc]
    """Agents that observe the step and their number, and act by one of three."""

    metadata: ClassVar[dict[str, Any]] = {"name": "game"}
    names: Sequence[str] = ("left_0", "left_1")
    horizon = 6

    def __init__(self) -> None:
        self.possible_agents = [*self.names]
        self.agents: list[str] = []
        self.played: list[dict[str, Any]] = []

    def observation_space(self, agent: str) -> gymnasium.Space[Any]:
        """Return the space of the step and the number."""
        return Box(-np.inf, np.inf, (2,), np.float32)

    def action_space(self, agent: str) -> gymnasium.Space[Any]:
        """Return the space of three actions."""
        return Discrete(3)

    def observe(self, agent: str) -> Any:
        """Return what an agent observes."""
        return np.array([self.steps, self.possible_agents.index(agent)], np.float32)

    def pay(self, actions: Mapping[str, Any]) -> dict[str, float]:
        """Return the rewards of a step."""
        return dict.fromkeys(actions, 1.0)

    def tell(self) -> dict[str, Any]:
        """Return the infos."""
        return {agent: {} for agent in self.agents}

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        """Begin an episode."""
        self.random, self.steps = np.random.default_rng(seed), 0
        self.agents = [*self.possible_agents]
        return {agent: self.observe(agent) for agent in self.agents}, self.tell()

    def step(self, actions: dict[str, Any]) -> Any:
        """Truncate all after the last step."""
        assert set(actions) == set(self.agents)
        self.played.append(actions)
        self.steps += 1
        over = dict.fromkeys(self.agents, self.steps >= self.horizon)
        seen, infos = {agent: self.observe(agent) for agent in self.agents}, self.tell()
        answer = seen, self.pay(actions), dict.fromkeys(self.agents, False), over, infos
        self.agents = [] if self.steps >= self.horizon else self.agents
        return answer


class Watch(Game):
    """Three guards, of which the first sleeps after step 2 and is back after step 4."""

    names = ("guard_0", "guard_1", "guard_2")

    def __init__(
        self,
        *,
        truncate: bool = False,
        stranger: bool = False,
        vanish: bool = False,
        paid_asleep: bool = False,
    ) -> None:
        super().__init__()
        self._truncate, self._stranger, self._vanish = truncate, stranger, vanish
        self._paid_asleep = paid_asleep

    def observe(self, agent: str) -> Any:
        """Return the next step and the number."""
        return super().observe(agent) + np.array([1, 0], np.float32)

    def step(self, actions: dict[str, Any]) -> Any:
        """Answer for those that acted, and for the guard that comes back."""
        acted = [*self.agents]
        seen, rewards, terminated, truncated, infos = super().step(actions)
        if not self.agents:
            return seen, rewards, terminated, truncated, infos
        sleeper = self.names[0]
        if self.steps == 2:
            (truncated if self._truncate else terminated)[sleeper] = not self._vanish
            self.agents = [agent for agent in acted if agent != sleeper]
        if self.steps == 3 and self._paid_asleep:
            rewards[sleeper] = 5.0
        if self.steps == 4:
            back = "guard_9" if self._stranger else sleeper
            self.agents = [back, *acted]
            seen[back] = np.array([5, 0], np.float32)
            terminated[back] = truncated[back] = False
        return seen, rewards, terminated, truncated, infos


class MaskedWatch(Watch):
    """Guards that may not take the first action, their no-op."""

    def tell(self) -> dict[str, Any]:
        """Return the masks, also of a guard that comes back."""
        return {agent: {"action_mask": np.array([0, 1, 1], np.int8)} for agent in self.names}


class Ledge(Game):
    """Agents on five places that no mask lets fall; illegal moves are corrected in silence."""

    names = ("climber_0", "climber_1")
    illegal = 0

    def __init__(
        self,
        *,
        form: str = "and a goal",
        mask: Sequence[float] | None = None,
        size: int = 3,
        at_step: int = 0,
    ) -> None:
        super().__init__()
        self._form, self._mask, self._size, self._at_step = form, mask, size, at_step

    def observation_space(self, agent: str) -> gymnasium.Space[Any]:
        """Return a space with the mask and other entries."""
        mask, own = Box(0, 9, (self._size,), np.float32), super().observation_space(agent)
        goal, deep = Box(0, 4, (1,), np.float32), Dict({"action_mask": mask})
        forms: dict[str, gymnasium.Space[Any]] = {
            "and a goal": Dict({"observation": own, "action_mask": mask, "goal": goal}),
            "of RLlib": Dict({"observations": own, "action_mask": mask}),
            "alone": Dict({"action_mask": mask}),
            "too deep": Dict({"board": deep, "observation": own}),
            "by another name": Dict({"observation": own, "legal_moves": mask}),
            "in infos": own,
        }
        return forms[self._form]

    def mask(self, agent: str) -> Any:
        """Return the moves that keep an agent on the ledge."""
        if self._mask is not None and self.steps >= self._at_step:
            return np.array(self._mask, np.float32)
        place = self.places[agent]
        return np.array([place > 0, 1, place < 4], np.float32)

    def observe(self, agent: str) -> Any:
        """Return the entries of the form."""
        own, mask = super().observe(agent), self.mask(agent)
        goal = np.array([4], np.float32)
        return {
            "and a goal": {"observation": own, "action_mask": mask, "goal": goal},
            "of RLlib": {"observations": own, "action_mask": mask},
            "alone": {"action_mask": mask},
            "too deep": {"board": {"action_mask": mask}, "observation": own},
            "by another name": {"observation": own, "legal_moves": mask},
            "in infos": own,
        }[self._form]

    def tell(self) -> dict[str, Any]:
        """Return infos with masks, if they are to hold them."""
        told = self._form == "in infos" and self.steps >= self._at_step
        return {agent: {"action_mask": self.mask(agent)} if told else {} for agent in self.agents}

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        """Place all."""
        places = np.random.default_rng(seed).integers(5, size=len(self.names))
        self.places = dict(zip(self.names, places.tolist(), strict=True))
        return super().reset(seed, options)

    def step(self, actions: dict[str, Any]) -> Any:
        """Count the moves that the mask forbids, and move within the ledge."""
        for agent, action in actions.items():
            Ledge.illegal += not self.mask(agent)[action]
            self.places[agent] = min(4, max(0, self.places[agent] + int(action) - 1))
        return super().step(actions)


class Locks(Game):
    """Agents see three colours and two signs, and are paid for each that they name.

    The space of actions has one of several forms; one agent may end early, and a mask may leave it
    one colour, or no choice at all.
    """

    forms: ClassVar[dict[str, gymnasium.Space[Any]]] = {
        "several": MultiDiscrete([3, 2]),
        "in a tuple": Tuple((Discrete(3), MultiDiscrete([2]))),
        "in a dictionary": Dict({"colour": Discrete(3), "sign": Discrete(2)}),
    }

    def __init__(
        self, *, form: str = "several", ends: int = 0, mask: Sequence[int] | None = None
    ) -> None:
        super().__init__()
        self._form, self._ends, self._mask = form, ends, mask

    def observation_space(self, agent: str) -> gymnasium.Space[Any]:
        """Return the space of a colour and a sign, one-hot."""
        return Box(0, 1, (5,), np.float32)

    def action_space(self, agent: str) -> gymnasium.Space[Any]:
        """Return the space of the form."""
        return self.forms[self._form]

    def observe(self, agent: str) -> Any:
        """Return what the agent is to name."""
        return np.concatenate(
            [np.eye(n)[key] for n, key in zip((3, 2), self.keys[agent], strict=True)]
        )

    def tell(self) -> dict[str, Any]:
        """Return infos, with the mask for the first agent if there is one."""
        self.keys = {
            agent: (self.random.integers(3), self.random.integers(2)) for agent in self.names
        }
        if self._mask is None:
            return {agent: {} for agent in self.agents}
        masks = {agent: np.ones(5, np.int8) for agent in self.agents}
        masks[self.names[0]] = np.array(self._mask, np.int8)
        return {agent: {"action_mask": mask} for agent, mask in masks.items()}

    def pay(self, actions: Mapping[str, Any]) -> dict[str, float]:
        """Pay each agent for what it named."""
        named = {
            agent: np.hstack([*own.values()] if isinstance(own, dict) else own)
            for agent, own in actions.items()
        }
        return {agent: float((own == self.keys[agent]).sum()) for agent, own in named.items()}

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        """Begin an episode."""
        self.random, self.steps, self.agents = np.random.default_rng(seed), 0, [*self.names]
        infos = self.tell()
        return {agent: self.observe(agent) for agent in self.agents}, infos

    def step(self, actions: dict[str, Any]) -> Any:
        """Pay for the keys seen, and show the next ones; end the second agent early if told so."""
        paid = self.pay(actions)
        self.played.append(actions)
        self.steps += 1
        infos, acted = self.tell(), [*self.agents]
        seen, none = {agent: self.observe(agent) for agent in acted}, dict.fromkeys(acted, False)
        over, early = self.steps >= self.horizon, self.steps == self._ends
        terminated = none | ({self.names[1]: True} if early else {})
        self.agents = [] if over else [agent for agent in acted if not terminated[agent]]
        return seen, paid, terminated, dict.fromkeys(acted, over), infos


class Pennies(Game):
    """One of two players wins what the other loses."""

    names = ("player_0", "player_1")

    def pay(self, actions: Mapping[str, Any]) -> dict[str, float]:
        """Pay the first player for equal actions."""
        first, second = actions.values()
        won = 1.0 if first == second else -1.0
        return dict(zip(self.names, (won, -won), strict=True))


class Hunt(Game):
    """A wolf and a sheep; ``sides`` may say that they are one team, and ``alike`` pays so."""

    names = ("wolf_0", "sheep_0")

    def __init__(self, *, sides: Mapping[str, str] | None = None, alike: bool = False) -> None:
        super().__init__()
        self._alike = alike
        if sides is not None:
            self.sides = sides

    def pay(self, actions: Mapping[str, Any]) -> dict[str, float]:
        """Pay the wolf twice as much, unless all are paid alike."""
        return dict(zip(self.names, (1.0, 1.0 if self._alike else -0.5), strict=True))


class Odd(Game):
    """A game with a fault that only a survey shows."""

    def __init__(self, *, fault: str) -> None:
        super().__init__()
        self._fault = fault
        if fault == "stateful":
            self.state_space = Box(-np.inf, np.inf, (1,), np.float32)
        self.horizon = 10**9 if fault == "endless" else 6

    def observe(self, agent: str) -> Any:
        """Return the step, and something odd."""
        odd = {"unseeded": next(COUNTER), "large": 1e8, "seeded": self.random.random()}
        return np.array([self.steps, odd.get(self._fault, 0.0)], np.float32)

    def state(self) -> Any:
        """Return what no reset clears."""
        return np.array([next(COUNTER)], np.float32)

    def tell(self) -> dict[str, Any]:
        """Return infos that may hold a mask by another name."""
        told = {"avail_actions": [1, 0, 0]} if self._fault == "hints" else {}
        return dict.fromkeys(self.agents, told)

    def pay(self, actions: Mapping[str, Any]) -> dict[str, float]:
        """Pay nothing, or what depends on the seed."""
        return dict.fromkeys(actions, 0.0 if self._fault == "unpaid" else self.random.random())


class Turns(pettingzoo.AECEnv):  # type: ignore[misc]
    """A game in which agents take turns."""

    possible_agents: ClassVar[list[str]] = ["player_0", "player_1"]


def turns() -> Turns:
    """Make it, with an annotation."""
    return Turns()


def env():  # type: ignore[no-untyped-def]
    """Make it, with no word but its name."""
    return Turns()


class MaskedPair(gymnasium.Env[Any, Any]):
    """A gymnasium team of two, of which the mask permits action 1 alone."""

    def __init__(self, *, told: bool = False) -> None:
        own = Box(-9, 9, (1,), np.float32)
        mask = Box(0, 1, (2,), np.int8)
        self.observation_space = Tuple([Dict({"observation": own, "action_mask": mask})] * 2)
        self.action_space = Tuple([Discrete(2)] * 2)
        self._told = {"action_mask": [[0, 1], [0, 1]]} if told else {}

    def _seen(self) -> Any:
        own = {"observation": np.array([self._steps], np.float32), "action_mask": [0, 1]}
        return (own, own)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        """Begin an episode."""
        self._steps = 0
        return self._seen(), self._told

    def step(self, action: Any) -> Any:
        """Let the first agent be done after step 1 alone, and both after step 3."""
        self._steps += 1
        done = [self._steps in (1, 3), self._steps == 3]
        return self._seen(), [1.0, 1.0], done, [False, False], self._told


class DictPair(gymnasium.Env[Any, Any]):
    """A gymnasium team in dictionaries."""

    observation_space = Dict({"a": Discrete(2), "b": Discrete(2)})
    action_space = Dict({"a": Discrete(2), "b": Discrete(2)})


gymnasium.register("MaskedPair-v0", entry_point=f"{__name__}:MaskedPair")
gymnasium.register("DictPair-v0", entry_point=f"{__name__}:DictPair")


class Screens(Game):
    """Viewers of screens, of which one quarter is bright; the action of its number pays."""

    names = ("viewer_0", "viewer_1")

    def __init__(self, *, side: int = 8, channels: int = 2) -> None:
        super().__init__()
        self._shape = (side, side + 1, channels)

    def observation_space(self, agent: str) -> gymnasium.Space[Any]:
        """Return the space of images."""
        return Box(0, 255, self._shape, np.uint8)

    def action_space(self, agent: str) -> gymnasium.Space[Any]:
        """Return the space of four actions."""
        return Discrete(4)

    def observe(self, agent: str) -> Any:
        """Return a screen, and keep its bright quarter."""
        self.bright = {**getattr(self, "bright", {}), agent: int(self.random.integers(4))}
        row, column = divmod(self.bright[agent], 2)
        height, width = (size // 2 for size in self._shape[:2])
        image = self.random.integers(0, 60, self._shape, dtype=np.uint8)
        image[row * height :, column * width :][:height, :width] += 190
        return image

    def step(self, actions: dict[str, Any]) -> Any:
        """Pay by the quarters that were seen, before others are shown."""
        self.due = {agent: float(actions[agent] == self.bright[agent]) for agent in actions}
        return super().step(actions)

    def pay(self, actions: Mapping[str, Any]) -> dict[str, float]:
        """Return the rewards of the step."""
        return self.due


class MixedScreens(Screens):
    """Viewers of screens of two shapes."""

    def observation_space(self, agent: str) -> gymnasium.Space[Any]:
        """Return the space of images, the last viewer's without its last column."""
        height, width, channels = self._shape
        return Box(0, 255, (height, width - (agent == self.names[1]), channels), np.uint8)

    def observe(self, agent: str) -> Any:
        """Return a screen of the viewer's shape."""
        return super().observe(agent)[:, : self.observation_space(agent).shape[1]]  # type: ignore[index]


class Blind(Game):
    """Agents observe nothing."""

    def observation_space(self, agent: str) -> gymnasium.Space[Any]:
        """Return the space of no numbers."""
        return Box(-1, 1, (0,), np.float32)

    def observe(self, agent: str) -> Any:
        """Return nothing."""
        return np.zeros(0, np.float32)
