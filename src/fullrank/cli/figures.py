"""Figure of a comparison over tasks, and its numbers as CSV, LaTeX and marl-eval's JSON.

The panels are those that Agarwal et al. (2021, arXiv:2108.13264) recommend. The JSON is that of
Gorsane et al.: Towards a Standardised Performance Evaluation Protocol for Cooperative MARL,
NeurIPS 2022, arXiv:2209.10485, as the package marl-eval reads it.
"""

import csv
import io
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import cycle
from pathlib import Path
from textwrap import fill
from typing import Literal, TypeAlias

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from fullrank.common.durable import replace_file, replace_text, writing
from fullrank.common.errors import FullrankError
from fullrank.common.text import drawn, plain
from fullrank.common.types import JSON, Array
from fullrank.runs.aggregates import Band, Study, band, interquartile_mean, mean
from fullrank.runs.statistics import RunResult

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#4a4f55")
"""Colours of methods, which the colour-blind tell apart, in rotation."""
STYLES: Sequence[Literal["-", "--", ":", "-."]] = ("-", "--", ":", "-.")
"""Line styles of further methods than colours."""
ROW = 32
"""Most characters of a line that names a row."""
EVALUATIONS = 20
"""Points of a training curve in marl-eval's JSON."""
ENVIRONMENT = "fullrank"
"""Name in this JSON of the environment to which all tasks belong."""

MethodLooks: TypeAlias = Mapping[str, tuple[str, str]]
"""Colour and line style by method."""


def looks_of(methods: Iterable[str]) -> MethodLooks:
    """A colour and a line style for each method."""
    looks = [(colour, style) for style in STYLES for colour in COLOURS]
    return dict(zip(methods, cycle(looks), strict=False))


def write(study: Study, folder: Path) -> Iterator[Path]:
    """Write figure and numbers into a folder, which is made; yields the files.

    Raises:
        FullrankError: A file cannot be written.
    """
    texts = {
        "scores.csv": table(study),
        "scores.tex": latex(study),
        "marl_eval.json": json.dumps(marl_eval(study), indent=1),
    }
    figure = draw(study)
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("comparison.png", "comparison.pdf"):
            save(figure, folder / name)
            yield folder / name
        for name, text in texts.items():
            replace_text(folder / name, text)
            yield folder / name


def blank(width: float, height: float) -> Figure:
    """An empty figure of a size in inches."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def tidy(axes: Axes) -> None:
    """Draw a faint grid, and no lines above and to the right."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25, linewidth=0.6)


def save(figure: Figure, path: Path) -> None:
    """Write a picture in the format of the path's suffix.

    Raises:
        FullrankError: It cannot be written, or there is no such format.
    """
    try:
        with replace_file(path) as file:
            figure.savefig(file, format=path.suffix[1:] or None, dpi=150)
    except (OSError, ValueError) as error:
        raise FullrankError(f"cannot write {path}: {error}") from error


def draw(study: Study) -> Figure:
    """Aggregate scores, performance profiles, probabilities of improvement, sample efficiency."""
    pairs = len(study.methods) * (len(study.methods) - 1) // 2
    rows = max(4.0, 1.5 + 0.35 * max(pairs, len(study.methods)))
    figure = blank(12, 4.2 + rows)
    ((scores, profiles), (pairwise, curves)) = figure.subplots(2, 2, height_ratios=(rows, 4))
    looks = looks_of(study.methods)
    _scores(scores, study, looks)
    _profiles(profiles, study, looks)
    _improvements(pairwise, study)
    _curves(curves, study, looks)
    for axes in (scores, profiles, pairwise, curves):
        tidy(axes)
    handles = profiles.get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=4, frameon=False)
    tasks = ", ".join(study.cells)
    figure.suptitle(drawn(f"{tasks}: 95 % intervals over runs, by task"), fontsize=11)
    return figure


def _scores(axes: Axes, study: Study, looks: MethodLooks) -> None:
    for place, method in enumerate(study.methods):
        colour, _ = looks[method]
        for statistic, at, face in (
            (interquartile_mean, place - 0.13, colour),
            (mean, place + 0.13, "white"),
        ):
            _interval(axes, study.score(method, statistic), at, colour, face)
    _rows(axes, study.methods)
    axes.set_xlabel("score: interquartile mean (filled), mean (hollow)")


def _profiles(axes: Axes, study: Study, looks: MethodLooks) -> None:
    found = np.concatenate([each for method in study.methods for each in study.scores(method)])
    room = 0.05 * float(np.ptp(found)) or 0.05
    thresholds = np.linspace(found.min() - room, found.max() + room, 200)
    for method, look in looks.items():
        draw_band(axes, thresholds, study.profile(method, thresholds), look, label=method)
    axes.set_xlabel("score")
    axes.set_ylabel("share of runs above")


def _improvements(axes: Axes, study: Study) -> None:
    improvements = study.improvements()
    for place, found in enumerate(improvements.values()):
        _interval(axes, found, place, "#333333", "#333333")
    axes.axvline(0.5, color="#333333", linewidth=0.9, linestyle="--")
    _rows(axes, [f"{better} over {other}" for better, other in improvements])
    axes.set_xlim(-0.02, 1.02)
    axes.set_xlabel("probability of improvement")


def _interval(axes: Axes, found: Band, at: float, colour: str, face: str) -> None:
    axes.plot([found.low[0], found.high[0]], [at, at], color=colour, linewidth=2)
    axes.plot(found.centre[0], at, "o", color=colour, markerfacecolor=face)


def _rows(axes: Axes, names: Sequence[str]) -> None:
    axes.set_yticks(range(len(names)), [fill(drawn(name), ROW) for name in names])
    axes.set_ylim(len(names) - 0.5, -0.5)


def _curves(axes: Axes, study: Study, looks: MethodLooks) -> None:
    steps, learnt = study.curves()
    if not steps:
        axes.text(0.5, 0.5, "no training curves", ha="center", transform=axes.transAxes)
        return
    first, *others = steps.values()
    alike = all(np.allclose(first, other) for other in others)
    for method, look in looks.items():
        found = band(learnt[method], interquartile_mean)
        draw_band(axes, first if alike else 100 * first / first[-1], found, look, label=method)
    axes.set_xlabel("environment steps" if alike else "environment steps in % of each task's")
    axes.set_ylabel("score in training, IQM")


def draw_band(axes: Axes, x: Array, found: Band, look: tuple[str, str], *, label: str) -> None:
    """Draw a statistic over its interval."""
    colour, style = look
    axes.plot(x, found.centre, color=colour, linestyle=style, linewidth=1.8, label=drawn(label))
    axes.fill_between(x, found.low, found.high, color=colour, alpha=0.15, linewidth=0)


def table(study: Study) -> str:
    """CSV with a line for each run."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(["task", "method", "seed", "iterations", "measure", "result", "score"])
    for task, method, run in _runs(study):
        score = float(study.scaled(task, np.array(run.result)))
        rows.writerow([task, method, run.seed, run.iterations, run.measure, run.result, score])
    return text.getvalue()


def _runs(study: Study) -> Iterator[tuple[str, str, RunResult]]:
    for task, played in study.cells.items():
        for method in study.methods:
            for run in played[method]:
                yield task, method, run


def latex(study: Study) -> str:
    """LaTeX table of the package booktabs: interquartile means with intervals, by method."""
    tasks = " & ".join(map(_escaped, study.cells))
    lines = [rf"\begin{{tabular}}{{l{'r' * (len(study.cells) + 1)}}}", r"\toprule"]
    lines += [rf"method & {tasks} & score \\", r"\midrule"]
    for method in study.methods:
        results = [study.results(task, method) for task in study.cells]
        bands = [*(band([each], interquartile_mean) for each in results), study.score(method)]
        lines.append(rf"{_escaped(method)} & {' & '.join(map(_shown, bands))} \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def _shown(found: Band) -> str:
    """A statistic with its interval, where there is one."""
    centre, low, high = (float(end[0]) for end in found)
    digits = 1 if abs(centre) >= 10 else 2
    interval = "" if math.isnan(low) else rf"\ [{low:.{digits}f}, {high:.{digits}f}]"
    return f"${centre:.{digits}f}{interval}$"


def _escaped(text: str) -> str:
    return re.sub(r"([#$%&_{}])", r"\\\1", plain(text))


def marl_eval(study: Study) -> JSON:
    """Runs as marl-eval's JSON: environment, task, algorithm, run, step.

    Steps are points of the training curves, as many in every run; ``absolute_metrics`` are the
    greedy episodes. The measure of the tasks is left out where they have several.
    """
    steps, learnt = study.curves(points=EVALUATIONS)
    measures = {run.measure for _, _, run in _runs(study)}
    named = (
        {measure.removesuffix("/mean").replace("/", "_") for measure in measures}
        if len(measures) == 1
        else set()
    )
    facts: JSON = {}
    for index, (task, played) in enumerate(study.cells.items()):
        zero, one = study.scales[task]
        for method in study.methods:
            for number, run in enumerate(played[method]):
                at = facts.setdefault(task, {}).setdefault(method, {})[f"seed_{run.seed}"] = {}
                scored = learnt[method][index][number] if learnt else ()
                for step, score in enumerate(scored):
                    raw = {name: [float(zero + (one - zero) * score)] for name in named}
                    at[f"step_{step}"] = {
                        "step_count": round(float(steps[task][step])),
                        **raw,
                        "score": [float(score)],
                    }
                episodes = np.array(run.episodes)
                at["absolute_metrics"] = {name: episodes.tolist() for name in named}
                at["absolute_metrics"]["score"] = study.scaled(task, episodes).tolist()
    return {ENVIRONMENT: facts}
