"""``fullrank simulate``: compare codes on a cluster that one does not have, in virtual time."""

import json
import math
import warnings
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from fullrank.cli.options import ConfigOption, JsonOption, SetOption, resolve
from fullrank.codes import Code, codes, make_code
from fullrank.codes.targets import each_unit
from fullrank.common.errors import CodeError, ConfigError, NotDecodable
from fullrank.common.types import JSON
from fullrank.config import RunConfig
from fullrank.planning.cluster import Cluster
from fullrank.planning.costs import Payload
from fullrank.planning.simulation import SimulatedRounds
from fullrank.planning.simulation import simulate as run
from fullrank.stragglers import DelayModel, FixedK
from fullrank.wiring import delays_of, dimensions_of, max_variance_of

MEASURED = ("median_s", "p95_s", "waited", "received_mean", "sent_bytes")
"""What rounds tell about a code; null for a code that never decodes."""


def simulate(
    config: ConfigOption = None,
    overrides: SetOption = None,
    learners: Annotated[int | None, typer.Option(help="N, learners.")] = None,
    agents: Annotated[int | None, typer.Option(help="M, agents.")] = None,
    code: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[,KEY=VALUE]...",
            help="A code, for example cyclic,tolerance=2; may be repeated. Default: all there are.",
        ),
    ] = None,
    unit_s: Annotated[float, typer.Option(help="Seconds that a unit takes.")] = 0.1,
    spread: Annotated[
        float, typer.Option(help="Standard deviation of the logarithm of computing times.")
    ] = 0.0,
    bandwidth: Annotated[
        float, typer.Option(help="Of the controller and of replay, bytes/s each way.")
    ] = math.inf,
    latency: Annotated[float, typer.Option(help="Of any message, one way, seconds.")] = 0.0,
    stragglers: Annotated[int | None, typer.Option(help="Stragglers k in every round.")] = None,
    delay: Annotated[float | None, typer.Option(help="Delay of each, seconds.")] = None,
    iterations: Annotated[int, typer.Option(help="Rounds to simulate.", min=1)] = 200,
    sweep: Annotated[
        Path | None,
        typer.Option(
            metavar="PNG", help="Draw round times against learners (15 to 4096), k and delay."
        ),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Every draw follows from it.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Compare codes: round times, rounds that wait for a straggler, learners needed, load."""
    options = {
        "environment.agents": agents,
        "learners": learners,
        "stragglers.name": None if stragglers is None and delay is None else "fixed_k",
        "stragglers.k": stragglers,
        "stragglers.delay_s": delay,
        "seed": seed,
    }
    resolved = resolve(config, overrides, options).config
    units = resolved.environment.agents
    if not units:
        raise ConfigError("environment.agents = 0 leaves M open; give --agents")
    cluster = Cluster(
        unit_s=unit_s,
        spread=spread,
        latency_s=latency,
        bandwidth=bandwidth,
        replay_bandwidth=bandwidth,
        payload=Payload() if math.isinf(bandwidth) else Payload.of(*dimensions_of(resolved)),
    )
    if sweep is not None:
        _sweep(sweep, resolved, cluster, code, iterations=iterations)
        return
    named = [_parse(text, resolved) for text in code] if code else _applicable(resolved)
    delays = delays_of(resolved)
    limit = max_variance_of(resolved)
    rounds = partial(
        _rounds, cluster, delays, iterations=iterations, seed=resolved.seed, max_variance=limit
    )
    found = {label: _facts(each, rounds(each)) for label, each in named}
    if as_json:
        print(json.dumps(found, indent=2))
    else:
        sizes = f"{resolved.learners} learners, {units} agents, {iterations} rounds"
        _show(found, title=sizes + _noise(limit))


def _sweep(
    picture: Path, config: RunConfig, cluster: Cluster, asked: list[str] | None, *, iterations: int
) -> None:
    from fullrank.cli import sweep  # matplotlib takes a second

    def make(learners: int) -> Iterator[tuple[str, Code]]:
        wider = replace(config, learners=learners)
        if not asked:
            yield from _applicable(wider, sweep.QUICK if learners > sweep.SLOW_FROM else codes)
            return
        for text in asked:
            with suppress(CodeError):
                yield _parse(text, wider)

    late = delays_of(config)
    if not isinstance(late, FixedK):
        raise ConfigError("--sweep varies k stragglers and their delay: give --stragglers, --delay")
    limit = max_variance_of(config)
    found = sweep.sweep(
        cluster,
        make,
        learners=config.learners,
        stragglers=late,
        iterations=iterations,
        seed=config.seed,
        max_variance=limit,
    )
    title = (
        f"{config.environment.agents} agents, {late.k} stragglers of {late.delay_s:g} s, "
        f"{cluster.bandwidth:.3g} bytes/s"
    )
    sweep.save(sweep.draw(found, title=title + _noise(limit)), picture)
    print(picture)


def _noise(limit: float) -> str:
    """The end of a title."""
    return "" if math.isinf(limit) else f", noise at most {limit:g}"


def _parse(text: str, config: RunConfig) -> tuple[str, Code]:
    """A code from ``name,key=value,...``."""
    name, *words = text.split(",")
    try:
        params = {key: json.loads(value) for key, _, value in (w.partition("=") for w in words)}
    except json.JSONDecodeError:
        raise ConfigError(
            f"--code {text}: expected NAME,KEY=NUMBER, for example cyclic,tolerance=2"
        ) from None
    return text, _make(name, config, params)


def _applicable(config: RunConfig, names: Iterable[str] = codes) -> Iterator[tuple[str, Code]]:
    """The codes among ``names`` that recover every unit and exist for these sizes."""
    for name in names:
        try:
            code = _make(name, config, {})
        except CodeError:
            continue
        if name != "auto":
            yield name, code


def _make(name: str, config: RunConfig, params: dict[str, Any]) -> Code:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about conditions, which virtual time does not feel
        return make_code(
            name,
            rows=config.learners,
            units=config.environment.agents,
            seed=config.seed,
            target=each_unit(config.environment.agents),
            **params,
        )


def _rounds(
    cluster: Cluster,
    delays: DelayModel,
    code: Code,
    *,
    iterations: int,
    seed: int,
    max_variance: float,
) -> SimulatedRounds | None:
    """Simulated rounds; None for a code whose rows do not determine the units in float64."""
    try:
        return run(
            cluster, code, delays, iterations=iterations, seed=seed, max_variance=max_variance
        )
    except NotDecodable:
        return None


def _facts(code: Code, rounds: SimulatedRounds | None) -> JSON:
    """What is printed of a code; without rounds, because it never decodes, its load alone."""
    facts: JSON = {"load_mean": float(code.load.mean()), "load_max": int(code.load.max())}
    if rounds is None:
        return facts | dict.fromkeys(MEASURED)
    return facts | {
        "median_s": float(np.median(rounds.round_s)),
        "p95_s": float(np.percentile(rounds.round_s, 95)),
        "waited": float(rounds.waited.mean()),
        "received_mean": float(np.mean([len(received) for received in rounds.received])),
        "sent_bytes": rounds.sent_bytes,
    }


def _show(found: dict[str, JSON], *, title: str) -> None:
    table = Table(title=title, caption="waits: share of rounds that a straggler ended")
    table.add_column("code", overflow="fold")
    for column in ("median round", "p95 round", "waits", "mean |J|", "load (max)"):
        table.add_column(column, justify="right")
    for label, facts in sorted(found.items(), key=lambda item: item[1]["median_s"] or math.inf):
        load = f"{facts['load_mean']:.1f} ({facts['load_max']})"
        if facts["median_s"] is None:
            table.add_row(label, "never", "never", "-", "-", load)
            continue
        table.add_row(
            label,
            f"{facts['median_s']:.3f} s",
            f"{facts['p95_s']:.3f} s",
            f"{facts['waited']:.0%}",
            f"{facts['received_mean']:.1f}",
            load,
        )
    Console().print(table)
