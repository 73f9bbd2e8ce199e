"""SMAX of JaxMARL [Rutherford24]: battles of another project, as an environment of arrays.

It needs the extra ``fullrank[smax]``, and is known as ``smax`` once this module is imported. Copies
are stepped together by one compiled program of ``LANES`` battles or a multiple, so that an episode
does not depend on their number; its draws follow from its seed.

Differences from JaxMARL:

- The return of a battle that is won is 20, as in SMAC, where JaxMARL has 2.
- Episodes end where they end, and begin anew when they are asked to.
"""

import os
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from fullrank.common.errors import ConfigError
from fullrank.common.types import BoolArray, FloatArray, IntArray
from fullrank.environments.base import AgentSpec, Discrete, Step, register
from fullrank.environments.capabilities import chosen_actions
from fullrank.environments.instances import require_agents

LANES = 16
"""Battles of a compiled program: copies are filled up to a multiple, so that few are compiled."""
SCALE = 10.0
"""Reward in that of JaxMARL."""
STOP = 4
"""Action of the dead."""
PREFIX = "smax-"
"""Begins the name of a map of SMAX, where those of SMAC-lite stand beside it."""
HOST = {
    "JAX_PLATFORMS": "cpu",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
}
"""Surroundings of JAX where none are given: one thread, as of a process among others."""


def battle(name: str) -> tuple[str, ...]:
    """Return the settings of a map: of SMAX where its name says so, else of SMAC-lite.

    Where learners are counted, a run is planned without the extra.
    """
    chosen = f"environment.map={name.removeprefix(PREFIX)}"
    if name.startswith(PREFIX):
        return "environment.name=smax", chosen, "learners=1"
    return "environment.name=smac_lite", chosen


class Look(NamedTuple):
    """What is seen of battles, in all lanes L."""

    observation: FloatArray
    """Shape (L, agents, entries)."""
    state: FloatArray
    """Shape (L, entries)."""
    available: BoolArray
    """Shape (L, agents, actions)."""
    alive: BoolArray
    """Allies, then enemies, shape (L, units)."""


class Battles(Protocol):
    """Battles of a map, stepped together; their state is opaque."""

    agents: int
    units: int

    def begin(self, keys: NDArray[np.uint32], chosen: BoolArray, state: Any) -> tuple[Any, Look]:
        """Begin the chosen lanes anew, all where ``state`` is None; keys have shape (L, 2)."""

    def step(
        self, keys: NDArray[np.uint32], state: Any, actions: IntArray
    ) -> tuple[Any, Look, FloatArray, BoolArray]:
        """Step all lanes; returns the team's reward and the ends, both of shape (L,)."""


@register("smax")
@dataclass(frozen=True, slots=True, kw_only=True)
class SmaxConfig:
    """Micromanagement of units against JaxMARL's heuristic, with the interface of SMAC."""

    map: str = "3m"
    """Map, which fixes the agents."""
    variant: Literal["jaxmarl"] = "jaxmarl"
    """Source of dynamics: results do not compare with those of SMAC or SMAC-lite."""

    def make(self, *, agents: int, copies: int) -> "Smax":
        """Build E copies; ``agents`` is 0 or the map's number of agents.

        Raises:
            ConfigError: JaxMARL is not installed, or has no such map.
        """
        battles = battles_of(self.map)
        require_agents(f"smax, map {self.map}", agents, own=battles.agents)
        return Smax(battles, copies=copies)


class Smax:
    """E copies of a map; see ``Environment`` and ``fullrank.environments.capabilities``."""

    shared_reward = True

    def __init__(self, battles: Battles, *, copies: int) -> None:
        self._battles, self.copies = battles, copies
        lanes = -(-copies // LANES) * LANES
        self._keys, self._steps = np.zeros((lanes, 2), np.uint32), np.zeros(lanes, np.uint32)
        self._state, self._look = battles.begin(self._keys, np.ones(lanes, bool), None)
        entries, actions = self._look.observation.shape[2], self._look.available.shape[2]
        self.agents = tuple(
            AgentSpec(name=f"ally_{i}", observation_size=entries, action=Discrete(actions))
            for i in range(battles.agents)
        )
        self.state_size = self._look.state.shape[1]
        self._won: BoolArray = np.zeros(copies, bool)

    def reset(self, seeds: Sequence[int], copies: Sequence[int]) -> FloatArray:
        """See ``Environment.reset``."""
        if copies:
            chosen = np.zeros(len(self._keys), bool)
            chosen[list(copies)] = True
            wide = np.array([seed % 2**64 for seed in seeds], np.uint64)
            self._keys = self._keys.copy()
            self._keys[list(copies)] = wide[:, None] >> np.array([32, 0], np.uint64) & 0xFFFFFFFF
            self._steps = np.where(chosen, 0, self._steps).astype(np.uint32)
            self._state, self._look = self._battles.begin(self._keys, chosen, self._state)
        return self._observation()

    def step(self, action: FloatArray) -> Step:
        """See ``Environment.step``.

        Raises:
            EnvironmentFailed: A living agent chose an action that is not available.
        """
        n, acting = self._battles.agents, self._alive()
        chosen = np.full((len(self._keys), n), STOP)
        chosen[: self.copies] = np.where(
            acting,
            chosen_actions(self.agents, action, available=self.available(), alive=acting),
            STOP,
        )
        self._steps = self._steps + np.uint32(1)
        keys = np.stack([self._keys[:, 0] ^ self._steps, self._keys[:, 1]], axis=1)
        self._state, self._look, reward, ended = self._battles.step(keys, self._state, chosen)
        units = self._look.alive[: self.copies]
        standing = units[:, :n].any(axis=1)
        beaten = np.logical_not(units[:, n:].any(axis=1))
        self._won = standing & beaten
        over = ~standing | beaten
        paid = SCALE * reward[: self.copies].astype(np.float64)
        return Step(
            observation=self._observation(),
            reward=np.repeat(paid[:, None], n, axis=1),
            terminated=acting & (over[:, None] | ~self._alive()),
            alive=self._alive(),
            ended=ended[: self.copies],
        )

    def state(self) -> FloatArray:
        """See ``Stated``."""
        return self._look.state[: self.copies]

    def available(self) -> BoolArray:
        """See ``Masked``."""
        return self._look.available[: self.copies].reshape(self.copies, -1)

    def won(self) -> BoolArray:
        """See ``Contested``."""
        return self._won

    def close(self) -> None:
        """Do nothing: no resource is held."""

    def _alive(self) -> BoolArray:
        return self._look.alive[: self.copies, : self._battles.agents]

    def _observation(self) -> FloatArray:
        """Return the joint observations; those of the dead are zero."""
        seen = np.where(self._alive()[..., None], self._look.observation[: self.copies], 0.0)
        return seen.reshape(self.copies, -1).astype(np.float32, copy=False)


@cache
def battles_of(map_name: str) -> Battles:
    """Compile JaxMARL's battles of a map; the programs are shared.

    Raises:
        ConfigError: JaxMARL is not installed, or has no such map.
    """
    for name, value in HOST.items():
        os.environ.setdefault(name, value)
    try:
        with redirect_stdout(sys.stdout):  # which the import replaces
            import jax
            from jaxmarl.environments.smax import HeuristicEnemySMAX
            from jaxmarl.environments.smax.smax_env import MAP_NAME_TO_SCENARIO as SCENARIOS
    except ImportError:
        raise ConfigError("SMAX is not installed: pip install 'fullrank[smax]'") from None
    if map_name not in SCENARIOS:
        known = ", ".join(SCENARIOS)
        raise ConfigError(f"environment.map: SMAX has no map {map_name!r}; its maps are {known}")
    return _Compiled(jax, HeuristicEnemySMAX(scenario=SCENARIOS[map_name]))


class _Compiled:
    """Battles of JaxMARL, as two compiled functions of all lanes."""

    def __init__(self, jax: Any, game: Any) -> None:
        self.agents, self.units = game.num_allies, game.num_allies + game.num_enemies
        numpy, names = jax.numpy, game.agents

        def look(state: Any, seen: Any) -> Look:
            available = game.get_avail_actions(state)
            return Look(
                numpy.stack([seen[name] for name in names]),
                seen["world_state"],
                numpy.stack([available[name] for name in names]).astype(bool),
                state.state.unit_alive,
            )

        def strong(state: Any) -> Any:
            """Give all states the same types, for each of which functions are compiled."""
            return jax.tree.map(lambda leaf: numpy.asarray(leaf, leaf.dtype), state)

        def begin(key: Any, chosen: Any, before: Any) -> tuple[Any, Look]:
            _, fresh = game.reset(key)
            state = jax.tree.map(lambda new, old: numpy.where(chosen, new, old), fresh, before)
            world = game.get_world_state(state)
            return strong(state), look(state, {**game.get_obs(state), "world_state": world})

        def step(key: Any, state: Any, actions: Any) -> tuple[Any, Look, Any, Any]:
            given = dict(zip(names, actions, strict=True))
            seen, state, reward, done, _ = game.step_env(key, state, given)
            return strong(state), look(state, seen), reward[names[0]], done["__all__"]

        self._reset = jax.jit(jax.vmap(lambda key: strong(game.reset(key)[1])))
        self._begin, self._step = jax.jit(jax.vmap(begin)), jax.jit(jax.vmap(step))

    def begin(self, keys: NDArray[np.uint32], chosen: BoolArray, state: Any) -> tuple[Any, Look]:
        before = self._reset(keys) if state is None else state
        state, look = self._begin(keys, chosen, before)
        return state, Look(*map(np.asarray, look))

    def step(
        self, keys: NDArray[np.uint32], state: Any, actions: IntArray
    ) -> tuple[Any, Look, FloatArray, BoolArray]:
        state, look, reward, ended = self._step(keys, state, actions.astype(np.int32))
        return state, Look(*map(np.asarray, look)), np.asarray(reward), np.asarray(ended)
