"""SMAC-lite keeps its interface, and its dynamics keep the laws that its model claims."""

from itertools import product

import numpy as np
import pytest

from fullrank.common.errors import ConfigError
from fullrank.environments import make_environment
from fullrank.environments.smac_lite.battle import Battle, Forces
from fullrank.environments.smac_lite.dynamics import TICK_LOOPS, Terrain, advance, fight, recover
from fullrank.environments.smac_lite.environment import SmacLite, SmacLiteConfig
from fullrank.environments.smac_lite.maps import MAPS, Ground, Starts
from fullrank.environments.smac_lite.units import LEAST_DAMAGE, STEP_LOOPS, UNITS, UnitType

from . import smac_scripts as scripts
from .recordings import AnyArray
from .smac_scripts import score

SYMMETRIC = ("3m", "8m", "2s3z", "1c3s5z")


def lite(task: str, copies: int = 1) -> SmacLite:
    """Copies of a map that have started."""
    environment = SmacLiteConfig(map=task).make(agents=0, copies=copies)
    environment.reset(range(copies), range(copies))
    return environment


def act(environment: SmacLite, chosen: AnyArray) -> AnyArray:
    """One-hot joint action of actions of shape (E, n)."""
    eye = np.eye(environment.agents[0].action.size, dtype=np.float32)
    return eye[chosen].reshape(environment.copies, -1)


def field(agents: list[str], enemies: list[str], places: list[tuple[float, float]]) -> Battle:
    """One battle with these units at these places."""
    battle = Battle(Forces.of([UNITS[n] for n in agents], [UNITS[n] for n in enemies]), 1)
    battle.begin(np.array([0]), np.array(places).T[:, :, None])
    return battle


def test_an_unknown_map_or_team_size_is_a_configuration_error() -> None:
    with pytest.raises(ConfigError, match="unknown map '4m'; known: 10m_vs_11m, 1c3s5z"):
        make_environment("smac_lite", copies=1, map="4m")
    with pytest.raises(ConfigError, match="map 3m has 3 agents: 4"):
        make_environment("smac_lite", agents=4, copies=1)


def both_scripted(task: str, copies: int, *, swapped: bool, steps: int, loops: int = 2) -> Battle:
    """Battles of equal scripts; swapped, each side starts with the units of the other."""
    chosen = MAPS[task]
    forces = Forces.of(chosen.allies.types, chosen.enemies.types)
    battle, n = Battle(forces, copies), forces.agents
    places = Starts(chosen).draw(range(copies))
    if swapped:
        places = np.concatenate([places[:, n:], places[:, :n]], axis=1)
    battle.begin(np.arange(copies), places)
    for _ in range(steps):
        advance(battle, Terrain(chosen.ground), ("agents", "enemies"), tick_loops=loops)
    return battle


@pytest.mark.parametrize("task", SYMMETRIC)
def test_the_dynamics_favour_no_side(task: str) -> None:
    for steps in (5, 25, 60):
        battle = both_scripted(task, 10, swapped=False, steps=steps)
        mirrored = both_scripted(task, 10, swapped=True, steps=steps)
        n = battle.forces.agents
        for name in ("health", "shield", "cooldown"):
            one, other = getattr(battle, name), getattr(mirrored, name)
            np.testing.assert_array_equal(one, np.concatenate([other[n:], other[:n]]))


def ranking(task: str, copies: int) -> list[scripts.Score]:
    plays = (scripts.focus, scripts.nearest, scripts.random)
    return [score(task, play, copies=copies) for play in plays]


@pytest.mark.parametrize("task", ["8m", "2s3z"])
def test_focused_fire_beats_the_nearest_target_and_that_beats_random_play(task: str) -> None:
    focused, nearest, random = ranking(task, 200)
    assert focused.won > nearest.won > random.won
    assert focused.returned > nearest.returned > random.returned
    assert random.won < 0.01


def volleys(unit: UnitType, target: UnitType) -> int:
    """Attacks until the target is dead."""
    health, shield = target.health, target.shield
    for attack in range(1, 1000):
        for _ in range(unit.hits):
            through = max(unit.damage_to(target) - shield, 0.0)
            shield = max(shield - unit.damage_to(target), 0.0)
            health -= max(through - target.armour, LEAST_DAMAGE) if through else 0.0
        if health <= 0:
            return attack
    raise AssertionError


FIGHTERS = [name for name, unit in UNITS.items() if unit.damage]
PAIRS = [
    (name, target)
    for name, target in product(FIGHTERS, UNITS)
    if UNITS[name].hits_air or not UNITS[target].flies
]


@pytest.mark.parametrize(("name", "target"), PAIRS)
def test_the_time_to_kill_follows_from_damage_and_period(name: str, target: str) -> None:
    unit, victim = UNITS[name], UNITS[target]
    gap = unit.radius + victim.radius
    battle = field([name], [target], [(16.0, 16.0), (16.0 + gap, 16.0)])
    battle.target[0] = 1
    ticks = 0
    while battle.health[1, 0] > 0:
        survey = battle.survey()
        fight(battle, survey, battle.aim(survey), TICK_LOOPS)
        ticks += 1
    expected = (volleys(unit, victim) - 1) * unit.period
    assert (ticks - 1) * TICK_LOOPS == pytest.approx(expected, rel=0.05)


def test_a_colossus_hits_a_row_across_its_attack_but_neither_depth_nor_friends() -> None:
    enemies = [(16.0, 16.0), (16.0, 17.6), (16.0, 14.4), (18.0, 16.0), (16.0, 19.0)]
    battle = field(["colossus", "zealot"], ["zealot"] * 5, [(11.0, 16.0), (16.0, 15.5), *enemies])
    battle.target[0] = 2
    survey = battle.survey()
    fight(battle, survey, battle.aim(survey), TICK_LOOPS)
    assert battle.shield[:, 0].tolist() == [150, 50, 20, 20, 20, 50, 50]


def test_a_medivac_heals_for_energy_and_not_itself() -> None:
    battle = field(["medivac", "marine"], ["marine"], [(8.0, 16.0), (10.0, 16.0), (25.0, 16.0)])
    battle.health[:2, 0] = 100.0, 20.0
    battle.target[0] = 1
    advance(battle, Terrain(Ground()), ())
    assert battle.health[:2, 0].tolist() == [100.0, 20.0 + 8 * 9 / 16]
    assert battle.energy[0, 0] == pytest.approx(50 - 8 * 9 / 16 / 3 + 8 * 9 / 256)
    for _ in range(20):
        advance(battle, Terrain(Ground()), ())
    assert battle.health[1, 0] == 45.0


def test_shields_regenerate_ten_seconds_after_the_last_hit() -> None:
    battle = field(["stalker"], ["zealot"], [(8.0, 16.0), (25.0, 16.0)])
    battle.shield[0] = 10.0
    for _ in range(160 // STEP_LOOPS - 1):
        recover(battle, STEP_LOOPS)
    assert battle.shield[0, 0] == 10.0
    recover(battle, STEP_LOOPS)
    assert battle.shield[0, 0] == 11.0


def test_enemies_find_the_gate() -> None:
    places = [(3.0, 26.0), (25.0, 6.0), (25.0, 26.0)]
    battle = field(["zealot"], ["zergling"] * 2, places)
    for _ in range(30):
        advance(battle, Terrain(MAPS["corridor"].ground))
    assert battle.engaged[1:].all()


@pytest.mark.parametrize("task", ["8m", "corridor"])
def test_units_stay_on_walkable_cells_and_apart(task: str) -> None:
    environment, generator = lite(task, copies=10), np.random.default_rng(0)
    free, battle = MAPS[task].ground.walkable(), environment.battle
    units = len(battle.forces.types)
    for _ in range(60):
        step = environment.step(act(environment, scripts.random(environment, generator)))
        x, y = battle.position[:, :units].astype(int)
        assert free[x, y].all()
        ended = np.flatnonzero(step.ended).tolist()
        environment.reset([100 + copy for copy in ended], ended)
    overlaps = battle.survey().squared < battle.forces.contact / 4
    assert overlaps.mean() < 0.02
