"""``fullrank eval``: how good the policies of a run are, beside random ones."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from fullrank.cli.options import JsonOption
from fullrank.cli.policies import play, trained
from fullrank.cli.runs import find_run
from fullrank.config import read_config
from fullrank.environments import variant_of
from fullrank.rollouts import Act, Evaluation
from fullrank.statistics import bootstrap
from fullrank.types import JSON


def evaluate(
    run: Annotated[Path, typer.Argument(help="Run directory, or its name below runs/.")],
    episodes: Annotated[int, typer.Option(help="Episodes to play.", min=1)] = 100,
    seed: Annotated[int, typer.Option(help="Fixes the initial states.", min=0)] = 1000,
    with_random: Annotated[
        bool, typer.Option("--random/--no-random", help="Play the random policy beside it.")
    ] = True,
    as_json: JsonOption = False,
) -> None:
    """Play a run's newest policies greedily on fixed seeds; random ones on the same seeds."""
    directory = find_run(run)
    config = read_config(directory)
    variant = variant_of(config.environment.name, config.environment.params)
    found = trained(directory, config)
    policies: dict[str, Act | None] = {"trained": found.algorithm.act_greedily}
    if with_random:
        policies["random"] = None
    played = {
        name: play(config, act, episodes=episodes, seed=seed) for name, act in policies.items()
    }
    if as_json:
        facts = {name: _facts(evaluation) for name, evaluation in played.items()}
        what = {"environment": config.environment.name, "variant": variant}
        how = {"iteration": found.iteration, "episodes": episodes, "seed": seed}
        print(json.dumps({**what, **how, **facts}))
    else:
        title = (
            f"{directory.name} ({variant}) after iteration {found.iteration}, {episodes} episodes"
        )
        _show(played, title=title)


def _facts(evaluation: Evaluation) -> JSON:
    sides = {side: bootstrap(values)._asdict() for side, values in evaluation.side_returns.items()}
    return {**bootstrap(evaluation.returns)._asdict(), "sides": sides}


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
