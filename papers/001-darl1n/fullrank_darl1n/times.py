"""Fig. 7 and the times of Table VI of [DARL1N], in virtual time on the paper's machines.

Three published cells of Table VI determine the machines. Without stragglers, an uncoded learner
computes one unit and an MDS learner all M. The time that a rate of stragglers adds to the uncoded
time, which waits for the delay in a known share of iterations, gives the number of iterations. All
other cells are predictions.

The paper commits at rank M, where dense codes are noisiest. The cost of waiting for more rows,
until the predicted variance is at most ``MAX_VARIANCE``, is simulated as well, for the delay of
Table VI.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from fullrank.algorithms.darl1n import DARL1N
from fullrank.codes import Code
from fullrank.codes.analysis import variance
from fullrank.common.types import JSON
from fullrank.planning.cluster import Cluster
from fullrank.planning.simulation import simulate
from fullrank.stragglers import DelayModel
from fullrank_darl1n.published import (
    AGENTS,
    CYCLIC,
    DELAYS_S,
    HEDGED,
    MDS,
    RATES,
    TABLE_VI,
    TIMED,
    UNCODED,
    Scheme,
    StragglerModel,
)
from fullrank_papers.cells import Cell, Results

SCHEMES = (*TIMED, CYCLIC, HEDGED)
GRID = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
"""eta in the figure."""
MAX_VARIANCE = DARL1N().max_variance
"""Limit of the mean variance, relative to that of one learner's own gradient."""
SPREAD = 0.05
"""Spread of the logarithm of computing times; equal loads arrive in random order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperMachines:
    """The paper's machines, derived from its Table VI."""

    iterations: float
    """Iterations of the uncoded scheme to convergence."""
    unit_s: float
    """Seconds of a learner for one agent."""
    shared_s: float
    """Seconds of an iteration that do not depend on the code."""


def published_machines() -> PaperMachines:
    """Solved from uncoded at eta = 0 and 0.2, and MDS at eta = 0 (Delta = 1 s)."""
    undelayed_s, delayed_s, _ = TABLE_VI[UNCODED.name].seconds
    waiting = 1.0 - (1.0 - RATES[1]) ** AGENTS  # [DARL1N, Proposition 2]
    iterations = (delayed_s - undelayed_s) / (DELAYS_S[0] * waiting)
    unit_s = (TABLE_VI[MDS.name].seconds[0] - undelayed_s) / iterations / (AGENTS - 1)
    return PaperMachines(
        iterations=iterations, unit_s=unit_s, shared_s=undelayed_s / iterations - unit_s
    )


def cell(scheme: Scheme, machines: PaperMachines, *, draws: int, rounds: int) -> Cell:
    """Seconds of an iteration by model, delay and rate, and V at the commit.

    Args:
        scheme: The scheme.
        machines: The simulated machines.
        draws: Number of matrices of a random scheme.
        rounds: Simulated rounds with each matrix.
    """
    unit_s, shared_s = machines.unit_s, machines.shared_s
    return Cell(
        name=f"times-{scheme.name}",
        settings={
            "scheme": {"code": scheme.code, "params": dict(scheme.params)},
            "machines": {"unit_s": unit_s, "shared_s": shared_s, "spread": SPREAD},
            "draws": draws,
            "rounds": rounds,
            "grid": list(GRID),
            "delays_s": list(DELAYS_S),
            "quiet": {"limit": MAX_VARIANCE, "delay_s": DELAYS_S[0], "rates": list(RATES)},
        },
        compute=partial(_times, scheme, machines, draws, rounds),
        beside=True,
    )


def _times(scheme: Scheme, machines: PaperMachines, draws: int, rounds: int) -> JSON:
    """Times by the key of a point; a scheme with a single matrix runs as many rounds in total."""
    codes = [scheme.make_code(seed) for seed in range(draws if scheme.drawn else 1)]
    count = draws * rounds // len(codes)
    play = partial(_played, codes, machines, rounds=count, hedged=scheme.hedged)
    return {
        point(model, delay_s, rate): play(model.model(rate, delay_s=delay_s))
        for model in StragglerModel
        for delay_s in DELAYS_S
        for rate in GRID
    } | {
        low_variance_point(model, rate): play(
            model.model(rate, delay_s=DELAYS_S[0]), max_variance=MAX_VARIANCE
        )
        for model in StragglerModel
        for rate in RATES
    }


def _played(
    codes: Sequence[Code],
    machines: PaperMachines,
    model: DelayModel,
    *,
    rounds: int,
    hedged: bool,
    max_variance: float = math.inf,
) -> JSON:
    cluster = Cluster(unit_s=machines.unit_s, spread=SPREAD)
    round_s, rows, noise = [], [], []
    for seed, code in enumerate(codes):
        played = simulate(
            cluster,
            code,
            model,
            iterations=rounds,
            seed=seed,
            max_variance=max_variance,
            hedged=hedged,
        )
        round_s.append(played.round_s)
        rows += [len(received) for received in played.received]
        # a hedged round has every unit once, by whomever
        decoded = [np.flatnonzero(code.load)] * rounds if hedged else played.received
        noise += [variance(code, received.tolist()) for received in decoded]
    return {
        "seconds": machines.shared_s + np.concatenate(round_s).mean(),
        "rows": np.mean(rows),
        "variance": np.mean(noise),
    }


def point(model: StragglerModel, delay_s: float, rate: float) -> str:
    """Key of a point of Fig. 7 in a cell."""
    return f"{model}-{delay_s:g}-{rate:g}"


def low_variance_point(model: StragglerModel, rate: float) -> str:
    """Key of a point whose commits wait for low variance."""
    return f"quiet-{model}-{rate:g}"


def seconds(
    results: Results, scheme: Scheme, model: StragglerModel, delay_s: float, rate: float
) -> float:
    """Seconds of an iteration."""
    entry = results[f"times-{scheme.name}"][point(model, delay_s, rate)]
    return float(entry["seconds"])
