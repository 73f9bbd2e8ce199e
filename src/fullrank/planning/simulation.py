"""Training rounds in virtual time, to predict the gain of a code on clusters not at hand.

Computing times, transfers and stragglers are simulated; the rank of C_J is real, and so is the
variance where learners draw samples of their own. Rounds are independent: a commit reaches every
learner at the latest with the next assignment, and a learner that still computes, sleeps or sends
then drops its work.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from fullrank.codes.base import Code
from fullrank.common.errors import ConfigError
from fullrank.common.seeding import stream
from fullrank.common.types import BoolArray, IntArray, Times
from fullrank.config.auto_code import AutoCodeSettings
from fullrank.planning.arrival import arrivals_of
from fullrank.planning.candidates import Plan
from fullrank.planning.cluster import Cluster, Regime
from fullrank.planning.costs import Payload, Traffic
from fullrank.planning.grace import Grace, deciding_returns
from fullrank.planning.history import again_s
from fullrank.planning.observation import Observation, label_of
from fullrank.planning.planner import Planner
from fullrank.planning.tuning import TUNING
from fullrank.stragglers import DelayModel
from fullrank.stragglers.base import FollowsTime, costs_of, factors_of, model_at, stretches_of


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedRounds:
    """K simulated rounds of the n learners that hold a row with a unit."""

    learners: IntArray
    """Indices of the learners, ascending, shape (n,)."""
    compute_s: Times
    """Computing times, shape (K, n)."""
    delay_s: Times
    """Delays, shape (K, n)."""
    straggles: BoolArray
    """True for learners that are delayed or slowed, shape (K, n)."""
    arrival_s: Times
    """Arrivals since the assignment, also of rows after the commit, shape (K, n)."""
    order: IntArray
    """Positions in ``learners`` in order of arrival, shape (K, n)."""
    needed: IntArray
    """Number of arrivals that decide a round unless it is hedged, shape (K,)."""
    round_s: Times
    """Time from the assignment to the commit, shape (K,)."""
    moved: Traffic

    @property
    def returned(self) -> IntArray:
        """Number of arrivals at the commit, shape (K,): fewer than ``needed`` if hedged."""
        by_then = (self.arrival_s <= self.round_s[:, None]).sum(axis=1)
        return np.asarray(np.minimum(by_then, self.needed))

    @property
    def received(self) -> tuple[IntArray, ...]:
        """J of each round: learners in order of arrival."""
        return tuple(
            self.learners[order[:count]]
            for order, count in zip(self.order, self.returned, strict=True)
        )

    @property
    def waited(self) -> BoolArray:
        """True where the last needed row came from a straggler, shape (K,)."""
        every = np.arange(len(self.order))
        last = self.order[every, self.needed - 1]
        return np.asarray(self.straggles[every, last] & (self.returned == self.needed))

    @property
    def sent_bytes(self) -> int:
        """Parameters sent by the controller in one round."""
        return int(self.moved.parameters.sum())


def simulate(
    cluster: Cluster,
    code: Code,
    delay_model: DelayModel,
    *,
    iterations: int,
    seed: int,
    max_variance: float = math.inf,
    holders: int = 1,
    hedged: bool = False,
) -> SimulatedRounds:
    """Run K = ``iterations`` rounds; equal arguments give equal results.

    Args:
        cluster: Machines and links.
        code: C and the learners of its rows.
        delay_model: Delays of the learners before they compute, and their slowness.
        iterations: K.
        seed: Key of the stragglers, as in a real run, and of the spread of computing times.
        max_variance: Limit of ``Arrivals``; inf ends a round at rank M.
        holders: Of each unit, as in ``Arrivals``.
        hedged: Idle learners compute for late ones, as by ``controller.undecodable = "hedge"``.

    Raises:
        ConfigError: ``cluster.unit_s`` has another number of learners.
        NotDecodable: All rows together do not determine the units.
    """
    return play(
        cluster,
        code,
        delay_model,
        iterations=range(iterations),
        seed=seed,
        max_variance=max_variance,
        holders=holders,
        grace=Grace() if hedged else None,
    )


def play(
    cluster: Cluster,
    code: Code,
    delay_model: DelayModel,
    *,
    iterations: Sequence[int],
    seed: int,
    max_variance: float = math.inf,
    holders: int = 1,
    grace: Grace | None = None,
    began_s: float = 0.0,
) -> SimulatedRounds:
    """Simulate the given iterations; other arguments and errors are those of ``simulate``.

    The first one begins ``began_s`` seconds after the run. With a grace rounds are hedged, and it
    learns from them; each late unit is taken for the dearest one.
    """
    if isinstance(delay_model, FollowsTime) and len(iterations) > 1:
        one = partial(play, cluster, code, delay_model, seed=seed)
        one = partial(one, max_variance=max_variance, holders=holders, grace=grace)
        return _one_by_one(one, iterations, began_s)
    model = model_at(delay_model, began_s)
    learners = np.flatnonzero(code.load)
    moved = cluster.payload.traffic(code.blocks[learners])
    ready_s = cluster.ready_s(moved)

    def by_round(draw: Callable[[int], Times]) -> Times:
        return np.array([draw(iteration) for iteration in iterations])

    pace = by_round(lambda t: _pace(cluster, code, t, seed))
    stretches = by_round(lambda t: stretches_of(model, code.held, seed=seed, iteration=t))
    compute_s = code.load * np.asarray(cluster.unit_s) * pace * stretches
    delay_s = by_round(lambda t: model.delays(seed=seed, iteration=t, learners=code.learners))
    finish_s, busy_s = delay_s.copy(), (compute_s + delay_s)[:, learners]
    finish_s[:, learners] = [cluster.arrival_s(done_s, moved) for done_s in ready_s + busy_s]
    arrival_s = finish_s[:, learners]
    order = np.argsort(arrival_s, axis=1, kind="stable")
    needed = arrivals_of(code, max_variance, holders).needed(learners[order])
    every = np.arange(len(order))
    round_s = arrival_s[every, order[every, needed - 1]]
    if grace is not None:
        dearest = by_round(lambda t: _dearest(model, code, seed=seed, iteration=t))
        unit_s = np.asarray(cluster.unit_s) * pace * dearest + again_s(cluster, moved, code)
        rounds = deciding_returns(code, finish_s, unit_s, order=learners[order], needed=needed)
        round_s = np.array([grace.play(returns) for returns in rounds])
    return SimulatedRounds(
        learners=learners,
        compute_s=compute_s[:, learners],
        delay_s=delay_s[:, learners],
        straggles=((delay_s > 0) | (stretches > 1))[:, learners],
        arrival_s=arrival_s,
        order=order,
        needed=needed,
        round_s=round_s,
        moved=moved,
    )


def _one_by_one(
    play_one: Callable[..., SimulatedRounds], iterations: Sequence[int], began_s: float
) -> SimulatedRounds:
    """Rounds of which each begins when the one before it ends."""
    rounds: list[SimulatedRounds] = []
    for iteration in iterations:
        rounds.append(play_one(iterations=[iteration], began_s=began_s))
        began_s += float(rounds[-1].round_s[0])
    columns = ("compute_s", "delay_s", "straggles", "arrival_s", "order", "needed", "round_s")
    joined: dict[str, Any] = {
        name: np.concatenate([getattr(played, name) for played in rounds]) for name in columns
    }
    return replace(rounds[0], **joined)


def _pace(cluster: Cluster, code: Code, iteration: int, seed: int) -> Times:
    """Computing time over its mean of every learner that is not slow, shape (N,)."""
    unit_s = np.asarray(cluster.unit_s)
    if unit_s.ndim and len(unit_s) != code.learners:
        raise ConfigError(f"unit_s names {len(unit_s)} learners, the code has {code.learners}")
    normal = stream(seed, "compute", iteration).standard_normal(code.learners)
    return np.asarray(np.exp(cluster.spread * (normal - cluster.spread / 2)))


def _dearest(model: DelayModel, code: Code, *, seed: int, iteration: int) -> Times:
    """The multiple of the time that each learner takes for the dearest unit, shape (N,)."""
    costs = costs_of(model, seed=seed, iteration=iteration, units=code.units)
    factors = factors_of(model, seed=seed, iteration=iteration, learners=code.learners)
    return np.asarray(factors * costs.max())


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRun:
    """A run with ``code.name = "auto"`` in virtual time."""

    round_s: Times
    """Round times, shape (iterations,)."""
    changes: tuple[tuple[int, Plan], ...]
    """Changes of code: the first iteration of each, and its plan."""
    last: Plan


def play_planned(
    regime_at: Callable[[int], Regime],
    payload: Payload,
    *,
    auto: AutoCodeSettings,
    iterations: int,
    seed: int,
    undecodable: str = "recode",
) -> PlannedRun:
    """Simulate a run that plans as it goes, from observations that services could make.

    Args:
        regime_at: Regime of an iteration; learners and agents are those of the first.
        payload: Sizes of the data that an iteration moves.
        auto: Settings of the planner.
        iterations: Number of rounds.
        seed: Key of the stragglers, of the spread of computing times and of the planner.
        undecodable: ``controller.undecodable``.
    """
    learners = range(regime_at(0).learners)
    planner = Planner(
        auto,
        units=regime_at(0).agents,
        seed=seed,
        moved=payload.traffic,
        undecodable=undecodable,
    )
    grace = Grace() if undecodable == "hedge" else None
    plan = planner.plan(learners)
    round_s, changes = list[Times](), list[tuple[int, Plan]]()
    for start in range(0, iterations, TUNING.interval):
        regime, code = regime_at(start), plan.candidate.code
        steps = range(start, min(start + TUNING.interval, iterations))
        played = play(
            regime.cluster(payload),
            code,
            regime.delays,
            iterations=steps,
            seed=seed,
            grace=grace,
            began_s=float(sum(map(np.sum, round_s))),
        )
        round_s.append(played.round_s)
        for index in range(len(steps)):
            planner.observe(observation_of(played, index, code))
        plan = planner.plan(learners)
        if plan.changed:
            changes.append((start + TUNING.interval, plan))
    return PlannedRun(round_s=np.concatenate(round_s), changes=tuple(changes), last=plan)


def observation_of(played: SimulatedRounds, index: int, code: Code) -> Observation:
    """The part of a simulated round that services would see."""
    received = np.zeros(len(played.learners), dtype=np.bool_)
    received[played.order[index, : played.returned[index]]] = True
    return Observation(
        code=label_of(code.name, code.tolerance),
        learners=tuple(played.learners.tolist()),
        load=code.load[played.learners],
        compute_s=np.where(received, played.compute_s[index], np.nan),
        arrival_s=np.where(received, played.arrival_s[index], np.nan),
        round_s=float(played.round_s[index]),
        moved=played.moved,
    )
