"""Fig. 5 of [DARL1N]: DARL1N against tables (SAC) where users share access points.

All 9 users act at once, in the world that SAC was made for. Both learn on the same draws of q, the
access points' probabilities of success, and then play the same episodes.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fullrank.baselines.scalable_actor_critic import ScalableActorCritic
from fullrank.config import RunConfig, as_tables, load
from fullrank.environments.lattice.wireless import Wireless
from fullrank.local import LocalRun
from fullrank.reproduction.cells import Cell
from fullrank.reproduction.darl1n.readings import Found
from fullrank.reproduction.darl1n.training.effort import Effort
from fullrank.reproduction.darl1n.training.published import DARL1N
from fullrank.reproduction.timing import Clock
from fullrank.reproduction.verdicts import Held, Verdict, judge
from fullrank.rollouts import Act, evaluate_and_close, random_actions
from fullrank.statistics import bootstrap
from fullrank.types import JSON, Interval

USERS = 9
DEADLINES = (2, 10)
"""z: a user has 2^z states."""
SAC = "sac"
COPIES = 4
"""Learners of SAC on each draw; and environments in which all are played."""
PLAYED = 100
"""Episodes at the end."""
ITERATIONS = 600
"""Of DARL1N, at most."""
HIDDEN = 32
"""Width of its networks, as the authors'."""
LEAST_DRAWS = 5
"""Fewer do not tell methods apart."""
_EVALUATION_SEED = 1000

Array = NDArray[np.float64]


def cells(effort: Effort, clock: Clock) -> list[Cell]:
    """One for each z, draw of q and method."""
    worlds = [
        {"deadline": deadline, "rate_seed": draw, "simultaneous": True}
        for deadline in DEADLINES
        for draw in range(effort.draws)
    ]
    return [
        cell
        for world in worlds
        for cell in (_sac(effort, world, clock), _own(effort, world, clock))
    ]


def _name(method: str, deadline: int, draw: int) -> str:
    return f"wireless-z{deadline}-{method}-draw{draw}"


def _sac(effort: Effort, world: Mapping[str, Any], clock: Clock) -> Cell:
    return Cell(
        name=_name(SAC, world["deadline"], world["rate_seed"]),
        settings={"world": world, "episodes": effort.episodes, "copies": COPIES, "played": PLAYED},
        compute=partial(_tabular, effort.episodes, world, clock),
    )


def _tabular(episodes: int, world: Mapping[str, Any], clock: Clock) -> JSON:
    """Seconds of a learner, its return, and that of random play."""
    environment = Wireless(**world).make(agents=USERS, copies=COPIES)
    learner = ScalableActorCritic(environment, seed=world["rate_seed"], episodes=episodes)
    began = clock()
    for _ in learner.train():
        pass
    return {
        "seconds": (clock() - began) / COPIES,
        "return": _played(world, learner.policy(seed=_EVALUATION_SEED)),
        "random": _played(world, random_actions(environment.agents, seed=_EVALUATION_SEED)),
    }


def _own(effort: Effort, world: Mapping[str, Any], clock: Clock) -> Cell:
    config = _config(effort, world)
    return Cell(
        name=_name(DARL1N, world["deadline"], world["rate_seed"]),
        settings={"run": as_tables(config), "played": PLAYED},
        compute=partial(_networks, config, world, clock),
        weight=config.iterations * USERS / 100,
    )


def _config(effort: Effort, world: Mapping[str, Any]) -> RunConfig:
    iterations = min(effort.iterations, ITERATIONS)
    options = {
        "seed": world["rate_seed"],
        "iterations": iterations,
        "learners": USERS,
        "environment.name": "wireless",
        "environment.agents": USERS,
        **{f"environment.{key}": value for key, value in world.items()},
        "algorithm.name": DARL1N,
        "algorithm.batch_size": effort.batch,
        "algorithm.hidden": HIDDEN,
        "algorithm.evaluate_every": iterations,
    }
    return load(options=options).check().config


def _networks(config: RunConfig, world: Mapping[str, Any], clock: Clock) -> JSON:
    """Seconds of all units, and the return without exploration."""
    run = LocalRun(config, coded=False)
    began = clock()
    run.train()
    seconds = clock() - began
    run.training.close()
    return {"seconds": seconds, "return": _played(world, run.training.algorithm.act_greedily)}


def _played(world: Mapping[str, Any], act: Act) -> float:
    environment = Wireless(**world).make(agents=USERS, copies=COPIES)
    return float(evaluate_and_close(environment, act, PLAYED, _EVALUATION_SEED).returns.mean())


def _by_draw(found: Found, effort: Effort, method: str, deadline: int, what: str) -> Array:
    draws = range(effort.draws)
    return np.array([found[_name(method, deadline, draw)][what] for draw in draws])


def lead(found: Found, effort: Effort, deadline: int) -> Interval:
    """How much more DARL1N earns than SAC, paired by draw, 90 %."""
    own, other = (_by_draw(found, effort, each, deadline, "return") for each in (DARL1N, SAC))
    return bootstrap(own - other, share=0.90)


def judge_wireless(found: Found, effort: Effort) -> list[Verdict]:
    """Fig. 5."""
    few, many = DEADLINES
    leads = {deadline: lead(found, effort, deadline) for deadline in DEADLINES}
    claims = {
        f"SAC earns more where users have few states (z = {few}).": (few, leads[few].high < 0),
        f"DARL1N earns more where they have many (z = {many}).": (many, leads[many].low > 0),
    }
    if effort.draws < LEAST_DRAWS:
        reason = f"{effort.draws} of {LEAST_DRAWS} draws of q"
        return [Verdict(claim=each, held=Held.NOT_TESTABLE, reason=reason) for each in claims]
    return [
        judge(
            claim,
            [] if holds else [f"DARL1N's lead is {leads[deadline]}"],
            grounds=f"DARL1N's lead is {leads[deadline]}, 90 % over {effort.draws} draws",
        )
        for claim, (deadline, holds) in claims.items()
    ]


def of_wireless(found: Found, effort: Effort) -> str:
    """A line for each z."""
    lines = [
        "| z | random | SAC | DARL1N | DARL1N - SAC | seconds: SAC | DARL1N |",
        "|---|---|---|---|---|---|---|",
    ]
    for deadline in DEADLINES:
        columns = ((SAC, "random"), (SAC, "return"), (DARL1N, "return"))
        shown = [
            f"{_by_draw(found, effort, method, deadline, what).mean():.1f}"
            for method, what in columns
        ]
        seconds = [
            f"{_by_draw(found, effort, method, deadline, 'seconds').mean():.1f}"
            for method in (SAC, DARL1N)
        ]
        gain = lead(found, effort, deadline)
        paired = str(gain) if effort.draws >= LEAST_DRAWS else f"{gain.mean:.1f}"
        cells = [str(deadline), *shown, paired, *seconds]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)
