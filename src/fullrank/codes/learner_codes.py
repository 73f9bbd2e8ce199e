"""Codes of any number of learners: one row for each, or several where learners are few.

Below the number of rows that a family needs for M units, N learners share a smaller code of N rows
and M' < M columns. The units are spread over its columns, each with k places, and row p of learner
n combines the units at place p:

    y_np = sum_m c_(n+p)m u_mp,    u_mp the unit at place p of column m, n + p modulo N.

For each p the learners hold the smaller code, turned by p so that all compute about as many units.
The code therefore tolerates the loss of as many learners as the smaller one does of rows. Units
that T asks for only as a sum share a place, which saves rows.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np

from fullrank.codes.base import Code, CodeFamily, dyadic
from fullrank.codes.targets import each_unit, rank_of, sum_of_units
from fullrank.common.errors import CodeError
from fullrank.common.types import IntArray, Matrix


def code_for_learners(
    family: CodeFamily, *, learners: int, units: int, seed: int = 0, target: Matrix | None = None
) -> Code:
    """The code of N learners, each with a row of its own if the family has such a code.

    A family that sets its tolerance keeps it for any N > s. The number of rows follows from N:
    those of learners beyond the largest code are empty, and with fewer learners than the family
    needs rows, each holds as few as determine the target.

    Args:
        family: The code with its parameters.
        learners: N.
        units: M.
        seed: Keys the draws of random constructions.
        target: T, shape (K, M); by default every unit.

    Raises:
        CodeError: N <= s, or the family has no code of M units.

    >>> from fullrank.codes import codes
    >>> code = code_for_learners(codes.build("cyclic", tolerance=1), learners=3, units=4)
    >>> code.rows_per_learner, code.tolerance, code.load.tolist()
    (2, 1, [3, 3, 2])
    """
    asked = tolerance_asked_of(family)
    if learners <= asked:
        raise CodeError(
            f"the loss of {asked} learners is tolerated by {asked + 1} or more: {learners}"
        )
    target = each_unit(units) if target is None else target
    refused: CodeError | None = None
    for rows in range(learners, rank_of(target) - 1, -1):
        try:
            code = family.recovering(target, rows=rows, seed=seed)
        except CodeError as error:
            refused = refused or error
        else:
            return _in_blocks(code, learners)
    for base in _smaller_codes(family, learners=learners, units=units, seed=seed):
        try:
            return _spread(base, target)
        except CodeError:
            continue
    try:
        rows = family.rows_to_recover(target)
        code = _in_blocks(family.recovering(target, rows=rows, seed=seed), learners)
    except CodeError as error:
        raise refused or error from None
    if code.tolerance < asked:
        raise refused or CodeError(f"no {code.name} code of {learners} learners loses {asked}")
    return code


def tolerance_asked_of(family: CodeFamily) -> int:
    """The tolerance s that the family's parameters set; 0 if the sizes or a draw settle it."""
    least = family.tolerating(0) or {}
    return max((getattr(family, key) - value for key, value in least.items()), default=0)


def _in_blocks(code: Code, learners: int) -> Code:
    """The same rows in equal blocks of consecutive ones, the last of which are filled by zeros."""
    width = math.ceil(code.rows / learners)
    empty = np.zeros((learners * width - code.rows, code.units))
    if width == 1 and not len(empty):
        return code
    return replace(
        code,
        matrix=np.vstack([code.matrix, empty]),
        rows_per_learner=width,
        known_tolerance=code.known_tolerance if width == 1 else None,
    )


def _smaller_codes(family: CodeFamily, *, learners: int, units: int, seed: int) -> Iterator[Code]:
    """Codes of N rows and at most M columns: widest first, those that survive losses before all."""
    sizes = range(min(units, learners), 0, -1)
    for columns in sizes:
        with suppress(CodeError):
            if (rows := family.rows_for(columns)) <= learners:
                yield from _built(family, (learners, rows), columns, seed=seed, learners=learners)
    for columns in sizes:
        yield from _built(family, (learners,), columns, seed=seed, learners=learners)


def _built(
    family: CodeFamily, sizes: Sequence[int], columns: int, *, seed: int, learners: int
) -> Iterator[Code]:
    """The first code that exists among several numbers of rows, none of them above N."""
    for rows in sizes:
        with suppress(CodeError):
            code = family.build(rows=rows, units=columns, seed=seed)
            yield _in_blocks(code, learners)
            return


def _spread(base: Code, target: Matrix) -> Code:
    """The code whose columns are spread over the units of T, at several places where needed.

    Raises:
        CodeError: The smaller code does not recover its columns.
    """
    units, columns = target.shape[1], base.units
    kinds, kind = np.unique(target, axis=1, return_inverse=True)
    kind = kind.reshape(-1)
    column = np.arange(units) * columns // units
    place = np.arange(units) - np.searchsorted(column, column)
    inner = each_unit(columns)
    largest = int(np.bincount(kind).max())
    if kinds.shape[1] <= place.max() + 1 and columns <= largest:
        column, place, inner = _evenly(kind, columns), kind, sum_of_units(columns)
    base = base.recovering(inner)
    places = int(place.max()) + 1
    matrix = np.zeros((base.rows, places, units))
    turned = (np.arange(base.rows)[:, None] + place) % base.rows  # evens out the load
    matrix[:, place, np.arange(units)] = base.matrix[turned, column]
    flat = matrix.reshape(-1, units)
    exact = dyadic(flat) if len(inner) < columns else flat  # sums of updates are larger
    return Code(
        name=base.name,
        matrix=exact,
        known_tolerance=base.known_tolerance if np.array_equal(exact, flat) else None,
        target=target,
        rows_per_learner=places,
    )


def _evenly(kind: IntArray, columns: int) -> IntArray:
    """A column of each unit, such that those of one kind are spread evenly over all columns."""
    column = np.empty_like(kind)
    for one in np.unique(kind):
        members = np.flatnonzero(kind == one)
        column[members] = np.arange(len(members)) * columns // len(members)
    return column
