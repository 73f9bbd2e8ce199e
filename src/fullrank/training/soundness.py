"""Soundness: updates and rows that are not finite, by name, and with the largest of what led there.

Exact decoding only proves that learners agree; NaN agrees with NaN. Faults of a run's own data are
therefore looked for wherever its host computes or plays: rows before they are stored, updates
before they are applied, parameters and moments after (``GroupedOptimiser.check``).
"""

import math
from collections.abc import Iterable, Iterator

import numpy as np

from fullrank.algorithms.problem import Problem
from fullrank.common.errors import Unsound
from fullrank.common.rows import Rows
from fullrank.common.types import FloatArray, UnitIndex
from fullrank.networks.parameters import EXPONENT
from fullrank.replay.episodes import EpisodeLayout
from fullrank.replay.layout import Layout

REMEDY = (
    "scale observations and rewards to magnitudes around 1, or begin a run with a smaller "
    "algorithm.learning_rate"
)


def is_finite(values: FloatArray) -> bool:
    """Test that no entry is infinite or NaN, usually in one pass that writes nothing."""
    return math.isfinite(np.vdot(values, values)) or bool(np.isfinite(values).all())


def sound_updates(
    computed: Iterable[tuple[UnitIndex, FloatArray]],
    problem: Problem,
    batch: Rows,
    *,
    iteration: int,
) -> Iterator[tuple[UnitIndex, FloatArray]]:
    """Pass the updates of units on.

    Args:
        computed: Units and their updates.
        problem: Names the sections of an update.
        batch: The minibatch that they were computed from.
        iteration: Number of the iteration.

    Raises:
        Unsound: An update is not finite.
    """
    for unit, update in computed:
        if not is_finite(update):
            raise unsound(unit, update, problem, batch, iteration=iteration)
        yield unit, update


def unsound(
    unit: UnitIndex, update: FloatArray, problem: Problem, batch: Rows, *, iteration: int
) -> Unsound:
    """Return the error of an update that is not finite; see ``sound_updates``."""
    entry = int(np.argmin(np.isfinite(update)))
    section = _section(problem, unit, entry)
    return Unsound(
        f"iteration {iteration}: the update of unit {unit} has an entry of "
        f"{update[entry]:g}, in {section}{_led_by(np.asarray(batch), problem.layout)}: {REMEDY}"
    )


def _section(problem: Problem, unit: UnitIndex, entry: int) -> str:
    """Name the network that an entry of a unit's update belongs to."""
    agents = problem.units[unit].agents
    shared = all(agents == other.agents for other in problem.units)
    whose = "" if shared else f" of agent {', '.join(map(str, agents))}"
    for section in problem.sections:
        is_trained = not section.role.startswith("target_") and section.role != EXPONENT
        if section.agents == agents and is_trained:
            if entry < section.size:
                return f"the {section.role} network{whose}"
            entry -= section.size
    return "its statistics"


def check_rows(rows: FloatArray, layout: Layout | EpisodeLayout | None, *, what: str) -> None:
    """Check rows that were played before they are stored.

    Args:
        rows: Packed rows, shape (n, row_size).
        layout: Columns of a row, if they are known.
        what: Collection that played them, which opens the message.

    Raises:
        Unsound: A value is not finite.
    """
    if is_finite(rows):
        return
    row, entry = np.argwhere(~np.isfinite(rows))[0].tolist()
    place = f"entry {entry}" if layout is None else layout.place_of(entry)
    raise Unsound(
        f"{what}: {place} in row {row} is {rows[row, entry]:g}{_led_by(rows, layout)}: {REMEDY}"
    )


def _led_by(rows: FloatArray, layout: Layout | EpisodeLayout | None) -> str:
    """Name the largest finite observation and reward in rows, with their places."""
    if layout is None or not len(rows):
        return ""
    sizes = np.where(np.isfinite(rows), np.abs(rows), 0.0)
    rewards = np.arange(layout.row_size)[layout.reward]
    found = []
    for columns in (np.arange(layout.row_size)[layout.observation], np.atleast_1d(rewards)):
        row, number = np.unravel_index(sizes[:, columns].argmax(), (len(rows), len(columns)))
        column = int(columns[number])
        found.append(f"{rows[row, column]:.1e} as {layout.place_of(column)} in row {row}")
    return f"; the largest observation is {found[0]}, the largest reward {found[1]}"
