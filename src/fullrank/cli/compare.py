"""``fullrank compare``: returns and win rates of several runs' policies, with intervals."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Self, TypeAlias

import typer
from rich.table import Table

from fullrank.cli.options import (
    EpisodesOption,
    InitialSeedOption,
    JsonOption,
    TrustOption,
)
from fullrank.cli.policies import play_episodes, play_references, trained
from fullrank.cli.runs import find_run, runnable_config
from fullrank.cli.say import say
from fullrank.cli.terminal import Terminal
from fullrank.common.errors import ConfigError
from fullrank.common.text import decimal
from fullrank.common.types import JSON, Array, Interval
from fullrank.config.tree import RunConfig, as_tables
from fullrank.runs.aggregates import Study
from fullrank.runs.record import METRICS, read_records
from fullrank.runs.scalars import RETURN, WIN_RATE, by_steps
from fullrank.runs.statistics import (
    GAP,
    WINS,
    RunResult,
    centre,
    difference,
    flat,
    grouped,
    labels,
)
from fullrank.training.evaluation import Evaluation, Greedy
from fullrank.training.references import GOOD, RANDOM, share_closed

SHARES = {WINS: "win_percent", GAP: "gap_closed_percent"}
"""Scores that are no returns, and their keys in JSON."""

EPISODES, SEED = 100, 1000
"""Greedy episodes of each run, and the seed of their initial states."""

OutOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--out",
        help="Folder for a figure of all tasks (PNG, PDF) and its numbers (CSV, LaTeX, marl-eval).",
    ),
]


def compare(
    runs: Annotated[
        list[Path], typer.Argument(help="Run directories, or their names below runs/.")
    ],
    episodes: EpisodesOption = EPISODES,
    seed: InitialSeedOption = SEED,
    out: OutOption = None,
    trust: TrustOption = None,
    as_json: JsonOption = False,
) -> None:
    """Play the newest policies of runs greedily; runs that differ only in the seed share a row.

    A row shows the interquartile mean over its runs with a 95 % bootstrap interval, and its
    difference from the first row, taken seed by seed.
    """
    directories = [find_run(run) for run in runs]
    configs = [runnable_config(directory, trust) for directory in directories]
    results = [
        played(directory, config, episodes=episodes, seed=seed)
        for directory, config in zip(directories, configs, strict=True)
    ]
    groups = grouped(results)
    for group in groups:
        _refuse_twins(group)
    rows = [
        _GroupRow.compared(group, groups[0], label=label or "every run")
        for group, label in zip(groups, labels(groups), strict=True)
    ]
    if as_json:
        facts = [row.facts() for row in rows]
        say(json.dumps({"episodes": episodes, "seed": seed, "groups": facts}))
    else:
        _show(rows, title=f"Greedy policies, {episodes} episodes a run [95 % interval over runs]")
    if out is not None:
        report(results, out, error=as_json)


def report(results: Sequence[RunResult], folder: Path, *, error: bool) -> None:
    """Write the figure and the numbers of a comparison into a folder, and say the verdict.

    Args:
        results: Results of the runs.
        folder: The folder, which is made.
        error: True to say it on standard error.

    Raises:
        ConfigError: No task was played by all methods.
        FullrankError: A file cannot be written.
    """
    from fullrank.cli.figures import write  # imports matplotlib

    study = Study.of(results)
    for line in study.verdict():
        say(line, error=error)
    for path in write(study, folder):
        say(path, error=error)


def played(directory: Path, config: RunConfig, *, episodes: int, seed: int) -> RunResult:
    """The result of the newest policies of a run, which play greedily.

    Raises:
        CheckpointUnusable: There is no usable checkpoint.
    """
    policies = trained(directory, config)
    greedy = play_episodes(config, Greedy(policies.algorithm.actor), episodes=episodes, seed=seed)
    settings = flat(as_tables(config))
    del settings["seed"]
    scores = {side: float(values.mean()) for side, values in greedy.side_returns.items()}
    if greedy.won is not None:
        scores[WINS] = 100 * float(greedy.won.mean())
    played_by = {"trained": greedy, **play_references(config, episodes=episodes, seed=seed)}
    if (closed := share_closed(played_by, "trained")) is not None:
        scores[GAP] = 100 * closed.mean
    measure, values, scale = _measured(played_by)
    metrics = directory / METRICS
    return RunResult(
        settings=settings,
        seed=config.seed,
        iterations=policies.iteration + 1,
        scores=scores,
        measure=measure,
        episodes=values.tolist(),
        scale=scale,
        curve=by_steps(read_records(metrics), measure) if metrics.exists() else {},
    )


def _measured(
    played_by: Mapping[str, Evaluation],
) -> tuple[str, Array, tuple[float, float] | None]:
    """Tag, values and scale of the result by which methods are compared over tasks.

    It is the win rate where there are wins, and else the return, the first side's of several.
    """
    played = played_by["trained"]
    if played.won is not None:
        return WIN_RATE, played.won.astype(float), (0.0, 1.0)
    if len(played.side_returns) > 1:
        side, values = next(iter(played.side_returns.items()))
        return f"return/{side}", values, None
    if GOOD not in played_by:
        return RETURN, played.returns, None
    low, high = (float(played_by[name].returns.mean()) for name in (RANDOM, GOOD))
    return RETURN, played.returns, (low, high) if low < high else None


def _refuse_twins(group: Sequence[RunResult]) -> None:
    seeds = [result.seed for result in group]
    twins = sorted({seed for seed in seeds if seeds.count(seed) > 1})
    if twins:
        raise ConfigError(
            f"several runs have the same configuration and seed {twins[0]}; name one of them"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _GroupRow:
    """Results of one group of runs."""

    label: str
    group: Sequence[RunResult]
    scores: Mapping[str, Interval]
    """Return of each side, and the win rate if there are wins."""
    differences: Mapping[str, Interval | None]
    """Difference of each score from the first group; None if they cannot be compared."""

    @classmethod
    def compared(
        cls, group: Sequence[RunResult], first: Sequence[RunResult], *, label: str
    ) -> Self:
        names = group[0].scores
        return cls(
            label=label,
            group=group,
            scores={name: centre(group, name) for name in names},
            differences={
                name: None if group is first else difference(group, first, name) for name in names
            },
        )

    def facts(self) -> JSON:
        """The row as JSON; a missing bound or difference is null."""
        returns = {name: _facts(value) for name, value in self.scores.items()}
        differences = {name: _facts(value) for name, value in self.differences.items()}
        facts: JSON = {
            "label": self.label,
            "seeds": [result.seed for result in self.group],
            "iterations": [result.iterations for result in self.group],
        }
        for score, key in SHARES.items():
            if score in returns:
                facts[key] = returns.pop(score)
                facts[f"{key}_difference"] = differences.pop(score)
        return {**facts, "returns": returns, "differences": differences}

    def lines(self) -> Iterator[list[str]]:
        """Table lines, one for each score."""
        learnt = sorted({result.iterations for result in self.group})
        head = [self.label, str(len(self.group)), ", ".join(map(str, learnt))]
        for name, value in self.scores.items():
            shown = name if name in SHARES else f"return of {name}"
            yield [*head, shown, _shown(value), _shown(self.differences[name])]
            head = [""] * len(head)


def _shown(interval: Interval | None) -> str:
    """The interval as text, its mean alone where a single run gives no bounds."""
    if interval is None:
        return ""
    return str(interval) if math.isfinite(interval.low) else decimal(interval.mean)


def _facts(interval: Interval | None) -> JSON | None:
    if interval is None:
        return None
    return {
        name: value if math.isfinite(value) else None for name, value in interval._asdict().items()
    }


def _show(rows: Sequence[_GroupRow], *, title: str) -> None:
    table = Table("", "runs", "iterations", "", title=title)
    for head in ("mean", "less the first"):
        table.add_column(head, no_wrap=True)
    for row in rows:
        for line in row.lines():
            table.add_row(*line)
    Terminal().print(table)
