"""Player of blocks: one whole episode in each copy, keyed, with the parameters of one version."""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from traceback import extract_tb
from typing import Any, NamedTuple

import numpy as np
from blake3 import blake3

from fullrank.algorithms import Algorithm
from fullrank.algorithms.base import layout_of
from fullrank.algorithms.roles import ACTING, Annealed, Memory, Player
from fullrank.common.errors import EnvironmentFailed, FullrankError
from fullrank.common.seeding import derive
from fullrank.common.types import FloatArray
from fullrank.common.updates import DIGEST_BYTES
from fullrank.environments import Environment
from fullrank.environments.capabilities import doing, horizon_of
from fullrank.environments.instances import Instances
from fullrank.environments.processes import EnvironmentProcess
from fullrank.training.blocks import BlockKey, BlockPlan
from fullrank.training.episodes import Outcomes
from fullrank.training.evaluation import AS_PAID, RewardScale, reward_scale
from fullrank.training.soundness import check_rows
from fullrank.training.whole_episodes import (
    EpisodeRound,
    ReadyFirst,
    TransitionRound,
    WholeEpisodes,
)

BLOCK_STEPS = 2**32
"""Exploration steps of block b are numbered from b times this, which keys it apart."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Publication:
    """The parameters of one version, as far as playing reads them."""

    version: int
    """Number of updates that they have taken."""
    sections: Mapping[int, FloatArray]
    """Parameters of the networks that select actions or derive columns, by section."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlayTerms:
    """All that a block follows from, besides the run's configuration."""

    publication: Publication
    env_steps: int
    """Environment steps that count for the exploration schedule."""


class PlayedBlock(NamedTuple):
    """Episodes of one block, copy by copy."""

    rows: FloatArray
    """Packed rows, shape (rows, row_size)."""
    outcomes: Outcomes
    """Outcome of each copy's episode."""

    @property
    def episodes(self) -> list[FloatArray]:
        """Return the rows of each copy's episode."""
        lengths = self.outcomes.lengths
        last = (len(self.rows) - self.outcomes.env_steps) // len(lengths)  # rows without a step
        return np.split(self.rows, np.cumsum(lengths + last)[:-1])

    @property
    def digest(self) -> bytes:
        """Hash the bits of all arrays."""
        hasher = blake3()
        for array in (self.rows, *self.outcomes):
            hasher.update(f"{array.dtype.str} {array.shape}".encode())
            hasher.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        return hasher.digest(DIGEST_BYTES)


def acting_sections(algorithm: Algorithm) -> list[int]:
    """Return the ids of the sections whose networks select actions or derive columns."""
    problem = algorithm.problem
    return [
        section.id
        for section in problem.sections
        if section.role in ACTING or section.id in problem.prepared_by
    ]


def published(algorithm: Algorithm, version: int) -> Publication:
    """Return a copy of the current parameters that playing reads, which are of ``version``."""
    parameters = algorithm.parameters
    sections = {section: parameters.view(section).copy() for section in acting_sections(algorithm)}
    return Publication(version=version, sections=sections)


class _PlayerRaised(Exception):
    """An algorithm's player raised: no fault of the environment."""

    def __init__(self, error: Exception) -> None:
        self.error = error


class _Guarded:
    """A player whose errors are told from those of the environment."""

    def __init__(self, player: Player) -> None:
        self._player = player
        self.memory, self.act_greedily = player.memory, player.act_greedily

    def act(self, *inputs: Any, **named: Any) -> tuple[FloatArray, Memory]:
        """Return exploring joint actions; see ``Player.act``."""
        try:
            return self._player.act(*inputs, **named)
        except Exception as error:
            raise _PlayerRaised(error) from error


class BlockPlayer:
    """Plays any block of a run, with parameters of its own.

    Args:
        make_environment: Makes an environment with the given number of copies.
        algorithm: Its parameters are overwritten by those of each block.
        plan: Blocks of an iteration.
        seed: The run's seed.
        start_copy: Starts a copy in a process of its own; None: this thread steps all copies.
        environment: Plays the blocks of as many copies; closed with those that are made.
    """

    def __init__(
        self,
        make_environment: Callable[[int], Environment],
        algorithm: Algorithm,
        plan: BlockPlan,
        *,
        seed: int,
        start_copy: Callable[[], EnvironmentProcess] | None = None,
        environment: Environment | None = None,
    ) -> None:
        self._make_environment, self._algorithm = make_environment, algorithm
        self._plan, self._seed, self._start_copy = plan, seed, start_copy
        self._environments = {} if environment is None else {environment.copies: environment}
        self._processes: list[EnvironmentProcess] = []
        self._loaded: Publication | None = None

    @cached_property
    def _scale(self) -> RewardScale:
        if self._start_copy is not None:
            return AS_PAID  # an adapted environment states no horizon
        horizon = horizon_of(self._environment(self._plan.copies_of(0)))
        return reward_scale(self._make_environment, horizon=horizon, seed=self._seed)

    def _environment(self, copies: range) -> Environment:
        """Return the environment of a block; those of equal size share one."""
        if len(copies) not in self._environments:
            self._environments[len(copies)] = self._make_environment(len(copies))
        return self._environments[len(copies)]

    def name(self, key: BlockKey) -> str:
        """Name a block for messages, with all that reproduces it."""
        return f"{self._plan.named(key)} of seed {self._seed}"

    def play(self, key: BlockKey, play: PlayTerms) -> PlayedBlock:
        """Play one whole episode in each copy of a block.

        Episode i of copy c starts from the seed derived from (seed, "episode", c, i); the
        exploration of block b in iteration i is keyed by (seed, i, b * ``BLOCK_STEPS`` + step).

        Raises:
            EnvironmentFailed: The environment raised, or returned arrays of other shapes or values
                that are not finite; the next block has another instance. Or the algorithm raised.
        """
        copies = self._plan.copies_of(key.block)
        seeds = [derive(self._seed, "episode", copy, key.iteration) for copy in copies]
        self._load(play.publication)
        if isinstance(actor := self._algorithm.actor, Annealed):
            actor.anneal(play.env_steps)
        round_: WholeEpisodes | ReadyFirst | None = None
        try:
            first = key.block * BLOCK_STEPS
            if self._start_copy is None:
                environment = self._environment(copies)
                if isinstance(environment, Instances):
                    environment.first_copy = copies.start
                round_ = self._round(environment)
                round_.play(seeds, iteration=key.iteration, first_step=first)
            else:
                processes = self._started(len(copies), self._start_copy)
                round_ = ReadyFirst(processes, _Guarded(actor), self._round)
                round_.play(seeds, copies=copies, iteration=key.iteration, first_step=first)
            played = PlayedBlock(round_.rows, round_.outcomes)
            try:
                self._derive(played.rows)
            except Exception as error:
                raise _PlayerRaised(error) from error
            check_rows(played.rows, self._algorithm.problem.layout, what="its episodes")
        except Exception as error:
            self.close()
            steps = 0 if round_ is None else round_.steps
            what = str(error) if isinstance(error, FullrankError) else repr(error)
            if isinstance(error, _PlayerRaised):
                place = extract_tb(error.error.__traceback__)[-1]
                what = f"the algorithm raised {error.error!r} in {place.filename}:{place.lineno}"
            raise EnvironmentFailed(f"{self.name(key)}, step {steps}: {what}") from error
        return played

    def rederived(self, rows: FloatArray, publication: Publication) -> FloatArray:
        """Return rows of whole episodes with their columns derived anew.

        Args:
            rows: Rows, of an algorithm that derives columns.
            publication: The parameters that played them.
        """
        layout = self._algorithm.problem.episodes
        assert layout is not None  # derived columns are an episode's
        self._load(publication)
        derived = rows.copy()
        derived[:, layout.entries.stop :] = 0.0
        self._derive(derived)
        return derived

    def _derive(self, rows: FloatArray) -> None:
        """Fill the derived columns of whole episodes, whose bits do not depend on the blocks."""
        if self._algorithm.prepare is not None:
            self._algorithm.prepare(rows)

    def _started(
        self, copies: int, start_copy: Callable[[], EnvironmentProcess]
    ) -> list[EnvironmentProcess]:
        """Return as many processes, which blocks of all sizes share."""
        fresh = [start_copy() for _ in range(copies - len(self._processes))]
        self._processes += fresh  # from here on another thread may end them
        for process in fresh:
            process.begin()
        return self._processes[:copies]

    def _round(self, environment: Environment) -> WholeEpisodes:
        problem, actor = self._algorithm.problem, _Guarded(self._algorithm.actor)
        if problem.episodes is not None:
            return EpisodeRound(environment, actor, problem.episodes, self._scale)
        layout = layout_of(environment.agents, masked=problem.masked)
        return TransitionRound(environment, actor, layout)

    def _load(self, publication: Publication) -> None:
        """Take the parameters of a block."""
        parameters = self._algorithm.parameters
        if self._loaded is not publication:
            for section, values in publication.sections.items():
                parameters.view(section)[:] = values
            parameters.written()
            self._loaded = publication

    def doing(self) -> str:
        """Name the copy whose environment is called now, its step and seed; any thread may ask."""
        return doing([*self._environments.values()])

    def interrupt(self, reason: str) -> bool:
        """End the processes of the copies, so that a block that hangs fails, with this reason.

        Any thread may call it; returns whether there are any.
        """
        processes = [*self._processes]
        for process in processes:
            process.end(reason)
        return bool(processes)

    def close(self) -> None:
        """Close the environments; the next block makes new ones."""
        environments = [*self._environments.values(), *self._processes]
        self._environments.clear()
        self._processes = []
        with ExitStack() as stack:  # which closes all, though one fails
            for environment in environments:
                stack.callback(environment.close)
