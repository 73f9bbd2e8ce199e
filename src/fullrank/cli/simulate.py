"""``fullrank simulate``: compare codes on a simulated cluster, in virtual time."""

import json
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import numpy as np
import typer
from rich.table import Table

from fullrank.algorithms import Problem
from fullrank.cli.options import (
    AgentsOption,
    ConfigOption,
    DelayOption,
    JsonOption,
    SeedOption,
    SetOption,
    StragglersOption,
    resolve,
    size_options,
)
from fullrank.cli.say import say, say_json
from fullrank.cli.terminal import Terminal
from fullrank.codes import Code, codes
from fullrank.common.errors import CodeError, ConfigError, NotDecodable
from fullrank.common.types import JSON, Times
from fullrank.config.code import code_of
from fullrank.config.plugins import complete_code
from fullrank.config.tree import PluginSettings, RunConfig
from fullrank.planning.candidates import HEDGED
from fullrank.planning.cluster import Cluster
from fullrank.planning.costs import Payload
from fullrank.planning.simulation import SimulatedRounds
from fullrank.planning.simulation import simulate as run
from fullrank.stragglers import FixedK
from fullrank.wiring.plugins import delays_of, max_variance_of

Make: TypeAlias = Callable[[str, Mapping[str, Any]], Code]
"""Makes a code from its name and parameters."""

MEASURED = ("median_s", "p95_s", "waited", "received_mean", "sent_bytes")
"""Facts that simulated rounds give for a code; null for a code that never decodes, and for times
that have no end because a learner is away."""


CodesOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--code",
        metavar="NAME[,KEY=VALUE]...[,hedged]",
        help="Code to simulate, for example cyclic,tolerance=2; may be repeated. With hedged, idle "
        "learners compute late units again. Default: every code that fits, and uncoded,hedged.",
    ),
]
UnitOption: TypeAlias = Annotated[
    float, typer.Option("--unit-s", help="Computing time of a unit, in seconds.")
]
SpreadOption: TypeAlias = Annotated[
    float,
    typer.Option("--spread", help="Standard deviation of the logarithm of computing times."),
]
BandwidthOption: TypeAlias = Annotated[
    float,
    typer.Option(
        "--bandwidth", help="Bandwidth of the controller and of replay, bytes/s in each direction."
    ),
]
LatencyOption: TypeAlias = Annotated[
    float, typer.Option("--latency", help="One-way latency of a message, in seconds.")
]
RoundsOption: TypeAlias = Annotated[
    int, typer.Option("--iterations", help="Number of rounds to simulate.", min=1)
]
SimulatedLearnersOption: TypeAlias = Annotated[
    int | None,
    typer.Option("--learners", help="Number of learners N; default: as many as the code needs."),
]
SweepOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--sweep",
        metavar="PNG",
        help="Plot round times against learners (15 to 4096, k at least), stragglers and delay.",
    ),
]


def simulate(
    config: ConfigOption = None,
    overrides: SetOption = None,
    learners: SimulatedLearnersOption = None,
    agents: AgentsOption = None,
    code: CodesOption = None,
    unit_s: UnitOption = 0.1,
    spread: SpreadOption = 0.0,
    bandwidth: BandwidthOption = math.inf,
    latency: LatencyOption = 0.0,
    stragglers: StragglersOption = None,
    delay: DelayOption = None,
    iterations: RoundsOption = 200,
    sweep: SweepOption = None,
    seed: SeedOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare codes in virtual time: round times, rounds that wait for a straggler, load."""
    options = size_options(
        agents=agents, learners=learners, stragglers=stragglers, delay=delay, seed=seed
    )
    asked = resolve(config, overrides, options).with_environment()
    resolved, problem = asked.config, asked.problem()
    cluster = Cluster(
        unit_s=unit_s,
        spread=spread,
        latency_s=latency,
        bandwidth=bandwidth,
        replay_bandwidth=bandwidth,
        payload=Payload() if math.isinf(bandwidth) else Payload.of(problem),
    )
    limit, holders = max_variance_of(resolved), resolved.audit.byzantine + 1
    play = partial(run, seed=resolved.seed, max_variance=limit, holders=holders)
    if sweep is not None:
        _sweep(play, sweep, resolved, problem, cluster, code, iterations=iterations)
        return
    simulated = partial(play, cluster, delay_model=delays_of(resolved), iterations=iterations)
    results = _compared(simulated, resolved, problem, code)
    if as_json:
        say_json(results)
        return
    sizes = f"{resolved.learners} learners, {_work(resolved, problem)}, {iterations} rounds"
    _show(results, title=sizes + _noise(limit))


def _compared(
    simulated: Callable[..., SimulatedRounds],
    config: RunConfig,
    problem: Problem,
    asked: list[str] | None,
) -> dict[str, JSON]:
    """Facts of the codes, by label."""
    make = partial(_make, config, problem)
    named = [_parse(text, make) for text in asked] if asked else list(_applicable(make))
    if not asked:
        named += [(f"{name},{HEDGED}", code) for name, code in named if name == "uncoded"]
    return {
        label: _facts(code, partial(simulated, code=code, hedged=_is_hedged(label)))
        for label, code in named
    }


def _work(config: RunConfig, problem: Problem) -> str:
    """Describe what an iteration recovers: each agent's update, or sums of units."""
    if problem.recovers_units or problem.target is None:
        return f"{config.environment.agents} agents"
    sums, units = problem.target.shape
    return f"{units} units in {sums} sum{'s' * (sums > 1)}"


def _sweep(
    play: Callable[..., SimulatedRounds],
    picture: Path,
    config: RunConfig,
    problem: Problem,
    cluster: Cluster,
    asked: list[str] | None,
    *,
    iterations: int,
) -> None:
    """Simulate the codes over a range of learners, stragglers and delays, and plot the results."""
    from fullrank.cli import figures, sweep  # matplotlib takes a second

    late = delays_of(config)
    if not isinstance(late, FixedK):
        raise ConfigError("--sweep varies k stragglers and their delay: give --stragglers, --delay")
    if any(_is_hedged(text) for text in asked or []):
        raise ConfigError(f"--sweep plays no hedged rounds; leave ,{HEDGED} out of --code")
    curves = sweep.sweep(
        play,
        cluster,
        partial(_codes_for, config, problem, asked),
        learners=config.learners,
        stragglers=late,
        iterations=iterations,
    )
    for text in asked or []:
        if not any(text in by_code for by_code in curves.values()):
            _parse(text, partial(_make, config, problem))  # says why it exists nowhere
    title = (
        f"{_work(config, problem)}, {late.k} stragglers of {late.delay_s:g} s, "
        f"{cluster.bandwidth:.3g} bytes/s"
    )
    title += _noise(max_variance_of(config))
    figures.save(sweep.draw(curves, title=title), picture)
    say(picture)


def _codes_for(
    config: RunConfig, problem: Problem, asked: list[str] | None, learners: int
) -> Iterator[tuple[str, Code]]:
    """The codes of a sweep that exist for a number of learners."""
    from fullrank.cli import sweep

    make = partial(_make, replace(config, learners=learners), problem)
    if not asked:
        yield from _applicable(make, sweep.QUICK if learners > sweep.SLOW_FROM else codes)
        return
    for text in asked:
        with suppress(CodeError):
            yield _parse(text, make)


def _noise(limit: float) -> str:
    """End of a title: the variance that a round waits for, if there is one."""
    return "" if math.isinf(limit) else f", noise at most {limit:g}"


def _parse(text: str, make: Make) -> tuple[str, Code]:
    """A code from ``name,key=value,...``, whether its rounds are hedged or not."""
    name, *words = text.removesuffix(f",{HEDGED}").split(",")
    try:
        params = {key: json.loads(value) for key, _, value in (w.partition("=") for w in words)}
    except json.JSONDecodeError:
        raise ConfigError(
            f"--code {text}: expected NAME,KEY=NUMBER, for example cyclic,tolerance=2"
        ) from None
    given = PluginSettings(name=name, params=params)
    return text, make(name, complete_code(given, source=f"--code {text}").params)


def _is_hedged(label: str) -> bool:
    """True if idle learners compute for late ones."""
    return label.endswith(f",{HEDGED}")


def _applicable(make: Make, names: Iterable[str] = codes) -> Iterator[tuple[str, Code]]:
    """The codes among ``names`` that recover the target and exist for these sizes."""
    for name in names:
        try:
            yield name, make(name, {})
        except CodeError:
            continue


def _make(config: RunConfig, problem: Problem, name: str, params: Mapping[str, Any]) -> Code:
    """A code of the run's sizes that recovers the algorithm's target."""
    chosen = replace(config, code=PluginSettings(name=name, params=params))
    with warnings.catch_warnings(action="ignore"):  # conditions do not matter in virtual time
        return code_of(chosen, units=len(problem.units), target=problem.target)


def _facts(code: Code, simulated: Callable[[], SimulatedRounds]) -> JSON:
    """Printed facts of a code; its load alone if its rows do not determine the target."""
    facts: JSON = {"load_mean": float(code.load.mean()), "load_max": int(code.load.max())}
    try:
        rounds = simulated()
    except NotDecodable:
        return facts | dict.fromkeys(MEASURED)
    return facts | {
        "median_s": _percentile(rounds.round_s, 50),
        "p95_s": _percentile(rounds.round_s, 95),
        "waited": float(rounds.waited.mean()),
        "received_mean": float(np.mean([len(received) for received in rounds.received])),
        "sent_bytes": rounds.sent_bytes,
    }


def _percentile(round_s: Times, percent: int) -> float | None:
    """A round time; None if such a round waits for ever, for a learner that is away."""
    with np.errstate(invalid="ignore"):
        time_s = float(np.percentile(round_s, percent))
    return time_s if math.isfinite(time_s) else None


def _show(results: dict[str, JSON], *, title: str) -> None:
    table = Table(title=title, caption="waits: share of rounds that end with a straggler")
    table.add_column("code", overflow="fold")
    for column in ("median round", "p95 round", "waits", "mean |J|", "load (max)"):
        table.add_column(column, justify="right")
    for label, facts in sorted(results.items(), key=lambda item: item[1]["median_s"] or math.inf):
        load = f"{facts['load_mean']:.1f} ({facts['load_max']})"
        times = [facts["median_s"], facts["p95_s"]]
        shown = ["never" if time_s is None else f"{time_s:.3f} s" for time_s in times]
        if facts["waited"] is None:
            table.add_row(label, *shown, "-", "-", load)
            continue
        table.add_row(
            label,
            *shown,
            f"{facts['waited']:.0%}",
            f"{facts['received_mean']:.1f}",
            load,
        )
    Terminal().print(table)
