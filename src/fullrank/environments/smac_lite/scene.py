"""Drawable state of a battle."""

import numpy as np

from fullrank.environments.particle.scene import Scene
from fullrank.environments.smac_lite.battle import Battle
from fullrank.environments.smac_lite.maps import SIDE, Ground

LETTERS = {"marauder": "M", "medivac": "+", "spine_crawler": "c", "colossus": "C"}
"""Labels of types; the others bear their first letter."""


def scene_of(battle: Battle, ground: Ground, copy: int) -> Scene:
    """Return the units of one copy, their targets in reach, and the cells around the field."""
    forces = battle.forces
    units = len(forces.types)
    alive = (battle.health[:, copy] > 0).tolist()
    sides = ["agent"] * forces.agents + ["adversary"] * forces.enemies
    kinds = [side if living else "dead" for side, living in zip(sides, alive, strict=True)]
    walls = _walls(ground)
    engaged = np.flatnonzero(battle.engaged[:, copy]).tolist()
    position = np.concatenate([battle.position[:, :units, copy].T, walls]) - SIDE / 2
    return Scene(
        kinds=(*kinds, *["obstacle"] * len(walls)),
        size=np.concatenate([forces.radius, np.full(len(walls), 0.5)]),
        position=position,
        links=tuple((unit, int(battle.target[unit, copy])) for unit in engaged),
        labels={
            unit: LETTERS.get(kind.name, kind.name[0])
            for unit, kind in enumerate(forces.types)
            if alive[unit]
        },
        half_width=SIDE / 2,
    )


def _walls(ground: Ground) -> np.ndarray:
    """Return the centres of the cells that border on walkable ones, shape (k, 2)."""
    free = np.pad(ground.walkable(), 1)
    near = free[:-2, 1:-1] | free[2:, 1:-1] | free[1:-1, :-2] | free[1:-1, 2:]
    return np.argwhere(near & ~free[1:-1, 1:-1]) + 0.5
