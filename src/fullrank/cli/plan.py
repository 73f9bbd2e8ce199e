"""``fullrank codes plan``: the code that suits a run or a regime, and the reason."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from fullrank.cli.options import JsonOption, TrustOption
from fullrank.cli.runs import find_run, runnable_config
from fullrank.cli.say import say_json
from fullrank.cli.terminal import Terminal
from fullrank.codes import Code
from fullrank.common.errors import ConfigError
from fullrank.common.types import JSON
from fullrank.config.auto_code import AutoCodeSettings
from fullrank.config.plugins import problem_of
from fullrank.config.tree import RunConfig
from fullrank.planning.cluster import read_regime
from fullrank.planning.costs import Payload
from fullrank.planning.observation import code_of_record, label_of_record, observation_of_record
from fullrank.planning.plan import Plan
from fullrank.planning.planned_run import play_planned
from fullrank.planning.planner import Planner
from fullrank.planning.tuning import TUNING
from fullrank.runs.record import METRICS, IterationRecord, read_records
from fullrank.wiring.plugins import max_variance_of


def plan(
    run: Annotated[
        Path | None, typer.Argument(help="Run directory, or its name below runs/.")
    ] = None,
    regime: Annotated[
        Path | None, typer.Option(help="Simulate this regime file, in place of a run.")
    ] = None,
    iterations: Annotated[
        int, typer.Option(help="Number of the regime's rounds to simulate.", min=1)
    ] = 150,
    seed: Annotated[int, typer.Option(help="Seed of the regime's rounds.")] = 0,
    trust: TrustOption = None,
    as_json: JsonOption = False,
) -> None:
    """Explain the planner's next choice of code, for a run's measured times or for a regime."""
    if (run is None) == (regime is None):
        raise ConfigError("give either the directory of a run or --regime FILE")
    if run is not None:
        chosen, changes = _of_run(run, trust or [])
    else:
        assert regime is not None
        chosen, changes = _of_regime(regime, iterations=iterations, seed=seed)
    if as_json:
        say_json(_facts(chosen, changes))
    else:
        _show(chosen, changes)


def _of_run(run: Path, trust: list[str]) -> tuple[Plan, list[tuple[int, str]]]:
    """The plan after the newest record, and the code in use from each change on."""
    directory = find_run(run)
    records = read_records(directory / METRICS)
    if not records or not records[-1].arrival_s:
        raise ConfigError(f"{run} has no iteration with recorded arrivals; let it run on")
    changes = [
        (record.iteration, label_of_record(record))
        for before, record in zip([None, *records], records, strict=False)
        if before is None or label_of_record(before) != label_of_record(record)
    ]
    return _plan(runnable_config(directory, trust), records[-TUNING.window :]), changes


def _plan(config: RunConfig, records: list[IterationRecord]) -> Plan:
    problem = problem_of(config)
    moved, units = Payload.of(problem).traffic, len(problem.units)
    auto = (
        AutoCodeSettings(**config.code.params) if config.code.name == "auto" else AutoCodeSettings()
    )
    using = label_of_record(records[-1])
    planner = Planner(
        auto,
        units=units,
        seed=config.seed,
        moved=moved,
        using=using,
        max_variance=max_variance_of(config),
        target=problem.target,
        faults=config.audit.byzantine,
    )
    codes: dict[tuple[str, int, int], Code] = {}
    for record in records:
        key = (record.code, record.code_rows, record.tolerance)
        if key not in codes:
            codes[key] = code_of_record(
                record, units=units, seed=config.seed, target=problem.target
            )
        observation = observation_of_record(record, codes[key], moved)
        if observation is not None:
            planner.observe(observation)
    return planner.plan(sorted(records[-1].rows))


def _of_regime(path: Path, *, iterations: int, seed: int) -> tuple[Plan, list[tuple[int, str]]]:
    regime = read_regime(path)
    defaults = RunConfig()
    environment = replace(defaults.environment, agents=regime.agents)
    played = play_planned(
        lambda _: regime,
        Payload.of(problem_of(replace(defaults, environment=environment))),
        auto=AutoCodeSettings(),
        iterations=iterations,
        seed=seed,
    )
    changes = [(iteration, plan.candidate.label) for iteration, plan in played.changes]
    return played.last, changes


def _facts(plan: Plan, changes: list[tuple[int, str]]) -> JSON:
    return {
        "code": plan.candidate.label,
        "changed": plan.changed,
        "reason": plan.reason,
        "used": [{"iteration": iteration, "code": label} for iteration, label in changes],
        "expected_s": {forecast.label: forecast.mean_s for forecast in plan.forecasts},
    }


def _show(plan: Plan, changes: list[tuple[int, str]]) -> None:
    console = Terminal()
    for iteration, label in changes:
        console.print(f"from iteration {iteration}: {label}", highlight=False)
    console.print(f"next: {plan.candidate.label}, since {plan.reason}", highlight=False)
    if not plan.forecasts:
        return
    table = Table("code", caption="expected from the times of the last iterations")
    for column in ("expected round", "over the best"):
        table.add_column(column, justify="right")
    best = plan.forecasts[0].mean_s
    for forecast in plan.forecasts:
        table.add_row(
            forecast.label, f"{forecast.mean_s:.4g} s", f"{forecast.mean_s / best - 1:.0%}"
        )
    console.print(table)
