"""Unit types of StarCraft II [SMAC], as of game version 4.

Lengths are in map units, times in game loops, of which there are 22.4 in a second at the game's
speed "faster" and 16 in the seconds of its data files. All amounts that are added up (damage,
healing, regeneration) are multiples of 2^-11, so that their sums are exact in any order.
"""

from dataclasses import dataclass

STEP_LOOPS = 8
"""Game loops of one environment step."""
LOOPS_PER_SECOND = 16
"""Game loops in a second of the data files, in which rates and periods below were given."""
SHIELD_DELAY = 160
"""Loops without a hit after which shields regenerate: 10 s."""
SHIELD_RATE = 2 / LOOPS_PER_SECOND
"""Shield points regenerated per loop."""
ZERG_RATE = 35 / 128 / LOOPS_PER_SECOND
"""Health that zerg units regenerate per loop."""
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


def _speed(per_second: float) -> float:
    return per_second / LOOPS_PER_SECOND


def _period(seconds: float) -> float:
    return seconds * LOOPS_PER_SECOND


UNITS = {
    unit.name: unit
    for unit in (
        UnitType(
            name="marine",
            health=45,
            attributes=("light", "biological"),
            damage=6,
            period=_period(0.86083984375),
            reach=5,
            hits_air=True,
            speed=_speed(2.25),
            radius=0.375,
            cooldown_scale=15,
        ),
        UnitType(
            name="marauder",
            health=125,
            armour=1,
            attributes=("armoured", "biological"),
            damage=10,
            bonus=("armoured", 10),
            period=_period(1.5),
            reach=6,
            speed=_speed(2.25),
            radius=0.5625,
            cooldown_scale=25,
        ),
        UnitType(
            name="medivac",
            health=150,
            armour=1,
            attributes=("armoured", "mechanical"),
            reach=4,
            speed=_speed(2.5),
            radius=0.75,
            flies=True,
            heals=True,
            energy=(50, 200),
            cooldown_scale=200,
        ),
        UnitType(
            name="stalker",
            health=80,
            shield=80,
            armour=1,
            attributes=("armoured", "mechanical"),
            damage=13,
            bonus=("armoured", 5),
            period=_period(1.8701171875),
            reach=6,
            hits_air=True,
            speed=_speed(2.953125),
            radius=0.625,
            cooldown_scale=35,
        ),
        UnitType(
            name="zealot",
            health=100,
            shield=50,
            armour=1,
            attributes=("light", "biological"),
            damage=8,
            hits=2,
            period=_period(1.199951171875),
            reach=0.10009765625,
            speed=_speed(2.25),
            radius=0.5,
            cooldown_scale=22,
        ),
        UnitType(
            name="colossus",
            health=200,
            shield=150,
            armour=1,
            attributes=("armoured", "mechanical", "massive"),
            damage=10,
            bonus=("light", 5),
            hits=2,
            period=_period(1.5),
            reach=7,
            splash=(2.8, 0.3),
            speed=_speed(2.25),
            radius=1.0,
            cooldown_scale=24,
        ),
        UnitType(
            name="hydralisk",
            health=90,
            attributes=("light", "biological"),
            damage=12,
            period=_period(0.824951171875),
            reach=5,
            hits_air=True,
            speed=_speed(2.25),
            radius=0.625,
            regeneration=ZERG_RATE,
            cooldown_scale=10,
        ),
        UnitType(
            name="zergling",
            health=35,
            attributes=("light", "biological"),
            damage=5,
            period=_period(0.696044921875),
            reach=0.10009765625,
            speed=_speed(2.953125),
            radius=0.375,
            regeneration=ZERG_RATE,
            cooldown_scale=11,
        ),
        UnitType(
            name="spine_crawler",
            health=300,
            armour=2,
            attributes=("armoured", "biological", "structure"),
            damage=25,
            bonus=("armoured", 5),
            period=_period(1.85009765625),
            reach=7,
            speed=0,
            radius=1.125,
            regeneration=ZERG_RATE,
        ),
    )
}
"""Unit types by name."""
