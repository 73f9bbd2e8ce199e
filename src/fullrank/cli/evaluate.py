"""``fullrank eval``: how good the policies of a run are, beside random ones."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from fullrank.cli.options import CertificatesOption, JsonOption
from fullrank.cli.policies import Version, play
from fullrank.cli.sources import Source, source_of
from fullrank.cli.sources import follow as newer_policies
from fullrank.common.types import JSON
from fullrank.config import RunConfig, as_tables
from fullrank.environments import variant_of
from fullrank.runs.evaluations import EvaluationRecord, append, from_facts, read_evaluations
from fullrank.runs.record import METRICS, begun, read_records
from fullrank.runs.statistics import bootstrap
from fullrank.sinks import Fanout, open_evaluation_sinks
from fullrank.training.rollouts import Act, Evaluation

NONE = Version(0, -1)
"""Before all policies."""


def evaluate(
    run: Annotated[
        str,
        typer.Argument(
            help="Run directory, its name below runs/, or host:port of its monitor.",
        ),
    ],
    episodes: Annotated[int, typer.Option(help="Episodes to play.", min=1)] = 100,
    seed: Annotated[int, typer.Option(help="Fixes the initial states.", min=0)] = 1000,
    with_random: Annotated[
        bool, typer.Option("--random/--no-random", help="Play the random policy beside it.")
    ] = True,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow",
            help="Play all policies that the run publishes, to its end; a run directory gets them "
            "as evaluations.jsonl and in its metrics sinks. The random policy is left out.",
        ),
    ] = False,
    patience: Annotated[
        float, typer.Option(help="With --follow: how long new ones may take, seconds.", min=0)
    ] = 600.0,
    certificates: CertificatesOption = None,
    as_json: JsonOption = False,
) -> None:
    """Play a run's newest policies greedily on fixed seeds; random ones on the same seeds."""
    source = source_of(run, certificates)
    if follow:
        _follow(source, episodes=episodes, seed=seed, patience_s=patience, as_json=as_json)
        return
    found = source.newer(NONE)
    assert found is not None
    policies: dict[str, Act | None] = {"trained": found.algorithm.act_greedily}
    if with_random:
        policies["random"] = None
    played = {
        name: play(source.config, act, episodes=episodes, seed=seed)
        for name, act in policies.items()
    }
    if as_json:
        print(json.dumps(_facts(source.config, found.version, played, seed=seed)))
    else:
        variant = variant_of(source.config.environment.name, source.config.environment.params)
        what = f"{source.name} ({variant})"
        _show(played, title=f"{what} after iteration {found.iteration}, {episodes} episodes")


def _follow(source: Source, *, episodes: int, seed: int, patience_s: float, as_json: bool) -> None:
    """Evaluate, note and print all policies that come."""
    seen = _seen(source.directory) if source.directory else NONE
    sinks = _open_sinks(source, seen)
    try:
        for found in newer_policies(source, seen=seen, patience_s=patience_s):
            act = found.algorithm.act_greedily
            played = play(source.config, act, episodes=episodes, seed=seed)
            facts = _facts(source.config, found.version, {"trained": played}, seed=seed)
            if source.directory:
                append(source.directory, facts)
                sinks.write(from_facts(facts))
            if as_json:
                print(json.dumps(facts), flush=True)
            else:
                print(f"iteration {found.iteration}: {_in_words(played)}", flush=True)
    finally:
        sinks.close()


def _seen(directory: Path) -> Version:
    """The last policies that were evaluated and are still the run's."""
    metrics = directory / METRICS
    terms = begun(read_records(metrics)) if metrics.exists() else {}
    known = [each for each in read_evaluations(directory) if not each.superseded(terms)]
    return max((Version(each.term, each.iteration) for each in known), default=NONE)


def _open_sinks(source: Source, seen: Version) -> Fanout[EvaluationRecord]:
    """Those of the run; none where its directory is elsewhere."""
    if source.directory is None:
        return Fanout(())
    config = source.config
    return open_evaluation_sinks(
        source.directory,
        config.metrics.sinks,
        first_iteration=seen.iteration + 1,
        config=as_tables(config),
    )


def _facts(
    config: RunConfig, version: Version, played: Mapping[str, Evaluation], *, seed: int
) -> JSON:
    (episodes,) = {len(evaluation.returns) for evaluation in played.values()}
    return {
        "environment": config.environment.name,
        "variant": variant_of(config.environment.name, config.environment.params),
        "iteration": version.iteration,
        "term": version.term,
        "episodes": episodes,
        "seed": seed,
        **{name: _returns(evaluation) for name, evaluation in played.items()},
    }


def _returns(evaluation: Evaluation) -> JSON:
    sides = {side: bootstrap(values)._asdict() for side, values in evaluation.side_returns.items()}
    return {**bootstrap(evaluation.returns)._asdict(), "sides": sides}


def _in_words(played: Evaluation) -> str:
    sides = played.side_returns if len(played.side_returns) > 1 else {}
    parts = (f"{side} {bootstrap(values)}" for side, values in sides.items())
    return ", ".join([f"return {bootstrap(played.returns)}", *parts])


def _show(played: Mapping[str, Evaluation], *, title: str) -> None:
    table = Table("policy", "return [95 % interval]", title=title)
    sides = played["trained"].side_returns
    several = list(sides) if len(sides) > 1 else []
    for side in several:
        table.add_column(side)
    for name, evaluation in played.items():
        parts = [str(bootstrap(evaluation.side_returns[side])) for side in several]
        table.add_row(name, str(bootstrap(evaluation.returns)), *parts)
    Console().print(table)
