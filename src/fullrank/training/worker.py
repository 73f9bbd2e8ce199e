"""A learner's computation of coded vectors from rows of C and a minibatch; no network, no clock."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fullrank.algorithms import Algorithm, Gradients, Problem
from fullrank.algorithms.base import layout_of
from fullrank.codes import Code, support
from fullrank.common.seeding import stream
from fullrank.common.types import EncodedVector, FloatArray, UnitIndex, Vector
from fullrank.common.updates import add_scaled, padded, unit_digest
from fullrank.environments.base import AgentSpec
from fullrank.replay.layout import Layout
from fullrank.rounds.reports import reporter_of
from fullrank.training.soundness import sound_updates


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignedRow:
    """A row of C assigned to a learner: its units and their coefficients."""

    row: int
    units: tuple[UnitIndex, ...]
    coefficients: tuple[float, ...]

    @classmethod
    def of(cls, row: int, coefficients: Vector) -> "AssignedRow":
        """Build a row from the coefficients of all units, shape (M,)."""
        units = tuple(support(coefficients))
        return cls(row=row, units=units, coefficients=tuple(map(float, coefficients[list(units)])))

    @property
    def is_unit(self) -> bool:
        """True if its vector is the update of one unit as it is."""
        return self.coefficients == (1.0,)


def assigned_rows(code: Code, learner: int) -> list[AssignedRow]:
    """The rows of one learner's share of a code; empty ones are left out."""
    first = learner * code.rows_per_learner
    return [
        AssignedRow.of(row, coefficients)
        for row, coefficients in enumerate(code.blocks[learner], start=first)
        if coefficients.any()
    ]


class ComputedUnit(NamedTuple):
    """A unit that is computed, and the rows that it completes."""

    unit: UnitIndex
    digest: bytes
    coded: Mapping[int, EncodedVector]
    """Coded vector of each completed row, shape (P,)."""


class Worker:
    """Compute coded vectors on the calling thread, until ``check_cancelled`` raises.

    Args:
        problem: Sizes and data mode.
        gradients: Gradients at the broadcast parameters.
        seed: The run's seed, the key of linear hashes.
    """

    def __init__(self, problem: Problem, gradients: Gradients, *, seed: int) -> None:
        self._problem, self._gradients = problem, gradients
        self._report_of = reporter_of(problem, seed=seed)

    def compute(
        self,
        rows: Sequence[AssignedRow],
        batch: FloatArray,
        *,
        iteration: int,
        check_cancelled: Callable[[], None] = lambda: None,
    ) -> Iterator[ComputedUnit]:
        """Compute the rows' units, those of the first row first, and combine them.

        Yields:
            Each unit as soon as it is computed; the last one completes the last row.

        Raises:
            Cancelled: ``check_cancelled`` raised it.
        """
        awaited = {row.row: dict(zip(row.units, row.coefficients, strict=True)) for row in rows}
        length = self._problem.vector_size
        coded = {row.row: np.zeros(length) for row in rows if not row.is_unit}
        for sharing, unit, update in self._updates(rows, batch, iteration, check_cancelled):
            digest = self._report_of(update)
            complete: dict[int, EncodedVector] = {}
            for row in sharing:
                coefficient = awaited[row].pop(unit, None)
                if coefficient is None:
                    continue
                if row in coded:
                    add_scaled(coded[row], coefficient, update)
                if not awaited[row]:
                    complete[row] = coded.pop(row) if row in coded else padded(update, length)
            yield ComputedUnit(unit, digest, complete)

    def _updates(
        self,
        rows: Sequence[AssignedRow],
        batch: FloatArray,
        iteration: int,
        check_cancelled: Callable[[], None],
    ) -> Iterator[tuple[Sequence[int], UnitIndex, FloatArray]]:
        """Yield every update with the rows that share it: all, unless data are independent."""
        calls: list[tuple[list[int], Sequence[UnitIndex], int | None]]
        calls = [([row.row], row.units, row.row) for row in rows]
        if self._problem.data.exact:
            units = list(dict.fromkeys(unit for row in rows for unit in row.units))
            calls = [([row.row for row in rows], units, None)]
        for sharing, own, number in calls:
            for unit, update in self._gradients.compute(
                batch, own, iteration=iteration, row=number, check_cancelled=check_cancelled
            ):
                yield sharing, unit, update


class SharedGradients:
    """Compute every unit of an iteration once, for simulated learners in one process.

    Args:
        gradients: Computes the updates.
        problem: Sizes of the updates.
        frozen: Units that are not trained: their updates are zero.
        remember: True to keep an update for the other learners that hold the unit.
    """

    def __init__(
        self,
        gradients: Gradients,
        problem: Problem,
        *,
        frozen: Collection[UnitIndex] = (),
        remember: bool,
    ) -> None:
        self._gradients, self._problem = gradients, problem
        self._frozen, self._remember = frozenset(frozen), remember
        self._iteration = -1
        self._updates: dict[UnitIndex, FloatArray] = {}

    def compute(
        self, batch: FloatArray, units: Sequence[UnitIndex], *, iteration: int, **call: Any
    ) -> Iterator[tuple[UnitIndex, FloatArray]]:
        """Compute the units, reusing known updates; see ``Gradients.compute``.

        Raises:
            Unsound: An update is not finite.
        """
        if not self._remember or iteration != self._iteration:
            self._updates = {
                unit: np.zeros(self._problem.unit_sizes[unit], np.float32) for unit in self._frozen
            }
        self._iteration = iteration
        missing = [unit for unit in units if unit not in self._updates]
        computed = self._gradients.compute(batch, missing, iteration=iteration, **call)
        self._updates.update(sound_updates(computed, self._problem, batch, iteration=iteration))
        return ((unit, self._updates[unit]) for unit in units)

    def fingerprint(self) -> str:
        """Return the fingerprint of the wrapped gradients; see ``Gradients.fingerprint``."""
        return self._gradients.fingerprint()


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """Digests of this process's updates on the run's shapes."""

    digests: tuple[bytes, ...]
    """Digest of each unit's update."""
    stable: bool
    """True if each unit's bits were the same for all combinations of units."""


def probe_of(algorithm: Algorithm, agents: Sequence[AgentSpec], *, seed: int) -> Probe:
    """Probe an algorithm at its initial parameters, before any section is written.

    Args:
        algorithm: Algorithm of the run.
        agents: Specifications of the environment's agents, in order.
        seed: Seed of the run.
    """
    problem = algorithm.problem
    layout = layout_of(agents, masked=problem.masked)
    return probe(problem, algorithm.gradients, probe_batch(problem, layout, seed=seed))


def probe_batch(problem: Problem, layout: Layout, *, seed: int) -> FloatArray:
    """Make the synthetic minibatch of a run's probe, in which every agent acts.

    Args:
        problem: Units of the run.
        layout: Layout of a transition.
        seed: Seed of the run.
    """
    generator, size = stream(seed, "probe"), problem.data.batch_size
    return (problem.episodes or layout).synthetic(generator, size)


def probe(problem: Problem, gradients: Gradients, batch: FloatArray) -> Probe:
    """Compute units at widths 1, 2, 3 and all, and at several positions.

    Args:
        problem: Units of the run.
        gradients: Gradients at the initial parameters, before any section is written.
        batch: Synthetic transitions, the same for every learner.
    """
    count = len(problem.units)
    first, middle, last = 0, count // 2, count - 1
    chosen = [range(count), {first}, {last}, {first, last}, {first, middle, last}]
    digests: dict[UnitIndex, set[bytes]] = {unit: set() for unit in range(count)}
    for units in chosen:
        for unit, update in gradients.compute(batch, sorted(units), iteration=0):
            digests[unit].add(unit_digest(update))
    return Probe(
        digests=tuple(min(digests[unit]) for unit in range(count)),
        stable=all(len(variants) == 1 for variants in digests.values()),
    )
