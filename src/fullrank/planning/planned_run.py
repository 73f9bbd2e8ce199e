"""Simulated runs that plan their code as they go."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fullrank.codes.base import Code
from fullrank.common.types import Times
from fullrank.config.auto_code import AutoCodeSettings
from fullrank.planning.candidates import Plan
from fullrank.planning.cluster import Regime
from fullrank.planning.costs import Payload
from fullrank.planning.observation import Observation
from fullrank.planning.planner import Planner
from fullrank.planning.simulation import SimulationTrace, play
from fullrank.planning.tuning import TUNING


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
) -> PlannedRun:
    """Simulate a run that plans as it goes, from observations that services could make.

    Args:
        regime_at: Regime of an iteration; learners and agents are those of the first.
        payload: Sizes of the data that an iteration moves.
        auto: Settings of the planner.
        iterations: Number of rounds.
        seed: Key of the stragglers, of the spread of computing times and of the planner.
    """
    learners = range(regime_at(0).learners)
    planner = Planner(auto, units=regime_at(0).agents, seed=seed, moved=payload.traffic)
    plan = planner.plan(learners)
    round_s, changes = [], []
    for start in range(0, iterations, TUNING.interval):
        regime, code = regime_at(start), plan.candidate.code
        steps = range(start, min(start + TUNING.interval, iterations))
        played = play(regime.cluster(payload), code, regime.delays, iterations=steps, seed=seed)
        round_s.append(played.round_s)
        for index in range(len(steps)):
            planner.observe(observation_of(played, index, code))
        plan = planner.plan(learners)
        if plan.changed:
            changes.append((start + TUNING.interval, plan))
    return PlannedRun(round_s=np.concatenate(round_s), changes=tuple(changes), last=plan)


def observation_of(played: SimulationTrace, index: int, code: Code) -> Observation:
    """The part of a simulated round that services would see."""
    received = np.zeros(len(played.learners), dtype=np.bool_)
    received[played.order[index, : played.needed[index]]] = True
    return Observation(
        learners=tuple(played.learners.tolist()),
        load=code.load[played.learners],
        compute_s=np.where(received, played.compute_s[index], np.nan),
        arrival_s=np.where(received, played.arrival_s[index], np.nan),
        round_s=float(played.round_s[index]),
        moved=played.moved,
    )
