"""Checks of episodes before they are stored: the first field that is wrong, by name."""

import numpy as np

from fullrank.common.errors import InvalidContribution
from fullrank.common.types import BoolArray, FloatArray, IntArray
from fullrank.replay.episodes import NO_ACTION, EpisodeLayout


def check_finite(rows: FloatArray) -> None:
    """Raise ``InvalidContribution`` if an entry of the rows is not finite."""
    if not np.isfinite(rows).all():
        row, entry = np.argwhere(~np.isfinite(rows))[0]
        raise InvalidContribution(
            f"rows[{row}][{entry}] is {rows[row, entry]}, which is not finite"
        )


def check_steps(rows: FloatArray, ends: IntArray, layout: EpisodeLayout) -> None:
    """Check terminal states, availability and actions in the rows of whole episodes.

    Args:
        rows: Finite packed steps of episodes of a step at least, one after the other.
        ends: The last row of each.
        layout: Columns of a row.

    Raises:
        InvalidContribution: They could not have been played; the message opens with the field.
    """
    terminated, available = rows[:, layout.terminated].copy(), rows[:, layout.available]
    final = terminated[ends - 1]
    terminated[ends - 1] = 0.0
    if terminated.any() or not ((final == 0.0) | (final == 1.0)).all():
        raise InvalidContribution("terminated is not 0, or 1 in the last step")
    if not ((available == 0.0) | (available == 1.0)).all():
        raise InvalidContribution("available has an entry other than 0 and 1")
    if rows[ends, layout.action].any():
        raise InvalidContribution("action is not 0 in the last row, which has no step")
    sound, acts = _sound_actions(available, rows[:, layout.action], layout)
    sound[ends] = True
    if not sound.all():
        step, agent = np.argwhere(~sound)[0]
        action = rows[step, layout.action][agent]
        what = "was not available" if acts[step, agent] else "was taken though none was available"
        raise InvalidContribution(
            f"action of agent {agent} in step {step} is {action:g}, which {what}"
        )


def _sound_actions(
    available: FloatArray, action: FloatArray, layout: EpisodeLayout
) -> tuple[BoolArray, BoolArray]:
    """Tell which agents took an available action, or none if they had none; and which had any."""
    sizes = np.array(layout.action_sizes)
    starts = np.cumsum(sizes) - sizes
    acts = np.maximum.reduceat(available, starts, axis=1) > 0
    index = np.where(acts & (action >= 0) & (action < sizes), action, 0.0).astype(np.int64)
    had = available[np.arange(len(available))[:, None], index + starts] > 0
    return np.where(acts, (index == action) & had, action == NO_ACTION), acts
