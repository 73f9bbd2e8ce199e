"""``fullrank train``: a new run on services of this host or here, shown live."""

import os
import shutil
import time
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, TypeAlias

import numpy as np
import typer

from fullrank.cli.options import (
    AgentsOption,
    ConfigOption,
    DelayOption,
    LocalOption,
    SeedOption,
    SetOption,
    StragglersOption,
    TopologyOption,
    VerboseOption,
    size_options,
)
from fullrank.cli.runs import adopt, default_run_dir, make_directory, runnable_config
from fullrank.cli.say import say, starting
from fullrank.cli.this_host import attached
from fullrank.codes import codes
from fullrank.common.cores import usable_cores
from fullrank.common.durable import replace_text
from fullrank.common.errors import ConfigError, RunDirectoryInUse, ServiceLost
from fullrank.config.code import code_of
from fullrank.config.elsewhere import remember_run
from fullrank.config.layers import Resolved, load
from fullrank.config.plugins import EPISODIC, ON_POLICY, PER_AGENT, learns_episodes, spec_of
from fullrank.config.toml import to_toml
from fullrank.config.tree import RunConfig
from fullrank.config.trust import remember
from fullrank.environments.base import is_adapted
from fullrank.host.certificates import initialise, today
from fullrank.runs.identity import check_continues
from fullrank.runs.record import METRICS

CERTIFIED_DAYS = 365
"""Validity of the certificates of ``--tls``; afterwards ``fullrank certs rotate``."""


EnvironmentOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--env",
        help="Environment: a registered name, or package.module:factory; `fullrank env check` "
        "shows what is understood of it.",
    ),
]
AlgorithmOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--algorithm",
        help=f"Algorithm: {', '.join((*PER_AGENT, *EPISODIC))}, or the name of a plug-in.",
    ),
]
LearnersOption: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--learners",
        help="Number of learners N; default: one for each core, at least 2 and at most one for "
        "each unit; as many as the code needs if a code, its tolerance or stragglers are chosen.",
    ),
]
CollectorsOption: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--collectors",
        help="Number of processes that play episodes; default: the controller plays.",
    ),
]
CodeOption: TypeAlias = Annotated[
    str | None, typer.Option("--code", help="Code; `fullrank codes list` shows all.")
]
IterationsOption: TypeAlias = Annotated[
    int | None, typer.Option("--iterations", help="Number of iterations to commit.")
]
RunDirOption: TypeAlias = Annotated[
    Path | None,
    typer.Option("--run-dir", help="Directory of the run, new or empty; default: one below runs/."),
]
TlsOption: TypeAlias = Annotated[
    bool, typer.Option("--tls", help="Authenticate the services by certificates of this run.")
]


def train(
    config: ConfigOption = None,
    overrides: SetOption = None,
    env: EnvironmentOption = None,
    algorithm: AlgorithmOption = None,
    agents: AgentsOption = None,
    learners: LearnersOption = None,
    topology: TopologyOption = None,
    collectors: CollectorsOption = None,
    code: CodeOption = None,
    stragglers: StragglersOption = None,
    delay: DelayOption = None,
    iterations: IterationsOption = None,
    seed: SeedOption = None,
    run_dir: RunDirOption = None,
    tls: TlsOption = False,
    local: LocalOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Train a team on services of this host, or by --local in this one process.

    The services are a controller, a replay service and learners, processes that start and stop with
    this command. Settings, files and bits are the same both ways; one process takes less CPU, and
    only learners can be late or die. After Ctrl-C a run is resumed either way.
    """
    sizes = size_options(
        agents=agents, learners=learners, stragglers=stragglers, delay=delay, seed=seed
    )
    names = {"environment.name": env, "algorithm.name": algorithm, "code.name": code}
    counts = {"iterations": iterations, "collectors.count": collectors}
    options = {**sizes, **names, **counts}
    layers = load(
        config, environ=os.environ, overrides=overrides or (), options=options, topology=topology
    )
    sized = of_new_run(layers, local=local)
    begin(sized, run_dir, local=local, tls=tls, verbose=verbose)


def begin(
    sized: Resolved,
    run_dir: Path | None,
    *,
    local: bool,
    tls: bool = False,
    verbose: bool = False,
) -> None:
    """Train a new run to its end.

    Args:
        sized: Configuration, as of ``of_new_run``.
        run_dir: Directory, new or empty; None: one below runs/.
        local: True to train in this process.
        tls: True to make certificates for the services.
        verbose: True to show the coding of each iteration.

    Raises:
        RunDirectoryInUse: The directory holds something.
        FullrankError: The run failed.
    """
    resolved = sized.config
    for line in costs_of(sized):
        say(line)
    say(starting("train"))
    from fullrank.cli.processes import run_to_end  # imports gRPC, which no wrong setting waits for

    path = claim(resolved, run_dir)
    with attached(path):
        if tls:
            resolved = _certified(resolved, path / "certificates")
        try:
            write_settings(path, resolved)
            run_to_end(path, resolved, local=local, coding=verbose)
        except Exception as error:
            _discard_if_unused(path, keep=("logs",) if isinstance(error, ServiceLost) else ())
            raise


def write_settings(path: Path, config: RunConfig) -> None:
    """Write the configuration of a new run of this user into its directory."""
    replace_text(path / "config.toml", to_toml(config))
    remember(config.environment)
    remember_run(path)


LARGE = 4096
"""Entries of an observation from which on a run says what it costs before it begins."""


def costs_of(sized: Resolved) -> Iterator[str]:
    """Say how large networks and rows are where observations are large, and what an update costs.

    The update of a minibatch of random episodes is timed.

    Raises:
        ConfigError: The networks do not fit this machine.
    """
    config = sized.config
    if not is_adapted(config.environment.name):
        return
    spec = sized.environment or spec_of(config)
    if max(agent.observation_size for agent in spec.agents) < LARGE:
        return
    from fullrank.wiring import plugins  # imports torch

    problem = plugins.problem_that_fits(plugins.algorithm_config_of(config), spec)
    networks, bytes_ = plugins.networks_of(problem)
    step = f"{4e-3 * problem.row_size:.3g} kB a step of all agents"
    said = f"{networks}: {bytes_ / 1e9:.2g} GB with targets and moments, and {step}"
    if problem.episodes is None:
        yield f"{said}, a minibatch of {4e-9 * problem.row_size * problem.data.batch_size:.2g} GB"
        return
    algorithm = plugins.algorithm_of(config, spec)
    generator, units = np.random.default_rng(0), range(len(problem.units))
    rows = problem.episodes.synthetic(generator, problem.data.batch_size)
    began_s = time.process_time()
    for _ in algorithm.gradients.compute(rows, units, iteration=0):
        pass
    each_s = (time.process_time() - began_s) / len(rows)
    yield f"{said}; an update takes about {100 * each_s:.2g} CPU s for every 100 steps of a copy"


def of_new_run(layers: Resolved, *, local: bool) -> Resolved:
    """Size and check the configuration of a run that begins.

    Raises:
        ConfigError: A value is impossible, or the code does not exist for the sizes.
    """
    sized = without_redundancy(layers.size())
    _ensure_code(sized)
    ranks, stragglers = sized.config.ranks.count, sized.config.stragglers.name
    if not local and ranks > 1:
        raise ConfigError(
            f"ranks.count = {ranks} divides the updates of one process, and services have no "
            "ranks: add --local, or drop the ranks"
        )
    if local and stragglers != "none":
        raise ConfigError(
            f"stragglers.name = {stragglers!r} delays learners, and --local has none: drop "
            "--local, or the stragglers"
        )
    return on_one_device(sized) if local else sized


def without_redundancy(sized: Resolved) -> Resolved:
    """Tolerate no late learner on this host, unless the user asks for it (ADR 49).

    Code, tolerance or learners of the user's choice, injected stragglers and ``audit.byzantine``
    ask for it, as do independent samples, which decoding averages.
    """
    config, code = sized.config, sized.config.code
    asked = any(
        key.partition(".")[0] in ("code", "learners") and not origin.startswith("default")
        for key, origin in sized.origin.items()
    )
    injected = config.stragglers.name != "none"
    averaged = config.algorithm.params.get("data") == "independent"
    if asked or injected or averaged or config.audit.byzantine:
        return sized
    units, _ = sized.units()
    learners = min(units, max(2, usable_cores()))  # one that dies is survived by another
    none = replace(code, params={**code.params, **(codes.get(code.name).tolerating(0) or {})})
    return replace(sized, config=replace(config, code=none, learners=learners))


def on_one_device(sized: Resolved) -> Resolved:
    """Keep the parameters where a run in one process computes, unless the user says where."""
    if not sized.origin.get("controller.device", "default").startswith("default"):
        return sized
    config = sized.config
    controller = replace(config.controller, device=config.compute.device)
    return replace(sized, config=replace(config, controller=controller))


def _ensure_code(sized: Resolved) -> None:
    """Refuse a code that does not exist for the sizes, and iterations, before anything is made.

    Raises:
        CodeError: The code does not exist, or does not recover the algorithm's target.
        ConfigError: The iterations end within the updates over a collection.
    """
    units, target = sized.units()
    code_of(sized.config, units=units, target=target)
    name = sized.config.algorithm.name
    if name in ON_POLICY or (name not in EPISODIC and learns_episodes(name)):
        from fullrank.wiring.training import updates_of  # torch, which these have imported

        updates_of(sized.config, sized.problem())


def claim(config: RunConfig, run_dir: Path | None) -> Path:
    """Make, or check, the empty directory of the run."""
    if run_dir is None:
        return default_run_dir(config)
    left_over = {"logs"}  # from a run that failed before its first iteration
    if run_dir.exists() and (
        not run_dir.is_dir() or {entry.name for entry in run_dir.iterdir()} - left_over
    ):
        raise RunDirectoryInUse(
            f"{run_dir} is not empty; `fullrank run resume {run_dir}` continues it; or choose "
            "another"
        )
    make_directory(run_dir)
    return run_dir


def _certified(config: RunConfig, folder: Path) -> RunConfig:
    """Make certificates for this run; the configuration with their directory."""
    initialise(folder, run="local", days=CERTIFIED_DAYS, now=today())
    return replace(config, tls=replace(config.tls, certificates=str(folder.absolute())))


def _discard_if_unused(path: Path, *, keep: Collection[str]) -> None:
    """Remove the files of a run that committed no iteration, except the entries ``keep``."""
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


def go_on(path: Path, *, local: bool, trust: Collection[str] = (), verbose: bool = False) -> None:
    """Continue a run from its newest checkpoint, in this terminal, to its end.

    Args:
        path: Directory of the run.
        local: True to train in this process.
        trust: Values of ``--trust``.
        verbose: True to show the coding of each iteration.

    Raises:
        FullrankError: The run cannot go on, or failed.
    """
    config = continued(path, trust)
    say(starting("run resume"))
    from fullrank.cli.processes import run_to_end  # imports gRPC, which no wrong setting waits for

    with attached(path):
        adopt(path)
        run_to_end(path, config, local=local, coding=verbose)


def continued(path: Path, trust: Collection[str]) -> RunConfig:
    """The configuration of a run that is to go on.

    Raises:
        FullrankError: It cannot.
    """
    if not (path / "config.toml").exists():
        raise ConfigError(f"{path} holds no config.toml; it is not a run directory")
    check_continues(path)
    return runnable_config(path, trust)
