"""``fullrank train``: a new run on services of this host or here, shown live."""

import os
import shutil
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from fullrank.algorithms.base import EnvironmentSpec, layout_of
from fullrank.algorithms.problem import Problem
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
from fullrank.config.plugins import (
    EPISODIC,
    ON_POLICY,
    PER_AGENT,
    SEEING,
    complete,
    learns_episodes,
    spec_of,
)
from fullrank.config.toml import to_toml
from fullrank.config.tree import RunConfig
from fullrank.config.trust import remember
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
            with suppress(OSError):  # as of a link to a directory, or of "."
                _discard_if_unused(path, keep=("logs",) if isinstance(error, ServiceLost) else ())
            raise


def write_settings(path: Path, config: RunConfig) -> None:
    """Write the configuration of a new run of this user into its directory."""
    replace_text(path / "config.toml", to_toml(config))
    remember(config.environment)
    remember_run(path)


LARGE_BYTES = 10**9
"""Bytes of all networks, targets and moments from which on a run says what it costs."""
LARGE_ROW_BYTES = 64_000
"""Bytes of a row of replay from which on it does."""
HIDDEN, LAYERS, NETWORKS = 128, 2, 3
"""Most hidden entries, layers and networks of an agent by default, among ``PER_AGENT``."""


def costs_of(sized: Resolved) -> Iterator[str]:
    """Say what is large about a run: networks, rows and replay; then what an update costs.

    Raises:
        ConfigError: The networks do not fit this machine.
    """
    config, name = sized.config, sized.config.algorithm.name
    spec = sized.environment or spec_of(config)
    if name in PER_AGENT:
        if all(agent.image is not None for agent in spec.agents):
            seeing = ", ".join(SEEING)
            yield f"{name} flattens images into numbers; {seeing} see them by convolutions"
        large_row = 4 * spec.layout.row_size > LARGE_ROW_BYTES
        if not large_row and _most_bytes(config, spec) <= LARGE_BYTES:
            return  # without an import of torch
    from fullrank.wiring import plugins  # imports torch
    from fullrank.wiring.training import rows_held

    config = complete(config, sized.origin, tables=["algorithm"])
    problem = plugins.problem_that_fits(plugins.algorithm_config_of(config), spec)
    (networks, bytes_), row_bytes = plugins.networks_of(problem), 4 * problem.row_size
    drawn = problem.data.batch_size
    if bytes_ <= LARGE_BYTES and (not drawn or row_bytes <= LARGE_ROW_BYTES):
        return
    said = f"{networks}: {bytes_ / 1e9:.3g} GB with targets and moments"
    if drawn:
        rows, asked = rows_held(config, problem), config.replay.capacity
        said += f"; {row_bytes / 1e3:.3g} kB a step of all agents, of which replay holds {rows}"
        said += f" of {asked} (replay.capacity_bytes)" if rows < asked else ""
    yield said
    yield from _cost_of_update(config, spec, problem)


def _cost_of_update(config: RunConfig, spec: EnvironmentSpec, problem: Problem) -> Iterator[str]:
    """Time an update of a random minibatch on a CPU; nothing is timed for a card."""
    from fullrank.algorithms.devices import device_of
    from fullrank.training.worker import probe_batch
    from fullrank.wiring.plugins import algorithm_of

    if device_of(config.compute.device, accelerated=problem.accelerated).type != "cpu":
        return
    gradients = algorithm_of(config, spec).gradients
    batch = probe_batch(problem, layout_of(spec.agents, masked=problem.masked), seed=config.seed)
    began_s = time.process_time()
    for _ in gradients.compute(batch, range(len(problem.units)), iteration=0):
        pass
    update_s = time.process_time() - began_s
    if problem.episodes:
        each_s = 100 * update_s / len(batch)
        yield f"an update takes about {each_s:.2g} CPU s for every 100 steps of a copy"
        return
    whole_h = update_s * config.iterations / 3600
    yield (
        f"an iteration takes about {update_s:.3g} CPU s, {config.iterations} iterations "
        f"{whole_h:.3g} CPU h"
    )


def _most_bytes(config: RunConfig, spec: EnvironmentSpec) -> int:
    """Bound the bytes of the networks of an algorithm of ``PER_AGENT``, with targets and moments.

    No network has more inputs than all observations and, twice, all actions.
    """
    params, actions = config.algorithm.params, [agent.action.size for agent in spec.agents]
    hidden, layers = params.get("hidden", HIDDEN), params.get("hidden_layers", LAYERS)
    inputs = sum(agent.observation_size for agent in spec.agents) + 2 * sum(actions)
    weights = (inputs + layers * hidden + 2 * max(actions) + 1) * (hidden + 1)
    bound: int = 4 * 4 * NETWORKS * len(spec.agents) * weights
    return bound


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
