"""Fig. 5 of [DARL1N]: DARL1N against tabular learners (SAC) where users share access points.

All 9 users act at once, in the setting that SAC was designed for. Both methods learn on the same
draws of q, the access points' success probabilities, and are then evaluated on the same episodes.
SAC plays as many episodes as the authors' longest runs. An update of DARL1N takes B new transitions
of each user, as many as B / T episodes have; the users around a user in its samples are simulated
and not learnt from.
"""

import math
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from time import process_time
from typing import Any, NamedTuple

import numpy as np

from fullrank.common.types import JSON, Array
from fullrank.config.tree import RunConfig
from fullrank.environments.lattice.wireless import Uplink, Wireless
from fullrank.local import LocalRun
from fullrank.training.evaluation import Act, Greedy, evaluate_and_close, random_actions
from fullrank_darl1n.published import DARL1N, Darl1nScale
from fullrank_darl1n.scalable_actor_critic import ScalableActorCritic
from fullrank_papers.cells import Cell, Results, settings_of
from fullrank_papers.claims import UNBUILT, ClaimResult, by_samples, shown, undecided
from fullrank_papers.paper import table
from fullrank_papers.runs import configured

USERS = 9
FEW, MANY = DEADLINES = (2, 10)
"""Values of z; a user has 2^z states."""
SAC = "sac"
PLAYED = 100
"""Episodes of the final evaluation."""
BATCH = 100
"""Transitions of each user in an update of DARL1N, as many as the authors collect for one."""
TOGETHER = BATCH // Wireless().horizon
"""Episodes with as many transitions as an update of DARL1N."""
UPDATES = 500
"""Most updates of DARL1N."""
POINTS = 100
"""Points of SAC's curve."""
EVERY = 10
"""Updates between two points of DARL1N's curve, each the mean of ``WATCHED`` episodes."""
WATCHED = 20
HIDDEN = 32
"""Width of DARL1N's networks, as in the authors' code."""
_LEARNING_SEED, _EVALUATION_SEED = 0, 1000


class Uplinks(Uplink):
    """One copy of the task for each draw of q: each has access points of its own."""

    def __init__(self, worlds: Sequence[Wireless]) -> None:
        side = math.isqrt(USERS)
        super().__init__(side, worlds[0], copies=len(worlds))
        rates = [world.rates(side) for world in worlds]
        self.rates = np.concatenate(rates)
        first = len(rates[0]) * np.arange(len(worlds))
        self._reachable = self._reachable + first[:, None, None]


class WirelessRun(NamedTuple):
    """A method on draws of q: SAC on all, DARL1N on one of them."""

    method: str
    deadline: int
    draws: tuple[int, ...]
    scale: Darl1nScale

    @property
    def name(self) -> str:
        """Name of its cell."""
        draw = f"-draw{self.draws[0]}" if self.method == DARL1N else ""
        return f"wireless-z{self.deadline}-{self.method}{draw}"

    def world(self, draw: int) -> dict[str, Any]:
        """Parameters of the environment."""
        return {"deadline": self.deadline, "rate_seed": draw, "simultaneous": True}

    def cell(self) -> Cell:
        """The run as a cell; its results are by draw."""
        own, episodes = self.method == DARL1N, self.scale.episodes
        tables = {"worlds": [*map(self.world, self.draws)], "episodes": episodes}
        how = {"run": settings_of(self.config())} if own else tables
        return Cell(
            name=self.name,
            settings={**how, "played": PLAYED},
            compute=self._networks if own else self._tables,
            weight=8 if own else episodes / 200,
            beside=True,
        )

    def config(self) -> RunConfig:
        """Configuration of DARL1N."""
        (draw,) = self.draws
        world = {"name": "wireless", "agents": USERS, "copies": WATCHED, **self.world(draw)}
        method = {"name": DARL1N, "batch_size": BATCH, "hidden": HIDDEN, "evaluate_every": EVERY}
        iterations = min(UPDATES, self.scale.episodes // TOGETHER)
        options: dict[str, Any] = {"seed": draw, "iterations": iterations, "learners": USERS}
        for part, settings in (("environment", world), ("algorithm", method)):
            options |= {f"{part}.{key}": value for key, value in settings.items()}
        return configured(options=options)

    def _tables(self) -> JSON:
        """Seconds of a learner, returns of the learners and of random play, and their curves."""
        environment = Uplinks([Wireless(**self.world(draw)) for draw in self.draws])
        episodes = self.scale.episodes
        learner = ScalableActorCritic(environment, seed=_LEARNING_SEED, episodes=episodes)
        began = process_time()
        returns = np.stack([*learner.train()], axis=1)
        seconds = (process_time() - began) / len(self.draws)
        every = max(episodes // POINTS, 1)
        curves = returns.reshape(len(returns), -1, every).mean(axis=2)
        learnt = [learner.policy(copy, seed=_EVALUATION_SEED) for copy in range(len(returns))]
        chance = random_actions(environment.agents, seed=_EVALUATION_SEED)
        return {
            "seconds": [seconds] * len(returns),
            "return": [*map(self._played, self.draws, learnt)],
            "random": [self._played(draw, chance) for draw in self.draws],
            "episodes": [(every * (np.arange(curves.shape[1]) + 0.5)).tolist()],
            "returns": curves.round(3).tolist(),
        }

    def _networks(self) -> JSON:
        """Seconds of all units and evaluations, return without exploration, and the curve."""
        run = LocalRun(self.config(), coded=False)
        with closing(run.training.collector):
            began = process_time()
            iterations = run.train()
            seconds = process_time() - began
        watched = [each for each in iterations if each.return_mean is not None]
        return {
            "seconds": [seconds],
            "return": [self._played(self.draws[0], Greedy(run.training.algorithm.actor))],
            "episodes": [[TOGETHER * each.iteration for each in watched]],
            "returns": [[each.return_mean for each in watched]],
        }

    def _played(self, draw: int, act: Act) -> float:
        environment = Wireless(**self.world(draw)).make(agents=USERS, copies=4)
        played = evaluate_and_close(environment, act, PLAYED, _EVALUATION_SEED)
        return float(played.returns.mean())


def runs(scale: Darl1nScale, method: str, deadline: int) -> list[WirelessRun]:
    """The runs of a method."""
    draws = (scale.rate_draws or scale.seeds) if scale.episodes else ()
    several = [draws] if draws and method == SAC else [(draw,) for draw in draws]
    return [WirelessRun(method, deadline, each, scale) for each in several]


def cells(scale: Darl1nScale) -> list[Cell]:
    """Cells of all z and methods."""
    return [
        run.cell() for method in (DARL1N, SAC) for z in DEADLINES for run in runs(scale, method, z)
    ]


def found(results: Results, scale: Darl1nScale, method: str, z: int, what: str) -> Array:
    """A result by draw, shape (draws, ...); episodes learnt from are the same for all."""
    return np.concatenate([results[run.name][what] for run in runs(scale, method, z)])


def judge_wireless(results: Results, scale: Darl1nScale) -> list[ClaimResult]:
    """Judge the claims on Fig. 5, draw by draw."""
    claims = (
        f"SAC earns more where users have few states (z = {FEW}).",
        f"DARL1N earns more where they have many (z = {MANY}).",
    )
    if not scale.episodes:
        return [undecided(claim, "no run of SAC", UNBUILT) for claim in claims]
    leads = {
        z: found(results, scale, DARL1N, z, "return") - found(results, scale, SAC, z, "return")
        for z in DEADLINES
    }
    return [
        by_samples(claim, {"": lead}, unit="draws of q", said="more return")
        for claim, lead in zip(claims, (-leads[FEW], leads[MANY]), strict=True)
    ]


def wireless_table(results: Results, scale: Darl1nScale) -> str:
    """A row for each z."""
    rows = []
    for z in DEADLINES:
        of = partial(found, results, scale)
        random, sac, own = of(SAC, z, "random"), of(SAC, z, "return"), of(DARL1N, z, "return")
        times = of(SAC, z, "seconds"), of(DARL1N, z, "seconds")
        numbers = [f"{values.mean():.1f}" for values in (random, sac, own, *times)]
        rows.append([z, *numbers[:3], shown(sac - random), shown(own - sac), *numbers[3:]])
    heads = ("z", "random", "SAC", "DARL1N", "SAC - random", "DARL1N - SAC", "seconds: SAC")
    return table([*heads, "DARL1N"], rows)
