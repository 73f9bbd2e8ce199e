"""Fig. 5 of [DARL1N]: DARL1N against tabular learners (SAC) where users share access points.

All 9 users act at once, in the setting that SAC was designed for. Both methods learn on the same
draws of q, the access points' success probabilities, and are then evaluated on the same episodes.

Both learn from equally many transitions. An episode of M users and T steps has M T, one for each
user and step. An update of DARL1N takes B new transitions of each user, hence B / T episodes; the
users around a user in its samples are simulated and not learnt from.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from fullrank.common.types import JSON, Array, Interval
from fullrank.config.layers import load
from fullrank.config.tree import RunConfig, as_tables
from fullrank.environments.lattice.wireless import Wireless
from fullrank.local import LocalRun
from fullrank.runs.statistics import student
from fullrank.training.evaluation import Act, Greedy, evaluate_and_close, random_actions
from fullrank_reproduction.baselines.scalable_actor_critic import ScalableActorCritic
from fullrank_reproduction.cells import Cell, Clock
from fullrank_reproduction.claim_results import ClaimResult, judge, measured, untested
from fullrank_reproduction.darl1n.results import Results
from fullrank_reproduction.darl1n.training.budget import Darl1nBudget
from fullrank_reproduction.darl1n.training.published import DARL1N

USERS = 9
DEADLINES = (2, 10)
"""Values of z; a user has 2^z states."""
RANDOM, SAC = "random", "sac"
COPIES = 4
"""SAC learners on each draw, and copies of the environment in evaluations."""
PLAYED = 100
"""Episodes of the final evaluation."""
BATCH = 100
"""Transitions of each user in an update of DARL1N, as many as the authors collect for one."""
TOGETHER = BATCH // Wireless().horizon
"""Episodes with as many transitions as an update of DARL1N."""
EVERY = 40
"""Episodes between two points of a curve."""
WATCHED = 20
"""Episodes behind a point of DARL1N's curve."""
HIDDEN = 32
"""Width of DARL1N's networks, as in the authors' code."""
LEAST_DRAWS = 5
"""Fewest draws by which the methods can be told apart."""
_EVALUATION_SEED = 1000


class WirelessReturns(NamedTuple):
    """Returns of a method during training."""

    episodes: Array
    """Episodes learnt from, shape (points,)."""
    returns: Array
    """Mean returns, shape (draws, points)."""


def cells(budget: Darl1nBudget, clock: Clock) -> list[Cell]:
    """One cell for each z, draw of q and method."""
    worlds = [
        {"deadline": deadline, "rate_seed": draw, "simultaneous": True}
        for deadline in DEADLINES
        for draw in range(budget.draws)
    ]
    return [
        cell
        for world in worlds
        for cell in (_sac(budget, world, clock), _own(budget, world, clock))
    ]


def updates(budget: Darl1nBudget) -> int:
    """Iterations in which DARL1N sees as many transitions as SAC in its episodes."""
    return budget.episodes // TOGETHER


def _name(method: str, deadline: int, draw: int) -> str:
    return f"wireless-z{deadline}-{method}-draw{draw}"


def _sac(budget: Darl1nBudget, world: Mapping[str, Any], clock: Clock) -> Cell:
    counts = {"episodes": budget.episodes, "copies": COPIES, "played": PLAYED, "every": EVERY}
    return Cell(
        name=_name(SAC, world["deadline"], world["rate_seed"]),
        settings={"world": world, **counts},
        compute=partial(_tabular, budget.episodes, world, clock),
        beside=True,
    )


def _tabular(episodes: int, world: Mapping[str, Any], clock: Clock) -> JSON:
    """Seconds of a tabular learner, its return, the return of random play, and its curve.

    Points of the curve are means over training episodes, placed at their middle.
    """
    environment = Wireless(**world).make(agents=USERS, copies=COPIES)
    learner = ScalableActorCritic(environment, seed=world["rate_seed"], episodes=episodes)
    began = clock()
    returns = np.array([value.mean() for value in learner.train()])
    seconds = (clock() - began) / COPIES
    points = episodes // EVERY
    return {
        "seconds": seconds,
        "return": _played(world, learner.policy(seed=_EVALUATION_SEED)),
        "random": _played(world, random_actions(environment.agents, seed=_EVALUATION_SEED)),
        "episodes": (EVERY * (np.arange(points) + 0.5)).tolist(),
        "returns": returns[: EVERY * points].reshape(points, EVERY).mean(axis=1).tolist(),
    }


def _own(budget: Darl1nBudget, world: Mapping[str, Any], clock: Clock) -> Cell:
    config = _config(budget, world)
    return Cell(
        name=_name(DARL1N, world["deadline"], world["rate_seed"]),
        settings={"run": as_tables(config), "played": PLAYED},
        compute=partial(_networks, config, world, clock),
        weight=config.iterations * USERS * BATCH / 50_000,
        beside=True,
    )


def _config(budget: Darl1nBudget, world: Mapping[str, Any]) -> RunConfig:
    options = {
        "seed": world["rate_seed"],
        "iterations": updates(budget),
        "learners": USERS,
        "environment.name": "wireless",
        "environment.agents": USERS,
        "environment.copies": WATCHED,
        **{f"environment.{key}": value for key, value in world.items()},
        "algorithm.name": DARL1N,
        "algorithm.batch_size": BATCH,
        "algorithm.hidden": HIDDEN,
        "algorithm.evaluate_every": EVERY // TOGETHER,
    }
    return load(options=options).check().config


def _networks(config: RunConfig, world: Mapping[str, Any], clock: Clock) -> JSON:
    """Seconds of all units and evaluations, return without exploration, and its curve."""
    run = LocalRun(config, coded=False)
    began = clock()
    iterations = run.train()
    seconds = clock() - began
    run.training.collector.close()
    watched = [value for value in iterations if value.return_mean is not None]
    return {
        "seconds": seconds,
        "return": _played(world, Greedy(run.training.algorithm.actor)),
        "episodes": [TOGETHER * value.iteration for value in watched],
        "returns": [value.return_mean for value in watched],
    }


def _played(world: Mapping[str, Any], act: Act) -> float:
    environment = Wireless(**world).make(agents=USERS, copies=COPIES)
    return float(evaluate_and_close(environment, act, PLAYED, _EVALUATION_SEED).returns.mean())


def _by_draw(
    results: Results, budget: Darl1nBudget, method: str, deadline: int, what: str
) -> Array:
    draws = range(budget.draws)
    return np.array([results[_name(method, deadline, draw)][what] for draw in draws])


def computed(results: Results, budget: Darl1nBudget) -> bool:
    """True if all cells are there."""
    return all(cell.name in results for cell in cells(budget, lambda: 0.0))


def curve(results: Results, budget: Darl1nBudget, method: str, deadline: int) -> WirelessReturns:
    """Returns of SAC or DARL1N during training."""
    episodes, returns = (
        _by_draw(results, budget, method, deadline, what) for what in ("episodes", "returns")
    )
    return WirelessReturns(episodes[0], returns)


def earned(results: Results, budget: Darl1nBudget, deadline: int) -> dict[str, Array]:
    """Final returns by method, shape (draws,)."""
    return {
        RANDOM: _by_draw(results, budget, SAC, deadline, "random"),
        SAC: _by_draw(results, budget, SAC, deadline, "return"),
        DARL1N: _by_draw(results, budget, DARL1N, deadline, "return"),
    }


def lead(results: Results, budget: Darl1nBudget, deadline: int, *, of: str, over: str) -> Interval:
    """Difference in return between two methods, paired by draw, with a 95 % interval."""
    returns = earned(results, budget, deadline)
    return student(returns[of] - returns[over])


def judge_wireless(results: Results, budget: Darl1nBudget) -> list[ClaimResult]:
    """Judge the claims on Fig. 5."""
    few, many = DEADLINES
    claims = {
        few: f"SAC earns more where users have few states (z = {few}).",
        many: f"DARL1N earns more where they have many (z = {many}).",
    }
    if budget.draws < LEAST_DRAWS:
        reason = f"{budget.draws} of {LEAST_DRAWS} draws of q"
        return [untested(claim, reason) for claim in claims.values()]
    leads = {z: lead(results, budget, z, of=DARL1N, over=SAC) for z in DEADLINES}
    holds = {few: leads[few].high < 0, many: leads[many].low > 0}
    return [
        judge(
            claim,
            [] if holds[z] else [f"DARL1N's lead is {leads[z]}"],
            grounds=f"DARL1N's lead is {leads[z]}, 95 % over {budget.draws} draws",
            strength=measured(budget.draws, interval=True),
        )
        for z, claim in claims.items()
    ]


def said(budget: Darl1nBudget) -> str:
    """Description of the experiment, as a paragraph of a page."""
    return f"""{USERS} users who act at once. SAC plays {budget.episodes} episodes to learn;
DARL1N (width {HIDDEN}) learns from as many transitions in {updates(budget)} updates, {BATCH} of
each user in one. Returns of {PLAYED} episodes at the end, SAC drawing its actions as it learnt to
and DARL1N without exploration; means over the draws of q ({budget.draws}). Differences are paired
by draw, with Student's 95 % intervals if there are {LEAST_DRAWS}. Seconds are those of a
processor."""


def of_wireless(results: Results, budget: Darl1nBudget) -> str:
    """Markdown table with a row for each z."""
    lines = [
        "| z | random | SAC | DARL1N | SAC - random | DARL1N - SAC | seconds: SAC | DARL1N |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for deadline in DEADLINES:
        returns = earned(results, budget, deadline)
        means = [f"{value.mean():.1f}" for value in returns.values()]
        gains = [_paired(returns[SAC] - returns[RANDOM]), _paired(returns[DARL1N] - returns[SAC])]
        seconds = [
            f"{_by_draw(results, budget, method, deadline, 'seconds').mean():.1f}"
            for method in (SAC, DARL1N)
        ]
        lines.append("| " + " | ".join([str(deadline), *means, *gains, *seconds]) + " |")
    return "\n".join(lines)


def _paired(differences: Array) -> str:
    few = len(differences) < LEAST_DRAWS
    return f"{differences.mean():.1f}" if few else str(student(differences))
