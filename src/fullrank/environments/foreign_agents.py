"""Agents of a foreign environment: gymnasium spaces, action masks, and packed vectors.

A mask is the entry ``action_mask`` of a ``Dict`` observation; the other entries are the
observation, flattened by ascending key, or the entry ``observation`` (``observations``) as it is
where there is no other. The spaces say which agents have one. A mask may also come from an info.
An observation of bytes of three axes is an image, of height, width and channels.

Actions are ``Discrete``, several choices at once (``MultiDiscrete``, ``MultiBinary``, or a
``Tuple`` or ``Dict`` of such spaces), or a finite box of real numbers.
"""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.spaces import Box, utils
from numpy.typing import NDArray

from fullrank.common.errors import EnvironmentFailed
from fullrank.common.types import BoolArray, FloatArray, IntArray
from fullrank.environments.base import (
    ActionSpec,
    AgentSpec,
    Continuous,
    Discrete,
    MultiDiscrete,
)
from fullrank.environments.instances import naming_agent

Space = gymnasium.Space[Any]


def observation_space(agent: AgentSpec) -> Box:
    """The unbounded box of an agent's observations."""
    return Box(-np.inf, np.inf, shape=(agent.observation_size,), dtype=np.float32)


def action_space(agent: AgentSpec) -> Space:
    """``Discrete`` (also for an agent that takes relaxed actions), ``MultiDiscrete``, or a box."""
    if isinstance(agent.action, Discrete):
        return gymnasium.spaces.Discrete(agent.action.n)
    if isinstance(agent.action, MultiDiscrete):
        return gymnasium.spaces.MultiDiscrete([*agent.action.choices])
    low, high = (np.array(bound, np.float32) for bound in (agent.action.low, agent.action.high))
    return Box(low, high, dtype=np.float32)


def pack_action(agent: AgentSpec, action: Any) -> FloatArray:
    """A PettingZoo agent's action as a vector, shape (size,).

    Raises:
        EnvironmentFailed: A choice is out of range, or their number differs.
    """
    spec = agent.action
    vector = np.zeros(spec.size, dtype=np.float32)
    if isinstance(spec, Continuous):
        vector[:] = action
        return vector
    chosen, choices = np.ravel(action), np.array(spec.choices)
    if chosen.shape != choices.shape or not ((chosen >= 0) & (chosen < choices)).all():
        raise EnvironmentFailed(
            f"{agent.name} chose {chosen.tolist()}; give an index below each of {[*spec.choices]}"
        )
    vector[_starts(spec) + chosen.astype(int)] = 1.0
    return vector


def _starts(spec: ActionSpec) -> IntArray:
    """The first entry of each choice in an action vector."""
    return np.cumsum((0, *spec.choices[:-1]))


def action_spec(space: Space) -> ActionSpec:
    """The action specification of a gymnasium space.

    Raises:
        TypeError: The space is neither of choices nor a finite box of real numbers, or the sum of
            the box's bounds is not finite in single precision.
    """
    if isinstance(space, gymnasium.spaces.Discrete):
        return Discrete(int(space.n))
    if choices := _choices(space):
        return MultiDiscrete(choices)
    if isinstance(space, Box) and space.is_bounded() and np.issubdtype(space.dtype, np.floating):
        with np.errstate(over="ignore"):
            low, high = (np.abs(bound).astype(np.float32) for bound in (space.low, space.high))
            finite = np.isfinite(low + high).all()
        if not finite:
            raise TypeError(f"the bounds of {space} are too large for float32; scale its actions")
        return Continuous(tuple(space.low.ravel().tolist()), tuple(space.high.ravel().tolist()))
    raise TypeError(
        f"actions of {space} are not supported; Discrete, MultiDiscrete, MultiBinary, Tuples and "
        "Dicts of these, and finite boxes of real numbers are"
    )


def _choices(space: Any) -> tuple[int, ...]:
    """The number of actions in each choice of a space; none if a part of it is no choice."""
    if isinstance(space, gymnasium.spaces.Discrete):
        return (int(space.n),)
    if isinstance(space, gymnasium.spaces.MultiDiscrete):
        return tuple(space.nvec.ravel().tolist())
    if isinstance(space, gymnasium.spaces.MultiBinary):
        return (2,) * int(np.prod(space.shape))
    if not isinstance(space, spaces.Tuple | spaces.Dict):
        return ()
    within = space.spaces.values() if isinstance(space, spaces.Dict) else space.spaces
    parts = [*map(_choices, within)]
    return tuple(size for own in parts for size in own) if all(parts) else ()


def unpack_action(space: Any, vector: FloatArray) -> Any:
    """A foreign agent's action from its vector: the largest entry, or the nearest point in the box.

    Args:
        space: A space that ``action_spec`` accepts.
        vector: Shape (size,).
    """
    if isinstance(space, gymnasium.spaces.Discrete):  # in a fifth of the time of what follows
        return int(space.start) + int(vector.argmax())
    if isinstance(space, Box):
        low, high = (np.ravel(bound) for bound in (space.low, space.high))
        return np.clip(vector, low, high).reshape(space.shape).astype(space.dtype)
    parts = np.split(vector, np.cumsum(_choices(space))[:-1])
    return _chosen(space, iter([int(part.argmax()) for part in parts]))


def _chosen(space: Any, indices: Iterator[int]) -> Any:
    """An action of a space, whose choices take the next indices."""
    if isinstance(space, gymnasium.spaces.Discrete):
        return int(space.start) + next(indices)
    if isinstance(space, spaces.Dict):
        return {key: _chosen(part, indices) for key, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_chosen(part, indices) for part in space.spaces)
    taken = np.array([next(indices) for _ in _choices(space)], space.dtype).reshape(space.shape)
    return taken + getattr(space, "start", 0)


def pack_observation(space: Space, observation: Any) -> FloatArray:
    """A foreign agent's observation as a vector, shape (flatdim of the space,).

    Raises:
        ValueError: The shape differs from the space, a value is not finite, or the type of the
            space does not hold it.
    """
    vector: FloatArray
    if isinstance(space, Box):  # in a tenth of the time of ``flatten``
        vector = _in_type(space, observation).astype(np.float32).ravel()
    else:
        _require_fit(space, observation)
        vector = np.asarray(utils.flatten(space, observation), dtype=np.float32)
        if vector.shape != (utils.flatdim(space),):
            raise ValueError(f"an observation does not have the shape of {space}")
    if not np.isfinite(vector).all():
        raise ValueError("an observation is not finite")
    return vector


def _in_type(space: Space, observation: Any) -> NDArray[Any]:
    """An observation as an array of the space's type, which changes no number but real ones.

    Raises:
        ValueError: The shape differs from the space, or the type does not hold a value.
    """
    given = np.asarray(observation)
    if given.shape != space.shape:
        raise ValueError(f"an observation has shape {given.shape}, not {space.shape}")
    if given.dtype == space.dtype:
        return given
    if np.issubdtype(space.dtype, np.floating):
        return given.astype(space.dtype)
    with np.errstate(invalid="ignore"):  # of NaN and of numbers beyond the type, refused below
        taken: NDArray[Any] = given.astype(space.dtype)
    if (wrong := given[taken != given]).size:
        raise ValueError(f"an observation has {wrong[0]}, which {space.dtype}, its type, cannot be")
    return taken


def _require_fit(space: Space, observation: Any) -> None:
    """Refuse parts that ``flatten`` would change to others.

    Raises:
        ValueError: A part does not fit its space.
    """
    if isinstance(space, spaces.Dict):
        for key, part in space.items():
            _require_fit(part, observation[key])
    elif isinstance(space, spaces.Tuple):
        for part, own in zip(space, observation, strict=True):
            _require_fit(part, own)
    elif isinstance(space, Box):
        _in_type(space, observation)
    elif isinstance(
        space, spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary
    ) and not space.contains(taken := _in_type(space, observation)):
        raise ValueError(f"an observation is {taken}, which is not in {space}")


def pack_mask(spec: ActionSpec, mask: Any) -> BoolArray:
    """Convert a foreign agent's action mask to a vector, shape (action size,).

    Args:
        spec: The agent's actions.
        mask: One entry per action, 1 where available and 0 elsewhere. Those of several choices lie
            one after the other, flat or in a sequence of masks. That of a box may forbid nothing.

    Raises:
        ValueError: The mask has another shape than the actions or other entries, permits no action
            of a choice, or forbids a part of a box.
    """
    if isinstance(spec, Continuous):
        if not np.asarray(mask).all():
            raise ValueError("an action mask forbids a part of a box; masks are for choices")
        return np.ones(spec.size, dtype=bool)
    if isinstance(spec, MultiDiscrete) and isinstance(mask, tuple | list):
        mask = np.concatenate([*map(np.ravel, mask)])
    given, size = np.asarray(mask), spec.size
    if given.shape != (size,):
        raise ValueError(f"an action mask has shape {given.shape}, not ({size},)")
    available: BoolArray = given == 1
    if not (available | (given == 0)).all():
        raise ValueError(f"an action mask has an entry other than 0 and 1: {given.tolist()}")
    if not np.logical_or.reduceat(available, _starts(spec)).all():
        raise ValueError("an action mask permits no action")
    return available


MASK = "action_mask"
"""Key of an agent's action mask in its observation or its info."""
ALONE = ("observation", "observations")
"""Keys of an observation that has no other entry than a mask beside it."""
HINTS = ("mask", "legal", "avail", "valid")
"""Parts of the names that packages give to masks of actions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignAgent:
    """A foreign agent."""

    name: Hashable
    """Its key in the environment's dictionaries."""
    spec: AgentSpec
    observation_space: Space
    """Space of the observation without the mask."""
    action_space: Space
    masked: bool
    """True if its observations hold the mask."""
    alone: str
    """Key of the entry that is the observation; empty: the whole, without the mask."""
    observation: slice
    """Its part of a joint observation."""
    action: slice
    """Its part of a joint action."""

    def vector(self, observation: Any) -> FloatArray:
        """Return the agent's observation as a vector."""
        with naming_agent(self.spec.name):
            if self.alone:
                observation = observation[self.alone]
            elif self.masked:
                observation = {key: observation[key] for key in self.observation_space}  # type: ignore[attr-defined]
            return pack_observation(self.observation_space, observation)

    def available(self, observation: Any, info: Any = None) -> BoolArray:
        """Return the actions that the agent may choose, as a vector."""
        with naming_agent(self.spec.name):
            mask = observation[MASK] if self.masked else (info or {}).get(MASK)
            actions = self.spec.action
            return np.ones(actions.size, dtype=bool) if mask is None else pack_mask(actions, mask)

    def choice(self, joint: FloatArray) -> Any:
        """Return the agent's action in the environment's terms, from the joint action."""
        return unpack_action(self.action_space, joint[self.action])


def foreign_agents(
    names: Sequence[Hashable],
    observations: Sequence[Space],
    actions: Sequence[Space],
    sides: Sequence[str],
) -> list[ForeignAgent]:
    """Return the agents of these spaces, side by side in the packed arrays.

    Raises:
        TypeError: There is no agent, a space is not supported, or an observation has a mask that
            fits no action.
    """
    if not names:
        raise TypeError("it has no agents")
    agents: list[ForeignAgent] = []
    seen = acts = 0
    for name, whole, action, side in zip(names, observations, actions, sides, strict=True):
        with naming_agent(str(name)):
            masked, alone, space = _without_mask(whole, action)
            spec = AgentSpec(
                name=str(name),
                observation_size=int(utils.flatdim(space)),
                action=action_spec(action),
                side=side,
                image=image_of(space),
            )
        agents.append(
            ForeignAgent(
                name=name,
                spec=spec,
                observation_space=space,
                action_space=action,
                masked=masked,
                alone=alone,
                observation=slice(seen, seen + spec.observation_size),
                action=slice(acts, acts + spec.action.size),
            )
        )
        seen, acts = seen + spec.observation_size, acts + spec.action.size
    return agents


LEAST_SIDE = 36
"""Least height and width at which bytes are taken for an image, whatever the order of axes."""


def image_of(space: Space) -> tuple[int, int, int] | None:
    """Return height, width and channels of an image of bytes; None for any other space.

    Raises:
        TypeError: The channels of an image come first, or it has no axis of them.
    """
    if not isinstance(space, Box) or space.dtype != np.uint8 or len(space.shape) not in (2, 3):
        return None
    first, *sides = space.shape
    large = min(sides) >= LEAST_SIDE
    if large and (first < min(sides) if len(sides) == 2 else first >= LEAST_SIDE):
        raise TypeError(
            f"{space} seems to be an image whose axes are not height, width and channels; put the "
            "channels last, with an axis for a single one"
        )
    if len(sides) < 2:
        return None
    height, width, channels = space.shape
    return height, width, channels


def _without_mask(space: Space, action: Space) -> tuple[bool, str, Space]:
    """Split a mask off: whether there is one, the key of what is left alone, and its space."""
    keys = [*space] if isinstance(space, spaces.Dict) else []
    if MASK not in keys:
        if nested := next((key for key in keys_of(space) if key.endswith(f".{MASK}")), ""):
            raise TypeError(f"the mask {nested} lies too deep; {MASK} is a key of the observation")
        return False, "", space
    assert isinstance(space, spaces.Dict)
    spec, own = action_spec(action), utils.flatdim(space[MASK])
    if not isinstance(spec, Continuous) and own != spec.size:
        raise TypeError(
            f"{MASK} has {own} entries, and there are {spec.size} actions; give one entry for "
            "each, or call it by another name"
        )
    rest = {key: space[key] for key in keys if key != MASK}
    if not rest:
        raise TypeError(f"the observation has no entry but {MASK}; add one that can be observed")
    alone = next((key for key in ALONE if [*rest] == [key]), "")
    return True, alone, rest[alone] if alone else spaces.Dict(rest)


def keys_of(space: Space, path: str = "") -> Iterator[str]:
    """Yield the keys of a space, those of spaces within it after a dot."""
    if isinstance(space, spaces.Dict):
        for key, part in space.items():
            yield f"{path}{key}"
            yield from keys_of(part, f"{path}{key}.")
    elif isinstance(space, spaces.Tuple):
        for number, part in enumerate(space):
            yield from keys_of(part, f"{path}{number}.")


def suggesting_masks(keys: Iterable[Any]) -> list[str]:
    """Return the keys whose names suggest masks of actions, other than ``action_mask``."""
    lasts = {key: key.rpartition(".")[2].lower() for key in map(str, keys)}
    return [
        key for key, last in lasts.items() if last != MASK and any(hint in last for hint in HINTS)
    ]


def joint_size(agents: Sequence[ForeignAgent]) -> tuple[int, int]:
    """Return the entries of a joint observation and of a joint action."""
    return agents[-1].observation.stop, agents[-1].action.stop


def all_zero(agents: Sequence[ForeignAgent]) -> FloatArray:
    """Return a joint observation of nothing."""
    return np.zeros(joint_size(agents)[0], dtype=np.float32)
