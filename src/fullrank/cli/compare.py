"""``fullrank compare`` and ``bench``: returns and win rates of several runs, with intervals."""

import json
import logging
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self, TypeAlias

import typer
from pydantic import ConfigDict, TypeAdapter
from rich.table import Table

from fullrank.cli.options import (
    EpisodesOption,
    InitialSeedOption,
    JsonOption,
    TrustOption,
)
from fullrank.cli.policies import play_episodes, play_references, trained
from fullrank.cli.runs import RUNS, find_run, runnable_config
from fullrank.cli.say import say
from fullrank.cli.terminal import Terminal
from fullrank.cli.train import begin, go_on, of_new_run
from fullrank.common.errors import ConfigError, FullrankError, NoEnd
from fullrank.common.foreign import read_regular
from fullrank.common.schema import validated
from fullrank.common.types import JSON, Array, Interval
from fullrank.config.elsewhere import compared
from fullrank.config.layers import Resolved, load, resolve
from fullrank.config.leaves import SETTINGS, flatten, read_toml
from fullrank.config.toml import config_digest, read_config
from fullrank.config.tree import RunConfig
from fullrank.runs.aggregates import Study
from fullrank.runs.ending import read_ending
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
    runs: Annotated[list[str], typer.Argument(help="Run directories, or their names below runs/.")],
    episodes: EpisodesOption = EPISODES,
    seed: InitialSeedOption = SEED,
    out: OutOption = None,
    trust: TrustOption = None,
    as_json: JsonOption = False,
) -> None:
    """Play the newest policies of runs greedily; runs that differ only in the seed share a row.

    A row shows the interquartile mean over its runs with a 95 % interval, Student's of fewer than
    ten runs, and its difference from the first row, taken seed by seed.
    """
    directories = [find_run(run) for run in runs]
    configs = [runnable_config(directory, trust) for directory in directories]
    results = []
    for directory, config in zip(directories, configs, strict=True):
        try:
            results.append(played(directory, config, episodes=episodes, seed=seed))
        except NoEnd as error:
            raise NoEnd(f"{directory}: {error}") from error
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
        shown = "interquartile means over runs [95 % interval]"
        _show(rows, title=f"Greedy policies, {episodes} episodes a run: {shown}")
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
        NoEnd: An episode does not end.
    """
    policies = trained(directory, config)
    greedy = play_episodes(config, Greedy(policies.algorithm.actor), episodes=episodes, seed=seed)
    settings = compared(config)
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
        returns = {name: value.facts() for name, value in self.scores.items()}
        differences = {
            name: None if value is None else value.facts()
            for name, value in self.differences.items()
        }
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
            yield [*head, shown, str(value), str(self.differences[name] or "")]
            head = [""] * len(head)


def _show(rows: Sequence[_GroupRow], *, title: str) -> None:
    table = Table("", "runs", "iterations", "", title=title)
    for head in ("mean", "less the first"):
        table.add_column(head, no_wrap=True)
    for row in rows:
        for line in row.lines():
            table.add_row(*line)
    Terminal().print(table)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """Contents of the file; every combination of its lists is a run."""

    algorithms: Sequence[str | Mapping[str, Any]]
    """Names of algorithms, or tables with their names and parameters."""
    tasks: Sequence[str | Mapping[str, Any]]
    """The same of environments."""
    seeds: Sequence[int]
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: {"": {}})
    """Configurations by name, each of which is combined with all others of the lists."""
    common: Mapping[str, Any] = field(default_factory=dict)
    """Configuration of all runs."""
    directory: str = ""
    """Directory of the runs; default: one below runs/ with the name of the file."""
    services: bool = False
    """True to train on services of this host, false to train in this process."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    def runs(self) -> dict[Path, Resolved]:
        """Configurations by directory, seed by seed.

        Raises:
            ConfigError: One is wrong or not what its directory says, or two are alike.
        """
        found: dict[Path, Resolved] = {}
        alike: dict[frozenset[tuple[str, Hashable]], Path] = {}
        for seed, task, algorithm, (setting, own) in product(
            self.seeds, self.tasks, self.algorithms, self.settings.items()
        ):
            words = [_word(task), _word(algorithm), setting, f"seed{seed}"]
            path = Path(self.directory, "-".join(filter(None, words)).replace("/", "_"))
            if path in found:
                raise ConfigError(f"the bench has two runs {path}: give each of its entries once")
            tables = {"environment": _table(task), "algorithm": _table(algorithm)}
            names = {key: {"name": table.get("name", "")} for key, table in tables.items()}
            chosen = {**tables, "seed": seed}
            layers = [flatten(each, str(path)) for each in (names, self.common, chosen, own)]
            found[path] = of_new_run(resolve(layers), local=not self.services)
            config = found[path].config
            _refuse_other(config, chosen, setting)
            twin = alike.setdefault(frozenset(compared(config).items()), path)
            if twin != path:
                both = f"{twin} and {path} have the same configuration and seed {seed}"
                raise ConfigError(f"{both}: drop one of them")
        return found


def bench(
    file: Annotated[
        Path,
        typer.Argument(
            help="TOML file with `algorithms`, `tasks` and `seeds`, and perhaps `common`, "
            "`settings`, `directory` and `services = true`, which trains on services of this host "
            "instead of in this process; examples/bench.toml shows them."
        ),
    ],
) -> None:
    """Train every combination of algorithm, task, seed and setting, and compare them in a figure.

    A run that fails is said and passed over; the exit code is then that of the first. Finished runs
    are passed over and others resumed: after Ctrl-C, or a failure, give the command again.
    """
    facts = read_toml(read_regular(file, SETTINGS.size), str(file))
    plan = validated(TypeAdapter(Bench), facts, origin=str(file))
    plan = replace(plan, directory=plan.directory or str(RUNS / file.stem))
    runs, failed, results = plan.runs(), dict[Path, FullrankError](), list[RunResult]()
    for number, (path, sized) in enumerate(runs.items(), start=1):
        say(f"run {number} of {len(runs)}: {path}")
        logging.root.handlers.clear()  # those of the run before
        try:
            _train(path, sized, local=not plan.services)
            results.append(played(path, read_config(path), episodes=EPISODES, seed=SEED))
        except FullrankError as error:
            failed[path] = error
            say(f"failed: {error}", error=True)
    if results or not failed:
        report(results, Path(plan.directory, "comparison"), error=False)
    if failed:
        reasons = "; ".join(f"{path}: {error}" for path, error in failed.items())
        first = next(iter(failed.values()))
        raise type(first)(f"{len(failed)} of {len(runs)} runs failed: {reasons}")


def _train(path: Path, sized: Resolved, *, local: bool) -> None:
    """Begin a run, go on with it, or leave it as it is.

    Raises:
        ConfigError: It was trained with other settings.
    """
    if not (path / "config.toml").exists():
        begin(sized, path, local=local)
        return
    stored, wanted = load(path / "config.toml").check().config, sized.check().config
    same = config_digest(stored) == config_digest(wanted)
    if not same or stored.iterations != wanted.iterations:
        raise ConfigError(f"{path} has other settings than the bench; choose another directory")
    ending = read_ending(path)
    if ending is None or ending.state != "finished":
        go_on(path, local=local)


def _refuse_other(config: RunConfig, chosen: JSON, setting: str) -> None:
    """Refuse a run of another seed, task or algorithm than its entries'.

    Raises:
        ConfigError: A table of settings has replaced one.
    """
    names = {"environment.name": config.environment.name, "algorithm.name": config.algorithm.name}
    listed = flat(chosen)
    for key, value in {"seed": config.seed, **names}.items():
        if listed.get(key, value) != value:
            raise ConfigError(
                f"[settings.{setting}] sets {key} to {value!r} in a run of {listed[key]!r}: list "
                "it in `seeds`, `tasks` or `algorithms`"
            )


def _table(entry: str | Mapping[str, Any]) -> Mapping[str, Any]:
    return {"name": entry} if isinstance(entry, str) else entry


def _word(entry: str | Mapping[str, Any]) -> str:
    """Part of a directory's name for an algorithm or a task."""
    own = {key: value for key, value in _table(entry).items() if key != "name"}
    return "-".join([str(_table(entry).get("name", "")), *(f"{k}={v}" for k, v in own.items())])
