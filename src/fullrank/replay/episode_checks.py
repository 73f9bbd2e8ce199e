"""Checks of one episode before it is stored: the first field that is wrong, by name."""

import numpy as np

from fullrank.common.errors import InvalidContribution
from fullrank.common.types import FloatArray
from fullrank.replay.episodes import NO_ACTION, EpisodeLayout


def check_finite(rows: FloatArray) -> None:
    """Raise ``InvalidContribution`` if an entry of the rows is not finite."""
    if not np.isfinite(rows).all():
        row, entry = np.argwhere(~np.isfinite(rows))[0]
        raise InvalidContribution(
            f"rows[{row}][{entry}] is {rows[row, entry]}, which is not finite"
        )


def check_episode(rows: FloatArray, layout: EpisodeLayout) -> None:
    """Check that rows are one whole episode that could have been played.

    Args:
        rows: Finite packed steps, shape (steps + 1, row_size or more).
        layout: Columns of a row.

    Raises:
        InvalidContribution: They are not; the message opens with the field.
    """
    steps = len(rows) - 1
    lengths, terminated = rows[:, layout.length], rows[:, layout.terminated]
    if steps < 1 or lengths[-1] != steps:
        raise InvalidContribution(f"length is {lengths[-1]:g} in the last row, after {steps} steps")
    if lengths[:-1].any():
        row = int(np.flatnonzero(lengths)[0])
        raise InvalidContribution(
            f"length is {lengths[row]:g} in row {row}: the episode ends in the middle"
        )
    if terminated[:-2].any() or terminated[-1] or terminated[-2] not in (0.0, 1.0):
        raise InvalidContribution("terminated is not 0, or 1 in the last step")
    _check_actions(rows[:, layout.available], rows[:, layout.action], layout)


def _check_actions(available: FloatArray, action: FloatArray, layout: EpisodeLayout) -> None:
    """Check that each agent took an action that it had, and none if it had none."""
    if not np.isin(available, (0.0, 1.0)).all():
        raise InvalidContribution("available has an entry other than 0 and 1")
    if action[-1].any():
        raise InvalidContribution("action is not 0 in the last row, which has no step")
    sizes = np.array(layout.action_sizes)
    taken, starts = action[:-1], np.cumsum(sizes) - sizes
    offered = available[:-1]
    acts = np.logical_or.reduceat(offered > 0, starts, axis=1)
    index = np.where(acts, taken, 0.0)
    whole = (index == np.floor(index)) & (index >= 0) & (index < sizes)
    columns = np.where(whole, index, 0.0).astype(np.int64) + starts
    had = np.take_along_axis(offered, columns, axis=1) > 0
    sound = np.where(acts, whole & had, taken == NO_ACTION)
    if not sound.all():
        step, agent = np.argwhere(~sound)[0]
        what = "was not available" if acts[step, agent] else "was taken though none was available"
        raise InvalidContribution(
            f"action of agent {agent} in step {step} is {taken[step, agent]:g}, which {what}"
        )
