"""``fullrank train`` and ``fullrank resume``: a run on local services, shown live."""

import os
import shutil
import time
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from fullrank.cli.options import ConfigOption, SetOption
from fullrank.cli.processes import Service, ensure_alive, services
from fullrank.cli.progress import View, view
from fullrank.cli.runs import default_run_dir, find_run, make_directory
from fullrank.common.errors import ConfigError, RunDirectoryInUse, ServiceLost
from fullrank.config import RunConfig, agents_of, from_toml, load, to_toml
from fullrank.rpc.certificates import initialise, today
from fullrank.rpc.seen import RunState
from fullrank.rpc.watch import Watch
from fullrank.runs.record import METRICS, follow
from fullrank.wiring import code_of

CERTIFIED_DAYS = 365
"""How long the certificates of ``--tls`` are valid; then ``fullrank certs rotate``."""

POLL_S = 0.2
"""Time between two looks at the run."""


def train(
    config: ConfigOption = None,
    overrides: SetOption = None,
    env: Annotated[
        str | None, typer.Option("--env", help="Environment name or package.module:factory.")
    ] = None,
    algorithm: Annotated[
        str | None, typer.Option("--algorithm", help="Algorithm name: maddpg, mfac, darl1n.")
    ] = None,
    agents: Annotated[int | None, typer.Option("--agents", help="M, agents.")] = None,
    learners: Annotated[
        int | None, typer.Option("--learners", help="N, learners; by default what the code needs.")
    ] = None,
    code: Annotated[str | None, typer.Option("--code", help="Code; see `fullrank codes list`.")] = (
        None
    ),
    stragglers: Annotated[
        int | None, typer.Option("--stragglers", help="Stragglers k in every iteration.")
    ] = None,
    delay: Annotated[
        float | None, typer.Option("--delay", help="Delay of each straggler, seconds.")
    ] = None,
    iterations: Annotated[
        int | None, typer.Option("--iterations", help="Iterations to commit.")
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Every draw follows from it.")] = None,
    run_dir: Annotated[
        Path | None, typer.Option("--run-dir", help="The run's own directory (new or empty).")
    ] = None,
    tls: Annotated[
        bool, typer.Option("--tls", help="Let the services know each other by certificates.")
    ] = False,
) -> None:
    """Train a team with coded updates on local services; Ctrl-C leaves a run to resume."""
    options = {
        "environment.name": env,
        "environment.agents": agents,
        "algorithm.name": algorithm,
        "learners": learners,
        "code.name": code,
        "stragglers.name": None if stragglers is None and delay is None else "fixed_k",
        "stragglers.k": stragglers,
        "stragglers.delay_s": delay,
        "iterations": iterations,
        "seed": seed,
    }
    layers = load(config, environ=os.environ, overrides=overrides or (), options=options)
    resolved = layers.size().config
    code_of(resolved, units=agents_of(resolved))
    path = _claim(resolved, run_dir)
    if tls:
        resolved = _certified(resolved, path / "certificates")
    (path / "config.toml").write_text(to_toml(resolved))
    try:
        _run(path, resolved)
    except Exception as error:
        _discard_if_unused(path, keep=("logs",) if isinstance(error, ServiceLost) else ())
        raise


def resume(
    run: Annotated[Path, typer.Argument(help="Run directory, or its name below runs/.")],
) -> None:
    """Go on with a run from its newest checkpoint."""
    path = find_run(run)
    configuration = path / "config.toml"
    if not configuration.exists():
        raise ConfigError(f"{path} holds no config.toml; it is not a run directory")
    _run(path, from_toml(configuration.read_text(), origin=str(configuration)))


def _claim(config: RunConfig, run_dir: Path | None) -> Path:
    """An empty directory for the run."""
    if run_dir is None:
        return default_run_dir(config)
    left_over = {"logs"}  # of a run that failed before its first iteration
    if run_dir.exists() and (
        not run_dir.is_dir() or {entry.name for entry in run_dir.iterdir()} - left_over
    ):
        raise RunDirectoryInUse(
            f"{run_dir} is not empty; go on with `fullrank resume {run_dir}` or choose another"
        )
    make_directory(run_dir)
    return run_dir


def _certified(config: RunConfig, folder: Path) -> RunConfig:
    """The configuration with certificates of this run's own, which are made."""
    initialise(folder, run="local", days=CERTIFIED_DAYS, now=today())
    return replace(config, tls=replace(config.tls, certificates=str(folder.absolute())))


def _discard_if_unused(path: Path, *, keep: Collection[str]) -> None:
    """Remove what a run left that never committed an iteration, but the entries ``keep``."""
    metrics = path / METRICS
    if metrics.exists() and metrics.stat().st_size:
        return
    for entry in path.iterdir():
        if entry.is_dir() and entry.name not in keep:
            shutil.rmtree(entry)
        elif entry.is_file():
            entry.unlink()
    if not keep:
        path.rmdir()


def _run(path: Path, config: RunConfig) -> None:
    console = Console()
    with services(path, learners=config.learners) as started, Watch(path, config) as watch:
        shown = view(console, iterations=config.iterations)
        try:
            shown.say(f"run {path}")
            _follow(path, shown, watch, started)
        except KeyboardInterrupt:
            shown.say(f"stopping; go on with: fullrank resume {path}")
            raise
        finally:
            shown.close()
    console.print(f"finished: {config.iterations} iterations in {path}", soft_wrap=True)


def _follow(path: Path, shown: View, watch: Watch, started: list[Service]) -> None:
    """Show what is committed until the run is finished.

    Raises:
        FullrankError: A service ended: its own error.
    """
    records = follow(path / METRICS)
    said = ""
    while True:
        committed = next(records)  # before the status, which then is no older than they are
        status = watch.status()
        if status.state is RunState.FINISHED:
            shown.show([*committed, *next(records)])
            return
        if status.message != said:
            shown.say(status.message or f"training in {path}")
        said = status.message
        shown.show(committed)
        ensure_alive(started)
        time.sleep(POLL_S)
