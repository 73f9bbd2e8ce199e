"""Unit types of StarCraft II [SMAC], as of game version 4.

Lengths are in map units, times in game loops, of which there are 22.4 in a second at the game's
speed "faster" and 16 in the seconds of its data files. All amounts that are added up (damage,
healing, regeneration) are multiples of 2^-11, so that their sums are exact in any order.
"""

from dataclasses import dataclass
from typing import Any

from fullrank.common.data import toml

STEP_LOOPS = 8
"""Game loops of one environment step."""
LOOPS_PER_SECOND = 16
"""Game loops in a second of the data files, in which rates and periods below were given."""
SHIELD_DELAY = 160
"""Loops without a hit after which shields regenerate: 10 s."""
SHIELD_RATE = 2 / LOOPS_PER_SECOND
"""Shield points regenerated per loop."""
HEAL_RATE = 9 / LOOPS_PER_SECOND
"""Health that a medivac restores per loop."""
HEAL_COST = 1 / 3
"""Energy for a point of health."""
ENERGY_RATE = 9 / 16 / LOOPS_PER_SECOND
"""Energy that a medivac regenerates per loop."""
LEAST_DAMAGE = 0.5
"""Damage of a hit that armour would stop entirely."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitType:
    """Figures of one type of unit, without upgrades."""

    name: str
    health: float
    shield: float = 0.0
    armour: float = 0.0
    """Subtracted from each hit on health; shields have none."""
    attributes: tuple[str, ...]
    damage: float = 0.0
    """Damage of one hit."""
    bonus: tuple[str, float] = ("", 0.0)
    """Attribute of targets that take more damage, and how much more."""
    hits: int = 1
    """Hits of one attack."""
    period: float = 0.0
    """Loops between attacks."""
    reach: float = 0.0
    """Range of the weapon or of healing, between the edges of two units."""
    hits_air: bool = False
    splash: tuple[float, float] = (0.0, 0.0)
    """Size of the area of an attack, across and along its direction; zeros: the target alone."""
    speed: float
    """Map units per loop; 0 for buildings."""
    radius: float
    flies: bool = False
    heals: bool = False
    energy: tuple[float, float] = (0.0, 0.0)
    """Initial and largest energy."""
    regeneration: float = 0.0
    """Health regenerated per loop."""
    cooldown_scale: float = 15.0
    """Divisor of the cooldown in SMAC's state; of the energy, for a medivac."""

    def damage_to(self, target: "UnitType") -> float:
        """Damage of a hit on another unit, before armour."""
        attribute, more = self.bonus
        return self.damage + more * (attribute in target.attributes)


def _in_loops(facts: dict[str, Any]) -> dict[str, Any]:
    """Figures of the data file, in game loops instead of seconds."""
    rates = {key: facts.get(key, 0.0) / LOOPS_PER_SECOND for key in ("speed", "regeneration")}
    return {**facts, **rates, "period": facts.get("period", 0.0) * LOOPS_PER_SECOND}


UNITS = {
    name: UnitType(name=name, **_in_loops(facts))
    for name, facts in toml(__package__, "units.toml").items()
}
"""Unit types by name."""
