"""``fullrank tune``: a setting chosen by successive halving of runs with each of its values."""

import os
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from fullrank.cli.log import starting
from fullrank.cli.options import AgentsOption, ConfigOption, SeedOption, SetOption, TopologyOption
from fullrank.cli.runs import run_name
from fullrank.cli.say import say
from fullrank.cli.train import (
    AlgorithmOption,
    EnvironmentOption,
    IterationsOption,
    LocalOption,
    claim,
    of_new_run,
)
from fullrank.common.durable import replace_text
from fullrank.common.errors import ConfigError
from fullrank.config.elsewhere import remember_run
from fullrank.config.layers import Resolved, load
from fullrank.config.toml import to_toml
from fullrank.config.tree import RunConfig
from fullrank.config.trust import remember
from fullrank.runs.halving import AVERAGED, rungs_of

TUNES = Path("tunes")
"""Directory of the tunes that are given none; below runs/ they would be taken for runs."""


def tune(
    setting: Annotated[
        str,
        typer.Argument(
            metavar="KEY=VALUE,VALUE,...", help="Setting and its values, those of --set."
        ),
    ],
    rungs: Annotated[
        str | None,
        typer.Option(
            "--rungs",
            metavar="ITERATION,...",
            help="Iterations at which half of the runs end; default: evenly spaced.",
        ),
    ] = None,
    side: Annotated[
        str | None,
        typer.Option("--side", help="Side whose return decides; default: all agents together."),
    ] = None,
    config: ConfigOption = None,
    overrides: SetOption = None,
    env: EnvironmentOption = None,
    algorithm: AlgorithmOption = None,
    agents: AgentsOption = None,
    topology: TopologyOption = None,
    iterations: IterationsOption = None,
    seed: SeedOption = None,
    run_dir: Annotated[
        Path | None,
        typer.Option(
            "--run-dir", help="Directory of the tune, new or empty; default: one below tunes/."
        ),
    ] = None,
    local: LocalOption = False,
) -> None:
    """Train a run for each value, and at every rung go on with the better half alone.

    The mean greedy return of the last four checkpoints before a rung decides. The run that is left
    trains to the end, and equals one with its value from the beginning. After Ctrl-C `fullrank
    resume` continues.
    """
    options = {
        "environment.name": env,
        "algorithm.name": algorithm,
        "environment.agents": agents,
        "iterations": iterations,
        "seed": seed,
    }
    key, values = _values(setting, options)
    read = partial(load, config, environ=os.environ, options=options, topology=topology)
    candidates = {
        value: of_new_run(
            read(overrides=[*(overrides or ()), f"{key}={value}"]), local=local
        ).check()
        for value in values
    }
    first = candidates[values[0]]
    _check_side(first, side)
    whole = first.config.iterations
    halved = rungs_of(len(values), iterations=whole, given=_numbers(rungs))
    configs = {value: _keeping(candidate.config) for value, candidate in candidates.items()}
    directory = claim(first.config, run_dir, root=TUNES)
    for value, candidate in configs.items():
        run = directory / run_name(key, value)
        replace_text(run / "config.toml", to_toml(candidate))
        remember(candidate.environment)
        remember_run(run)
    say(starting("tune"))
    from fullrank.cli.tune_directory import Tune, TuneFacts  # imports torch

    facts = TuneFacts(setting=key, values=tuple(values), rungs=halved, iterations=whole, side=side)
    Tune(directory, facts, configs, local=local).run()


def _values(setting: str, options: Mapping[str, object]) -> tuple[str, list[str]]:
    """The key, and its distinct values.

    Raises:
        ConfigError: There is no key, a value twice, or a setting that an option sets or no tune
            can have.
    """
    key, equals, text = setting.partition("=")
    key, values = key.strip(), [value.strip() for value in text.split(",")]
    if not equals or not all(values):
        raise ConfigError(f"{setting}: expected key=value,value, for example seed=0,1")
    names = [run_name(key, value) for value in values]
    for value, name in zip(values, names, strict=True):
        if names.count(name) > 1:
            raise ConfigError(f"{setting}: {value} is there twice; name each value once")
    if key == "iterations":
        raise ConfigError("iterations cannot be tuned: rungs compare runs at equal iterations")
    if options.get(key) is not None:
        raise ConfigError(f"{key} is tuned, and an option sets it to {options[key]}: drop one")
    return key, values


def _numbers(text: str | None) -> list[int]:
    try:
        return [int(number) for number in text.split(",")] if text else []
    except ValueError:
        raise ConfigError(
            f"--rungs {text}: expected numbers of iterations, for example 300,600"
        ) from None


def _check_side(resolved: Resolved, side: str | None) -> None:
    if side is None:
        return
    spec = resolved.with_environment().environment
    assert spec is not None
    sides = list(dict.fromkeys(agent.side for agent in spec.agents))
    if side not in sides:
        raise ConfigError(f"--side {side}: the environment has {', '.join(sides)}")


def _keeping(config: RunConfig) -> RunConfig:
    """Keep the checkpoints that are evaluated at a rung, its own, and that of an interruption."""
    kept = max(config.checkpoint.keep, AVERAGED + 2)
    return replace(config, checkpoint=replace(config.checkpoint, keep=kept))
