"""``fullrank eval``: returns of a run's policies, compared with those of reference policies."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, TypeAlias

import typer
from rich.table import Table

from fullrank.cli.options import (
    CertificatesOption,
    EpisodesOption,
    InitialSeedOption,
    JsonOption,
    TrustOption,
)
from fullrank.cli.policies import Version, facts_of, play, play_references, summary
from fullrank.cli.say import say
from fullrank.cli.sources import Source, source_of
from fullrank.cli.sources import follow as newer_policies
from fullrank.cli.terminal import Terminal
from fullrank.common.types import Interval
from fullrank.config.tree import as_tables
from fullrank.environments import variant_of
from fullrank.runs.evaluations import EvaluationRecord, append, from_facts, read_evaluations
from fullrank.runs.record import METRICS, begun, read_records
from fullrank.sinks import Fanout, open_evaluation_sinks
from fullrank.training.evaluation import Evaluation, Greedy
from fullrank.training.references import share_closed

NONE = Version(0, -1)
"""Precedes every version."""


SourceArgument: TypeAlias = Annotated[
    str,
    typer.Argument(help="Run directory, its name below runs/, or host:port of its monitor."),
]
RandomOption: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--random/--no-random",
        help="Play the references as well: random play and, where known, standing still and a good "
        "policy, an optimum or a heuristic that sees everything.",
    ),
]
FollowOption: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--follow",
        help="Play every set of policies that the run publishes until it ends, without the random "
        "policy; a local run also records the results in evaluations.jsonl and its metrics sinks.",
    ),
]
PatienceOption: TypeAlias = Annotated[
    float,
    typer.Option(
        "--patience", help="With --follow: longest wait for new policies, in seconds.", min=0
    ),
]


def evaluate(
    run: SourceArgument,
    episodes: EpisodesOption = 100,
    seed: InitialSeedOption = 1000,
    with_random: RandomOption = True,
    follow: FollowOption = False,
    patience: PatienceOption = 600.0,
    certificates: CertificatesOption = None,
    trust: TrustOption = None,
    as_json: JsonOption = False,
) -> None:
    """Play a run's newest policies greedily, and reference policies from the same initial states.

    The gap that a run has closed is the share of the way from random play to the good policy.
    """
    source = source_of(run, certificates, trust or [])
    if follow:
        _follow(source, episodes=episodes, seed=seed, patience_s=patience, as_json=as_json)
        return
    newest = source.newer(NONE)
    assert newest is not None
    act = Greedy(newest.algorithm.actor)
    played = {"trained": play(source.config, act, episodes=episodes, seed=seed)}
    if with_random:
        played |= play_references(source.config, episodes=episodes, seed=seed)
    if as_json:
        say(json.dumps(facts_of(source.config, newest, played, seed=seed)))
    else:
        variant = variant_of(source.config.environment.name, source.config.environment.params)
        title = f"{source.name} ({variant}) after iteration {newest.iteration}, {episodes} episodes"
        _show(played, title=title)


def _follow(source: Source, *, episodes: int, seed: int, patience_s: float, as_json: bool) -> None:
    """Evaluate, record and print every set of policies that the run publishes."""
    evaluated = _evaluated(source.directory) if source.directory else NONE
    sinks = _open_sinks(source, evaluated)
    try:
        for newer in newer_policies(source, seen=evaluated, patience_s=patience_s):
            act = Greedy(newer.algorithm.actor)
            played = play(source.config, act, episodes=episodes, seed=seed)
            facts = facts_of(source.config, newer, {"trained": played}, seed=seed)
            if source.directory:
                append(source.directory, facts)
                sinks.write(from_facts(facts))
            if as_json:
                say(json.dumps(facts))
            else:
                say(f"iteration {newer.iteration}: {_in_words(played)}")
    finally:
        sinks.close()


def _evaluated(directory: Path) -> Version:
    """The last evaluated policies that no later term has superseded."""
    metrics = directory / METRICS
    terms = begun(read_records(metrics)) if metrics.exists() else {}
    versions = (
        Version(record.term, record.iteration)
        for record in read_evaluations(directory)
        if not record.superseded(terms)
    )
    return max(versions, default=NONE)


def _open_sinks(source: Source, evaluated: Version) -> Fanout[EvaluationRecord]:
    """Sinks of a local run; none for a run on another machine."""
    if source.directory is None:
        return Fanout(())
    config = source.config
    return open_evaluation_sinks(
        source.directory,
        config.metrics.sinks,
        first_iteration=evaluated.iteration + 1,
        config=as_tables(config),
    )


def _in_words(played: Evaluation) -> str:
    return ", ".join(f"{name} {value}" for name, value in summary(played).items())


def _show(played: Mapping[str, Evaluation], *, title: str) -> None:
    first, *columns = summary(played["trained"])
    closed = share_closed(played, "trained")
    table = Table("policy", f"{first} [95 % interval]", *columns, title=title)
    for name, evaluation in played.items():
        table.add_row(name, *summary(evaluation).values())
    Terminal().print(table)
    if closed is not None:
        say(f"gap closed from random to good: {Interval(*(100 * value for value in closed))} %")
