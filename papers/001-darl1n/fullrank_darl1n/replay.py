"""DARL1N with the paper's replay D_i, beside ``darl1n``, which learns from fresh transitions alone.

[DARL1N], Algorithm 1, lines 5 to 10. In each iteration the holder of unit i adds transitions of
agent i and its neighbours to D_i, and computes u_i from B draws of D_i; target actions are stored
with a transition, as in the authors' code. D_i is a function of seed, agent and the policies of all
iterations so far: holders that have computed unit i in each of them hold the same D_i. With
``independent`` data every holder has its own, D_ji.

A holder that missed an iteration would have another D_i, and is refused: the mode is for runs in
one process, and not for learners that come and go.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fullrank.algorithms.base import EnvironmentSpec, register
from fullrank.algorithms.darl1n import DARL1N
from fullrank.algorithms.problem import DataMode
from fullrank.common.errors import ConfigError
from fullrank.common.seeding import stream
from fullrank.common.types import IntArray, UnitIndex
from fullrank.environments.neighbourhood import Samples
from fullrank.networks.fused.darl1n import TeamPolicies, UnitSampler
from fullrank_darl1n.published import REPLAY


@register(REPLAY)
@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedDARL1N(DARL1N):
    """DARL1N whose B transitions are draws from a replay of each unit."""

    fresh: int = 100
    """New transitions of each agent in an iteration: four episodes of 25 steps, as the authors
    collect for DARL1N and for MADDPG."""
    first: int = 51
    """Times ``fresh`` transitions with which a replay begins, as many as those of the baselines."""

    def data_mode(self) -> DataMode:
        """Return the data mode: learners collect ``fresh`` transitions themselves."""
        return replace(DARL1N.data_mode(self), agent_steps=self.fresh)

    @property
    def hand_written(self) -> bool:
        """Return True: the passes are those of DARL1N, on other transitions."""
        return type(self) is ReplayedDARL1N

    def sampler(
        self, environment: EnvironmentSpec, policies: TeamPolicies, *, seed: int
    ) -> UnitSampler:
        """Build what draws from replays."""
        collect = DARL1N.sampler(
            replace(self, batch_size=self.fresh), environment, policies, seed=seed
        )
        return ReplaySampler(collect, size=self.batch_size, first=self.first, seed=seed)


class UnitReplay:
    """The transitions of a unit.

    Attributes:
        iterations: Iterations whose transitions it holds.
    """

    def __init__(self) -> None:
        self.iterations = self._size = 0
        self._kept: Samples | None = None

    def append(self, samples: Samples) -> None:
        """Add transitions."""
        begin, self._size = self._size, self._size + len(samples.reward)
        kept = samples if self._kept is None else self._kept
        if self._kept is None or self._size > len(kept.reward):
            kept = _each(kept, lambda part: np.resize(part, (2 * self._size, *part.shape[1:])))
        new = slice(begin, self._size)
        kept.seen[new], kept.reward[new] = samples.seen, samples.reward
        kept.seen_next[new] = samples.seen_next
        self._kept = kept

    def draw(self, size: int, generator: np.random.Generator) -> Samples:
        """Draw transitions uniformly, with replacement."""
        assert self._kept is not None
        places: IntArray = generator.integers(self._size, size=size)
        return _each(self._kept, lambda part: part[places])


def _each(samples: Samples, of: Callable[[NDArray[Any]], NDArray[Any]]) -> Samples:
    return Samples(of(samples.seen), of(samples.reward), of(samples.seen_next))


class ReplaySampler:
    """Collects transitions into the replay of a unit, and draws from it.

    Args:
        collect: Collects the new transitions.
        size: B, the transitions of an update.
        first: Collections with which a replay begins.
        seed: The run's seed.
    """

    def __init__(self, collect: UnitSampler, *, size: int, first: int, seed: int) -> None:
        self._collect, self._size, self._first, self._seed = collect, size, first, seed
        self._replays: dict[tuple[int, ...], UnitReplay] = {}

    def __call__(self, agent: UnitIndex, key: tuple[int, ...]) -> Samples:
        """Return the draws of an iteration, the same ones each time it is asked for.

        Raises:
            ConfigError: The replay lacks an iteration.
        """
        iteration, *row = key
        replay = self._replays.setdefault((agent, *row), UnitReplay())
        if iteration == replay.iterations:
            for part in range(self._first if iteration == 0 else 0):
                replay.append(self._collect(agent, (*key, part)))
            replay.append(self._collect(agent, key))
            replay.iterations += 1
        elif iteration != replay.iterations - 1:
            raise ConfigError(
                f"the replay of unit {agent} holds iterations up to {replay.iterations - 1} and is "
                f"asked for {iteration}: {REPLAY} trains in one process, from the start"
            )
        return replay.draw(self._size, stream(self._seed, "unit_replay", *key, agent))
