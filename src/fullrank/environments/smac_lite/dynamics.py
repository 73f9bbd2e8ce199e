"""One environment step of all battles: eight game loops in ticks of two."""

from collections.abc import Sequence

from fullrank.environments.smac_lite.battle import Battle
from fullrank.environments.smac_lite.combat import fight, recover
from fullrank.environments.smac_lite.movement import Terrain, move
from fullrank.environments.smac_lite.script import Side, retarget
from fullrank.environments.smac_lite.units import STEP_LOOPS

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
