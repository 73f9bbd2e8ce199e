"""Drawable state of a battle."""

import numpy as np

from fullrank.environments.particle.scene import Scene
from fullrank.environments.smac_lite.battle import Battle
from fullrank.environments.smac_lite.maps import SIDE, Ground
from fullrank.environments.smac_lite.units import UnitType

LETTERS = {"marauder": "M", "medivac": "+", "spine_crawler": "c", "colossus": "C"}
"""Labels of types; the others bear their first letter."""


def scene_of(battle: Battle, ground: Ground, copy: int) -> Scene:
    """Return the units of one copy, those that fire, and the cells around the field."""
    forces = battle.forces
    units = len(forces.types)
    alive = (battle.health[:, copy] > 0).tolist()
    sides = ["agent"] * forces.agents + ["adversary"] * forces.enemies
    kinds = [side if living else "dead" for side, living in zip(sides, alive, strict=True)]
    walls = _walls(ground)
    engaged = np.flatnonzero(battle.engaged[:, copy]).tolist()
    position = np.concatenate([battle.position[:, :units, copy].T, walls]) - SIDE / 2
    return Scene(
        kinds=(*kinds, *["wall"] * len(walls)),
        size=np.concatenate([forces.radius, np.full(len(walls), 0.5)]),
        position=position,
        shots=tuple((unit, int(battle.target[unit, copy])) for unit in engaged if alive[unit]),
        bars={unit: _left(battle, unit, copy) for unit in range(units) if alive[unit]},
        labels={unit: _letter(kind) for unit, kind in enumerate(forces.types) if alive[unit]},
        key={"agent": "agents", "adversary": "enemies", "dead": "dead"}
        | {_letter(kind): kind.name.replace("_", " ") for kind in forces.types},
        half_width=SIDE / 2,
    )


def _letter(kind: UnitType) -> str:
    return LETTERS.get(kind.name, kind.name[0])


def _left(battle: Battle, unit: int, copy: int) -> tuple[float, ...]:
    """Return the shares of health and of shield that a unit has left."""
    kind = battle.forces.types[unit]
    health = float(battle.health[unit, copy]) / kind.health
    return (health, float(battle.shield[unit, copy]) / kind.shield) if kind.shield else (health,)


def _walls(ground: Ground) -> np.ndarray:
    """Return the centres of the cells that border on walkable ones, shape (k, 2)."""
    free = np.pad(ground.walkable(), 1)
    near = free[:-2, 1:-1] | free[2:, 1:-1] | free[1:-1, :-2] | free[1:-1, 2:]
    return np.argwhere(near & ~free[1:-1, 1:-1]) + 0.5
