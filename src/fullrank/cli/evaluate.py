"""``fullrank eval``: how good the policies of a run are, beside random ones."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from fullrank.checkpoint import newest
from fullrank.cli.options import JsonOption
from fullrank.cli.runs import find_run, read_config
from fullrank.config import RunConfig
from fullrank.environments import make_environment, variant_of
from fullrank.recovery import CHECKPOINTS
from fullrank.rollouts import Act, Evaluation, random_actions
from fullrank.rollouts import evaluate as play
from fullrank.statistics import bootstrap
from fullrank.types import JSON
from fullrank.wiring import training_of

COPIES = 50
"""Episodes played at a time."""


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
    iteration, greedy = trained(directory, config)
    policies: dict[str, Act | None] = {"trained": greedy}
    if with_random:
        policies["random"] = None
    played = {
        name: _play(config, act, episodes=episodes, seed=seed) for name, act in policies.items()
    }
    if as_json:
        facts = {name: _facts(evaluation) for name, evaluation in played.items()}
        what = {"environment": config.environment.name, "variant": variant}
        how = {"iteration": iteration, "episodes": episodes, "seed": seed}
        print(json.dumps({**what, **how, **facts}))
    else:
        title = f"{directory.name} ({variant}) after iteration {iteration}, {episodes} episodes"
        _show(played, title=title)


def trained(directory: Path, config: RunConfig) -> tuple[int, Act]:
    """The newest checkpoint's iteration and greedy policies."""
    checkpoint = newest(directory / CHECKPOINTS)
    training = training_of(config)
    try:
        training.load_algorithm(checkpoint.arrays)
    finally:
        training.close()
    return checkpoint.iteration, training.algorithm.act_greedily


def _play(config: RunConfig, act: Act | None, *, episodes: int, seed: int) -> Evaluation:
    """Whole episodes by ``act``; None is the random policy."""
    settings = config.environment
    environment = make_environment(
        settings.name, agents=settings.agents, copies=min(episodes, COPIES), **settings.params
    )
    try:
        return play(
            environment,
            act or random_actions(environment.agents, seed=seed),
            episodes=episodes,
            seed=seed,
        )
    finally:
        environment.close()


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
