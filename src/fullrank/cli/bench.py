"""``fullrank bench``: train algorithms on tasks with several seeds and settings, and compare."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer
from pydantic import ConfigDict, TypeAdapter

from fullrank.cli.compare import EPISODES, SEED, played, report
from fullrank.cli.runs import RUNS
from fullrank.cli.say import say
from fullrank.cli.train import begin, go_on, of_new_run
from fullrank.common.errors import ConfigError, FullrankError
from fullrank.common.foreign import read_regular
from fullrank.common.schema import validated
from fullrank.config.layers import Resolved, load, resolve
from fullrank.config.leaves import SETTINGS, flatten, read_toml
from fullrank.config.toml import config_digest, read_config
from fullrank.runs.ending import read_ending


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
            ConfigError: One is wrong, or two have the same directory.
        """
        found: dict[Path, Resolved] = {}
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
    runs, failed = plan.runs(), dict[Path, FullrankError]()
    for number, (path, sized) in enumerate(runs.items(), start=1):
        say(f"run {number} of {len(runs)}: {path}")
        logging.root.handlers.clear()  # those of the run before
        try:
            _train(path, sized, local=not plan.services)
        except FullrankError as error:
            failed[path] = error
            say(f"failed: {error}", error=True)
    done = [path for path in runs if path not in failed]
    results = [played(path, read_config(path), episodes=EPISODES, seed=SEED) for path in done]
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


def _table(entry: str | Mapping[str, Any]) -> Mapping[str, Any]:
    return {"name": entry} if isinstance(entry, str) else entry


def _word(entry: str | Mapping[str, Any]) -> str:
    """Part of a directory's name for an algorithm or a task."""
    own = {key: value for key, value in _table(entry).items() if key != "name"}
    return "-".join([str(_table(entry).get("name", "")), *(f"{k}={v}" for k, v in own.items())])
