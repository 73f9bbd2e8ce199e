"""Effect of the MDS code of [Wang21] on learning where it carries parameters, as in the paper.

A learner of the paper returns a combination of updated networks: critic, policy and both targets of
every agent, in float32, with rows of a Vandermonde matrix; the controller solves the first M rows
that arrive. Here a run is trained without a code, and after every iteration its parameters pass
through that code, so that its errors are all that differs from the centralised run. Encoding and
solving take place in float64, which favours the code.
"""

import warnings
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import numpy as np

from fullrank.algorithms import Algorithm
from fullrank.codes import make_code
from fullrank.common.seeding import stream
from fullrank.common.types import JSON, Array, FloatArray, Matrix
from fullrank.config.tree import RunConfig, as_tables
from fullrank.local import LocalRun
from fullrank_reproduction import learning, pictures, wang21
from fullrank_reproduction.cells import Cell
from fullrank_reproduction.claim_results import ClaimResult, judge, measured
from fullrank_reproduction.learning import CENTRALISED, INEXACT, Wang21Budget
from fullrank_reproduction.wang21 import EVERY, PublishedPanel

TASKS = ("cooperative_navigation", "keep_away")
CLOSE = 0.03
"""Relative distance of mean returns within which the runs count as learning alike."""


def panels(budget: Wang21Budget) -> list[PublishedPanel]:
    """The panels whose parameters pass through the code."""
    return [panel for panel in budget.panels if panel.name in TASKS]


def cells(budget: Wang21Budget) -> list[Cell]:
    """The centralised runs of Fig. 3 and, seed by seed, those through the code."""
    found = []
    for seed in range(budget.seeds):
        for panel in panels(budget):
            config = learning.configured(
                panel, budget, code=CENTRALISED, seed=seed, iterations=budget.payload
            )
            found += [
                learning.centralised(panel, budget, seed=seed),
                Cell(
                    name=_name(panel, seed),
                    settings={"run": as_tables(config), "payload": "parameters"},
                    compute=partial(_trained, config),
                    weight=budget.payload * budget.batch / 1e6,
                    beside=True,
                ),
            ]
    return found


def _name(panel: PublishedPanel, seed: int) -> str:
    return f"{panel.name}-parameters-seed{seed}"


def _trained(config: RunConfig) -> JSON:
    """Returns by iteration, and errors by iteration relative to the largest parameter."""
    run = LocalRun(config, coded=False)
    algorithm = run.training.algorithm
    agents = len(algorithm.problem.units)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its bad condition is the subject
        matrix = make_code(INEXACT, rows=wang21.LEARNERS, units=agents, seed=0).matrix
    returns, errors = list[float | None](), list[float]()
    try:
        for iteration in run:
            mean = iteration.return_mean
            returns.append(None if mean is None else round(mean, 4))
            arrivals = stream(config.seed, "arrivals", iteration.iteration)
            first = arrivals.permutation(wang21.LEARNERS)[:agents].tolist()
            errors.append(_pass_through(algorithm, matrix[first]))
    finally:
        run.training.collector.close()
    return {"returns": returns, "errors": errors}


def _pass_through(algorithm: Algorithm, coefficients: Matrix) -> float:
    """Replace all parameters by the decoded ones; return the largest error of an entry.

    Agents of unlike sizes are padded with zeros. The error is relative to the largest parameter.
    """
    by_agent: dict[int, list[FloatArray]] = {}
    for section in sorted(algorithm.problem.sections, key=lambda each: each.role):
        by_agent.setdefault(section.agents[0], []).append(algorithm.parameters.view(section.id))
    flat = [np.concatenate([view.ravel() for view in views]) for views in by_agent.values()]
    sent = np.zeros((len(flat), max(map(len, flat))), dtype=np.float32)
    for vector, own in zip(sent, flat, strict=True):
        vector[: len(own)] = own
    received = decoded(coefficients, sent)
    for vector, views in zip(received, by_agent.values(), strict=True):
        start = 0
        for view in views:
            view[...] = vector[start : start + view.size].reshape(view.shape)
            start += view.size
    algorithm.parameters.written()
    return float(np.abs(received - sent).max() / np.abs(sent).max())


def decoded(coefficients: Matrix, vectors: FloatArray) -> FloatArray:
    """The vectors after coding, float32 on the wire, and solving, shape (M, P)."""
    wire = (coefficients @ vectors.astype(np.float64)).astype(np.float32)
    return np.linalg.solve(coefficients, wire.astype(np.float64)).astype(np.float32)


def judge_payload(
    runs: Mapping[str, JSON], panel: PublishedPanel, budget: Wang21Budget
) -> ClaimResult:
    """Claim (v) for the payload and the code of the paper, by the last returns of every seed."""
    plain, coded = _last(runs, panel, budget, coded=False), _last(runs, panel, budget, coded=True)
    apart = coded / plain - 1.0
    said = (
        f"mean returns of the last {EVERY} iterations {_numbers(coded)}, centralised "
        f"{_numbers(plain)}"
    )
    return judge(
        "(v) Training through MDS in Vandermonde form, parameters in float32, learns what "
        f"centralised training learns: {panel.name}.",
        [said] if np.abs(apart).max() > CLOSE else [],
        grounds=said,
        strength=measured(budget.seeds),
    )


def table(runs: Mapping[str, JSON], budget: Wang21Budget) -> str:
    """Returns and errors of the runs, in Markdown."""
    lines = [
        "| task | seed | centralised | through the code | median error | largest error |",
        "|---|---|---|---|---|---|",
    ]
    for panel in panels(budget):
        plain = _last(runs, panel, budget, coded=False)
        coded = _last(runs, panel, budget, coded=True)
        for seed in range(budget.seeds):
            errors = runs[_name(panel, seed)]["errors"]
            lines.append(
                f"| {panel.name} | {seed} | {plain[seed]:.1f} | {coded[seed]:.1f} | "
                f"{np.median(errors):.1e} | {max(errors):.1e} |"
            )
    return "\n".join(lines)


def draw(runs: Mapping[str, JSON], budget: Wang21Budget, *, path: Path) -> None:
    """Returns by iteration with and without the code, a line for each seed."""
    figure = pictures.blank(width=11, height=3.8)
    shown = panels(budget)
    for axes, panel in zip(figure.subplots(1, len(shown), squeeze=False).flat, shown, strict=True):
        for coded, colour, label in (
            (False, "#333333", "centralised; exact codes have the same bits"),
            (True, "#0072b2", "parameters in float32 through MDS (Vandermonde)"),
        ):
            for seed in range(budget.seeds):
                returns = _returns(runs, panel, budget, seed, coded=coded)
                parts = np.array_split(np.arange(len(returns)), min(40, len(returns)))
                means = [float(np.nanmean(returns[part])) for part in parts]
                at = [float(part.mean()) for part in parts]
                axes.plot(at, means, color=colour, label=label if seed == 0 else None)
        axes.set(title=panel.name.replace("_", " "), xlabel="iteration")
        axes.set_ylabel("episode return, all agents")
        pictures.tidy(axes)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2)
    figure.savefig(path, dpi=pictures.DPI)


def _returns(
    runs: Mapping[str, JSON], panel: PublishedPanel, budget: Wang21Budget, seed: int, *, coded: bool
) -> Array:
    name = _name(panel, seed) if coded else f"{panel.name}-{CENTRALISED}-seed{seed}"
    return np.array(runs[name]["returns"][: budget.payload], dtype=np.float64)


def _last(
    runs: Mapping[str, JSON], panel: PublishedPanel, budget: Wang21Budget, *, coded: bool
) -> Array:
    """Mean return of the last iterations of each seed, shape (seeds,)."""
    seeds = range(budget.seeds)
    last = [np.nanmean(_returns(runs, panel, budget, s, coded=coded)[-EVERY:]) for s in seeds]
    return np.array(last)


def _numbers(values: Array) -> str:
    return " and ".join(f"{value:.0f}" for value in values)
