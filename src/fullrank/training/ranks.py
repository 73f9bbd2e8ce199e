"""Ranks: processes, each with a device of its own, that compute and apply updates as one host.

Every rank holds the algorithm and does the same, each iteration, to other units (SPMD). Units are
divided by agents or by transitions:

- ``agents``: a rank computes all units of its agents and steps their networks; then the ranks
  exchange those that others read, online, and move their targets themselves. No gradient moves.
- ``transitions``: a rank computes the micro-batches that it has of all agents. The ranks add their
  gradients up, and all step all networks, as in data-parallel training.

Sums of updates are exact in float64 (``fullrank.codes.targets``), so that a rank commits the bits
of one process, whatever the division and the order of a reduction.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import torch
from torch import Tensor

from fullrank.algorithms import Algorithm, Problem
from fullrank.algorithms.optimiser import AdamOptimiser
from fullrank.algorithms.roles import ACTING
from fullrank.common.errors import ConfigError
from fullrank.common.types import FloatArray, UnitIndex
from fullrank.networks.parameters import GroupedParameters
from fullrank.training.centralised import Centralised

Split = Literal["agents", "transitions"]


class Wire(Protocol):
    """Collective operations of a group, called by all ranks in one order."""

    rank: int
    """Number of this rank, from 0."""

    def add(self, values: Tensor) -> None:
        """Replace values by their sum over all ranks."""

    def send(self, values: Tensor, *, source: int) -> None:
        """Replace values by those of one rank."""


@dataclass(frozen=True, slots=True)
class Division:
    """The units that each rank computes, and the targets that it then has."""

    units: tuple[tuple[UnitIndex, ...], ...]
    targets: tuple[range, ...]
    summed: bool
    """True if every rank has a share of all targets, of which the ranks make the sum."""


def divide(problem: Problem, ranks: int, split: Split) -> Division:
    """Divide the units of an iteration among ranks.

    Raises:
        ConfigError: There are fewer agents or micro-batches than ranks, or no exact updates.
    """
    if not problem.data.exact:
        raise ConfigError(
            "ranks divide exact updates, and algorithm.data = 'independent' averages samples of "
            "learners' own: use one rank"
        )
    units, target = problem.units, problem.target
    whole = range(len(units) if target is None else len(target))
    if split == "agents":
        if any(len(unit.agents) > 1 for unit in units):
            raise ConfigError("ranks.split = 'agents': agents share networks; use 'transitions'")
        if ranks > len(whole):
            raise ConfigError(
                f"ranks.count = {ranks} exceeds the {len(whole)} agents, which the ranks divide: "
                "use fewer ranks"
            )
        bounds = [rank * len(whole) // ranks for rank in range(ranks + 1)]
        targets = tuple(map(range, bounds, bounds[1:]))
        own = tuple(
            tuple(index for index, unit in enumerate(units) if unit.agents[0] in agents)
            for agents in targets
        )
        return Division(own, targets, summed=False)
    parts = 1 + max(unit.part for unit in units)
    if ranks > parts:
        raise ConfigError(
            f"ranks.count = {ranks} exceeds algorithm.micro_batches = {parts}, which the ranks "
            "divide; raise it, or use ranks.split = 'agents'"
        )
    own = tuple(
        tuple(index for index, unit in enumerate(units) if unit.part * ranks // parts == rank)
        for rank in range(ranks)
    )
    return Division(own, (whole,) * ranks, summed=True)


def received_bytes(problem: Problem, ranks: int, split: Split, *, exact: bool = True) -> float:
    """Return the bytes that a rank receives in an iteration, averaged over the ranks.

    ``transitions``: a ring sends 2 (G - 1) / G of all gradients, in float64 or float32.
    ``agents``: (G - 1) / G of the networks that other agents' updates or actors read, in float32.
    """
    if split == "transitions":
        targets = 1 if problem.target is None else len(problem.target)
        return 2 * (ranks - 1) / ranks * targets * problem.vector_size * (8 if exact else 4)
    shared = shared_roles(problem)
    entries = sum(section.size for section in problem.sections if section.role in shared)
    return (ranks - 1) / ranks * entries * 4


def shared_roles(problem: Problem) -> tuple[str, ...]:
    """Return the roles of networks that are read outside their agent: by others, or to act."""
    read = {
        problem.sections[section].role.removeprefix("target_")
        for unit, needs in zip(problem.units, problem.reads, strict=True)
        for section in needs
        if problem.sections[section].agents != unit.agents
    }
    acting = {section.role for section in problem.sections if section.role in ACTING}
    return tuple(sorted(read | acting))


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A rank's part of the targets of an iteration."""

    updates: FloatArray
    """Its targets, shape (targets, P) float32."""
    digests: Mapping[int, bytes]
    """Digest of each of its targets."""
    reports: Mapping[UnitIndex, bytes]
    """Report of each unit that it computed."""


class Rank:
    """One rank's part of each iteration.

    Args:
        algorithm: Holds all networks; those that other ranks step and this one never reads are
            stale.
        division: Division of the units.
        wire: Joins the ranks.
        seed: The run's seed.

    Raises:
        ConfigError: The algorithm has no networks that are stepped agent by agent.
    """

    def __init__(self, algorithm: Algorithm, division: Division, wire: Wire, *, seed: int) -> None:
        self._algorithm, self._wire = algorithm, wire
        self._units, self._targets = division.units[wire.rank], division.targets[wire.rank]
        self._problem = problem = algorithm.problem
        self._centralised = Centralised(problem, algorithm.gradients, seed=seed)
        self._exchange: Exchange | None = None
        if not division.summed:
            self._exchange = Exchange(algorithm, division.targets)
        self._updates: FloatArray = np.empty((0, problem.vector_size), np.float32)

    def compute(self, batch: FloatArray, *, iteration: int) -> Share:
        """Compute the rank's units, and with the others the targets that it has."""
        sums, reports = self._centralised.sums(
            batch, self._units, targets=self._targets, iteration=iteration
        )
        if self._exchange is None:
            self._wire.add(sums)
        updates, own = self._centralised.rounded(sums, self._targets, batch, iteration=iteration)
        digests = dict(zip(self._targets, own, strict=True))
        self._updates = np.asarray(updates)
        if self._problem.target is None:
            reports = digests
        return Share(updates=self._updates, digests=digests, reports=reports)

    def step(self, updates: FloatArray | None = None) -> Mapping[str, float]:
        """Apply the targets computed last, or given ones, shape (K, P); see ``Optimiser.step``."""
        own = self._updates if updates is None else updates[self._targets.start :]
        if self._exchange is None:
            return self._algorithm.optimiser.step(own)
        return self._exchange.step(own[: len(self._targets)], self._wire)

    def state(self) -> Mapping[str, np.ndarray[Any, Any]]:
        """Return the arrays of a checkpoint for which this rank answers."""
        state = self._algorithm.optimiser.state()
        if self._exchange is None:
            return state if self._wire.rank == 0 else {}
        owned = {str(agent) for agent in self._targets}
        return {
            name: array
            for name, array in state.items()
            if (name.rpartition("/")[2] in owned if "/" in name else self._wire.rank == 0)
        }

    def load(self, state: Mapping[str, np.ndarray[Any, Any]]) -> None:
        """Restore the arrays that all ranks together returned."""
        self._algorithm.optimiser.load(state)


class Exchange:
    """Steps of the agents' own networks, and their exchange among the ranks.

    Args:
        algorithm: Its agents have networks of their own.
        agents: Agents of each rank.

    Raises:
        ConfigError: The optimiser does not step agents one by one.
    """

    def __init__(self, algorithm: Algorithm, agents: Sequence[range]) -> None:
        optimiser, parameters = algorithm.optimiser, algorithm.parameters
        if not isinstance(optimiser, AdamOptimiser) or not isinstance(
            parameters, GroupedParameters
        ):
            raise ConfigError(
                "ranks.split = 'agents' needs an optimiser that steps agents one by one, "
                "AdamOptimiser; use 'transitions'"
            )
        self._optimiser, self._parameters = optimiser, parameters
        self._agents, self._roles = agents, tuple(shared_roles(algorithm.problem))

    def step(self, updates: FloatArray, wire: Wire) -> Mapping[str, float]:
        """Step this rank's agents, then take the others' networks and move their targets.

        Returns:
            Statistics of this rank's agents; see ``AdamOptimiser.step``.

        Raises:
            Unsound: A network is not finite; all ranks have exchanged theirs.
        """
        statistics = self._optimiser.step_of(updates, self._agents[wire.rank])
        for source, agents in enumerate(self._agents):
            with torch.inference_mode():
                parts = [*self._parameters.online(agents, self._roles)]
                packed = torch.cat([part.reshape(-1) for part in parts])
                wire.send(packed, source=source)
                if source == wire.rank:
                    continue
                sent = torch.split(packed, [part.numel() for part in parts])
                for part, values in zip(parts, sent, strict=True):
                    part.copy_(values.view_as(part))
                self._optimiser.follow(agents, self._roles)
        self._optimiser.check(updates)
        return statistics
