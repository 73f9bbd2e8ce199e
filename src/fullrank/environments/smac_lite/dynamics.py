"""One environment step of all battles: eight game loops in ticks of two.

The built-in enemy attacks the nearest opponent, wherever it is. A unit keeps its target while that
is alive and in reach; otherwise it takes the nearest living opponent that it can attack. A medivac
heals the nearest injured unit of its side, or follows the nearest one. Agents can be played by the
same script, for tests of the model.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from fullrank.common.types import IntArray
from fullrank.environments.smac_lite.battle import Battle, Survey
from fullrank.environments.smac_lite.combat import fight, recover
from fullrank.environments.smac_lite.movement import Terrain, move
from fullrank.environments.smac_lite.units import STEP_LOOPS

Side = Literal["agents", "enemies"]


def retarget(battle: Battle, survey: Survey, side: Side) -> None:
    """Give the units of one side their targets."""
    forces = battle.forces
    n, m = forces.agents, forces.enemies
    across = survey.squared[: n * m].reshape(n, m, -1)
    if side == "agents":
        units, first = slice(n), n
        across = across.swapaxes(0, 1)
    else:
        units, first = slice(n, None), 0
    barred = forces.barred[units, first : first + len(across)].T
    if barred.any():
        across = across + barred[:, :, None]
    nearest = across.argmin(axis=0) + first
    kept = battle.engaged[units]
    battle.target[units] = np.where(kept, battle.target[units], nearest)
    for healer in forces.healers.tolist():
        if (healer < n) == (side == "agents"):
            battle.target[healer] = _patient(battle, survey, healer, units)


def _patient(battle: Battle, survey: Survey, healer: int, units: slice) -> IntArray:
    """Return the unit that a medivac heals or follows, shape (E,)."""
    x, y = survey.x[:-1], survey.y[:-1]
    distance = np.sqrt(np.square(x[units] - x[healer]) + np.square(y[units] - y[healer]))
    healthy = battle.health[units] >= battle.forces.health[units]
    healers = np.array([[unit.heals] for unit in battle.forces.types[units]])
    cost = distance + np.where(healers, np.inf, np.where(healthy, 100.0, 0.0))
    patient: IntArray = cost.argmin(axis=0) + (units.start or 0)
    return patient


TICK_LOOPS = 2
"""Loops of a tick. ADR 36 compares it with 1."""


def advance(
    battle: Battle,
    terrain: Terrain,
    scripted: Sequence[Side] = ("enemies",),
    *,
    tick_loops: int = TICK_LOOPS,
) -> None:
    """Advance all battles by one step.

    Args:
        battle: State, which is changed.
        terrain: Walls.
        scripted: Sides that the script plays; the others follow their orders.
        tick_loops: Loops of a tick, a divisor of 8.
    """
    for _ in range(STEP_LOOPS // tick_loops):
        survey = battle.survey()
        for side in scripted:
            retarget(battle, survey, side)
        aim = battle.aim(survey)
        fight(battle, survey, aim, tick_loops)
        move(battle, survey, aim, terrain, tick_loops)
        battle.engaged = aim.within
    recover(battle, STEP_LOOPS)
