"""Settings of collection: ``[collect]``, ``[collectors]`` and ``[containers]``."""

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from fullrank.common.types import Local
from fullrank.config.values import Copies, Count, Duration, Finite, NonNegative


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectSettings:
    """Collection of transitions."""

    steps: Count = 1
    """Steps of each copy per iteration; by default 25 of PettingZoo's and gymnasium's environments.
    Where an iteration ends within episodes of one length, their starts are spread evenly. Ignored
    by algorithms that learn from whole episodes: every copy plays one in each iteration."""
    warmup: NonNegative = 25_600
    """Number of transitions collected before the first iteration; by default 2,000 for algorithms
    that learn from whole episodes, and of PettingZoo's and gymnasium's environments."""
    warmup_copies: Copies = 64
    """Number of copies that are stepped together during the warm-up; by default 8 where 2,000 is
    the default of ``warmup``."""
    lag: Annotated[int, Field(ge=0, le=64)] = 0
    """Number of iterations that are collected ahead, while updates run: iteration i is collected
    with the policies of iteration i - lag. More than 1 needs ``mode = "keyed"``."""
    mode: Literal["inline", "keyed", "free"] = "inline"
    """``inline``: the controller steps all copies together. ``keyed``: every copy plays one whole
    episode in each iteration, in blocks that follow from (seed, iteration, block) and the policies
    alone, so that collectors on any machines play them without a change of a bit. ``free``:
    collectors play whole episodes all the time, with the newest policies, and their blocks are
    accepted when they come; an iteration begins once ``environment.copies`` more episodes are."""
    block: Count = 8
    """``keyed`` and ``free``: number of copies that are stepped together in one block."""
    warmup_episodes: Count = 64
    """``free``: number of episodes before the first iteration, in place of ``warmup``."""
    window: Count = 64
    """``free``: number of episodes by which playing may run ahead of the updates; then it waits."""
    max_lag: NonNegative = 50
    """``free``: largest age, in iterations, of the policies with which an episode began when it can
    first be drawn; a block of older ones is dropped and counted."""


PACING = ("warmup_episodes", "window", "max_lag")
"""Settings of [collect] that decide when episodes and updates of free collection wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectorsSettings:
    """Collectors: processes that play episodes in place of the controller."""

    count: NonNegative = 0
    """Number of collectors that ``fullrank train`` starts; with any, ``collect.mode`` is ``keyed``
    by default, and the controller plays nothing itself."""
    processes: Local[bool] = False
    """Play each copy of a PettingZoo or gymnasium environment in a process of its own: the copies
    of a block step at the same time, and those that are ready act without waiting for others. The
    bits are the same."""
    containers: bool = False
    """Collectors are containers, with the settings of [containers]; needs ``collect.mode =
    "free"`` and an algorithm that learns from whole episodes. Updates no longer wait for episodes
    once there are ``collect.warmup_episodes``, nor episodes for updates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerSettings:
    """Collectors as containers of [CMARL]; the defaults are those of the paper and its program."""

    learn: bool = True
    """Learn a head in each container, and play with it; false: play with the policy of the run."""
    low: Finite = 0.0
    """Least return of an episode, L of its priority."""
    high: Finite = 20.0
    """Greatest return of an episode, H of its priority."""
    batch_size: Count = 64
    """Number of episodes in a container's minibatch."""
    every_s: Duration = 30.0
    """Time between two trunks that a container takes, and between two heads that it publishes,
    seconds."""


def refusal_of(collect: CollectSettings, collectors: CollectorsSettings) -> str:
    """Why a mode does not go with the other settings of collection; empty if it does."""
    lag, count = f"collect.lag = {collect.lag}", f"collectors.count = {collectors.count}"
    containers = (
        "collectors.containers hand over a share of their episodes, when they have played them: "
        f"set collect.mode = 'free', not {collect.mode!r}"
    )
    refusals = {
        "inline": {
            f"{count} needs collect.mode = 'keyed' or 'free'": collectors.count > 0,
            f"{lag} needs collect.mode = 'keyed'; inline collection is at most 1 ahead": (
                collect.lag > 1
            ),
            containers: collectors.containers,
        },
        "keyed": {containers: collectors.containers},
        "free": {
            "collect.mode = 'free' needs collectors, which play: set collectors.count": (
                not collectors.count
            ),
            f"{lag} needs collect.mode = 'keyed'; in free collection collect.max_lag bounds it": (
                collect.lag > 0
            ),
        },
    }
    return next((reason for reason, holds in refusals[collect.mode].items() if holds), "")
