"""``fullrank codes``: the registered codes, their cost and tolerance, and which one suits."""

import json
import math
import sys
import warnings
from contextlib import suppress
from dataclasses import asdict, fields
from typing import Annotated, Any, TypeAlias

import typer
from rich.table import Table

from fullrank.cli.options import JsonOption, RunArgument, TrustOption
from fullrank.cli.progress import counting
from fullrank.cli.runs import find_run, runnable_config
from fullrank.cli.say import say, say_json
from fullrank.cli.terminal import Terminal
from fullrank.codes import Code, codes, make_code
from fullrank.codes.analysis import (
    caught_given_losses,
    computation_overhead,
    condition_statistics,
    decodable_given_losses,
)
from fullrank.codes.learner_codes import code_for_learners
from fullrank.codes.targets import described, rank_of
from fullrank.common.errors import CodeError, ConfigError, TooFewRows
from fullrank.common.types import JSON, LearnerId, Matrix
from fullrank.config.auto_code import code_choices
from fullrank.config.plugins import complete_code, problem_of
from fullrank.config.tree import PluginSettings, RunConfig
from fullrank.planning.candidates import Plan
from fullrank.planning.observation import label_of_record, params_of
from fullrank.planning.run_planner import RunPlanner
from fullrank.planning.tuning import TUNING
from fullrank.run.assignment import code_of_learners
from fullrank.runs.record import METRICS, IterationRecord, read_records


def plan(run: RunArgument, trust: TrustOption = None, as_json: JsonOption = False) -> None:
    """Explain the planner's next choice of code, for a run's measured times."""
    chosen, changes = _of_run(run, trust or [])
    if as_json:
        say_json(_plan_facts(chosen, changes))
    else:
        _show_plan(chosen, changes)


def _of_run(run: str, trust: list[str]) -> tuple[Plan, list[tuple[int, str]]]:
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
    term = [record for record in records if record.term == records[-1].term]
    return _planned(runnable_config(directory, trust), term), changes


def _planned(config: RunConfig, records: list[IterationRecord]) -> Plan:
    """The plan after the newest record of a term, which follows those of the controller.

    With a fixed code there are none, and the records of the last window are enough.
    """
    problem, follows = problem_of(config), config.code.name == "auto"
    records = records if follows else records[-TUNING.window :]
    planner, units = RunPlanner(config, problem), len(problem.units)
    built: dict[tuple[str, int, int, int], Code] = {}
    with counting("observing", len(records), "iterations") as told:
        for count, record in enumerate(records, start=1):
            key = (record.code, record.code_rows, record.rows_per_learner, record.tolerance)
            if key not in built:
                built[key] = _code_of(record, config, units=units, target=problem.target)
            if planner.observe(record, built[key]) and follows and count < len(records):
                with suppress(CodeError):  # the controller went on with its code
                    planner.plan(_learners(records[max(0, count - TUNING.window) : count]))
            told(count)
    return planner.plan(_learners(records[-TUNING.window :]))


def _code_of(
    record: IterationRecord, config: RunConfig, *, units: int, target: Matrix | None
) -> Code:
    """The code of a recorded iteration, built again as the controller builds it.

    Raises:
        CodeError: There is none, as after an update of the package that has the code.
    """
    asked = config.code
    params = asked.params if asked.name == record.code else params_of(record.code, record.tolerance)
    learners = record.code_rows // record.rows_per_learner
    code = code_of_learners(
        record.code, params, learners=learners, units=units, seed=config.seed, target=target
    )
    if code is None:
        raise CodeError(f"iteration {record.iteration}: no {record.code} of {learners} learners")
    return code


def _learners(records: list[IterationRecord]) -> list[LearnerId]:
    """Learners of the newest iteration: its code may leave some without a row, and so unnamed."""
    newest = records[-1]
    count = max(len(newest.rows), newest.code_rows // newest.rows_per_learner)
    seen = list(dict.fromkeys(learner for record in records[::-1] for learner in record.rows))
    unseen = range(max(seen) + 1, max(seen) + 1 + count - len(seen))
    return sorted([*seen[:count], *unseen])


def _plan_facts(plan: Plan, changes: list[tuple[int, str]]) -> JSON:
    return {
        "code": plan.candidate.label,
        "changed": plan.changed,
        "reason": plan.reason,
        "used": [{"iteration": iteration, "code": label} for iteration, label in changes],
        "expected_s": {forecast.label: forecast.mean_s for forecast in plan.forecasts},
    }


def _show_plan(plan: Plan, changes: list[tuple[int, str]]) -> None:
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


CHECKED_PATTERNS = 2_000
"""Loss patterns that ``check`` examines for each number of losses."""

NameArgument: TypeAlias = Annotated[str, typer.Argument(help="Name of the code.")]
CodeLearnersOption: TypeAlias = Annotated[
    int,
    typer.Option("--learners", help="Number of learners N, with a row each or, if few, several."),
]
UnitsOption: TypeAlias = Annotated[int, typer.Option("--units", help="Number of units M.")]
DrawSeedOption: TypeAlias = Annotated[int, typer.Option("--seed", help="Seed of the random draws.")]
ParameterOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Set a parameter of the code; may be repeated."
    ),
]

app = typer.Typer(no_args_is_help=True)


@app.callback()
def _codes() -> None:
    """List, show, check and plan codes."""


app.command()(plan)


@app.command("list")
def list_(as_json: JsonOption = False) -> None:
    """List the registered codes and their parameters."""
    families = [_family(name) for name in code_choices]
    if as_json:
        say_json(families)
        return
    table = Table("code", "parameters", "summary")
    for family in families:
        parameters = ", ".join(f"{key} = {value}" for key, value in family["parameters"].items())
        table.add_row(family["name"], parameters, family["summary"])
    Terminal().print(table)


@app.command()
def show(
    name: NameArgument,
    *,
    learners: CodeLearnersOption = 15,
    units: UnitsOption = 8,
    seed: DrawSeedOption = 0,
    parameters: ParameterOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print a code's matrix, load and tolerance."""
    code = _make(name, learners, units, seed, parameters)
    if as_json:
        say_json(_facts(code) | {"matrix": code.matrix.tolist()})
        return
    console = Terminal()
    console.print(_matrix_table(code))
    _print_facts(console, code)


@app.command()
def check(
    name: NameArgument,
    *,
    learners: CodeLearnersOption = 15,
    units: UnitsOption = 8,
    seed: DrawSeedOption = 0,
    parameters: ParameterOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print P(decodable) and the conditions of C_J for every number of missing learners.

    A wrong computation is caught where two received learners compute the unit. The condition is
    blank where the target does not decode.
    """
    code = _make(name, learners, units, seed, parameters)
    least = math.ceil(rank_of(code.target) / code.rows_per_learner)
    outcomes = [_after(code, losses) for losses in range(code.learners - least + 1)]
    if as_json:
        say_json(_facts(code) | {"losses": outcomes})
        return
    console = Terminal()
    _print_facts(console, code)
    table = Table(
        "learners lost", "P(decodable)", "median kappa", "p99", "worst", "caught", "patterns"
    )
    for outcome in outcomes:
        numbers = [_number(outcome[key]) for key in ("median", "p99", "worst")]
        of = "all" if outcome["exhaustive"] else "of more"
        probability = f"{outcome['decodable']:.4f}"
        cells = (*numbers, _percent(outcome["caught"]), f"{outcome['patterns']} ({of})")
        table.add_row(str(outcome["lost"]), probability, *cells)
    console.print(table)


def _make(name: str, learners: int, units: int, seed: int, parameters: list[str] | None) -> Code:
    given = PluginSettings(name=name, params=_parsed(parameters))
    params = complete_code(given, source="--set").params
    with warnings.catch_warnings(record=True, action="always") as caught:
        try:  # with a row for each learner, for the family's own target
            code = make_code(name, rows=learners, units=units, seed=seed, **params)
        except TooFewRows:
            family = codes.build(name, **params)
            code = code_for_learners(family, learners=learners, units=units, seed=seed)
    for warning in caught:
        say(f"fullrank: {warning.message}", error=True)
    return code


def _parsed(parameters: list[str] | None) -> dict[str, Any]:
    parsed = {}
    for word in parameters or []:
        key, equals, value = word.partition("=")
        if not equals:
            raise ConfigError(f"--set {word!r} is not KEY=VALUE")
        try:
            parsed[key] = json.loads(value)
        except json.JSONDecodeError:
            raise ConfigError(f"--set {key}: {value!r} is not a number or a list") from None
    return parsed


def _family(name: str) -> JSON:
    family = code_choices.get(name)
    parameters = {field.name: field.default for field in fields(family)}  # type: ignore[arg-type]
    summary = (sys.modules[family.__module__].__doc__ or "").partition("\n")[0]
    return {"name": name, "parameters": parameters, "summary": summary}


def _facts(code: Code) -> JSON:
    return {
        "name": code.name,
        "learners": code.learners,
        "rows": code.rows,
        "rows_per_learner": code.rows_per_learner,
        "units": code.units,
        "target": code.target.tolist(),
        "redundancy": code.redundancy,
        "tolerance": code.tolerance,
        "certificate": code.certificate,
        "load": code.load.tolist(),
        "computation_overhead": computation_overhead(code),
        "caught": _caught(code, code.tolerance),
        "caught_in_audits": _caught(code, 0),
    }


def _caught(code: Code, losses: int) -> float | None:
    """Share of wrong computations that two digests expose; None where no rows decode."""
    share = caught_given_losses(code, losses, samples=CHECKED_PATTERNS)
    return share if math.isfinite(share) else None


def _print_facts(console: Terminal, code: Code) -> None:
    facts, width = _facts(code), code.rows_per_learner
    lost = facts["tolerance"]
    rows = "a row each" if width == 1 else f"{width} rows each"
    for line in (
        f"{code.name}: {code.learners} learners with {rows}, {code.units} units, "
        f"recovers {described(code.target)}, redundancy {code.redundancy:.3g}",
        f"tolerance {lost} ({facts['certificate']}): any {lost} of {code.learners} learners may be "
        "lost",
        f"load {code.load.min()} to {code.load.max()} units a learner, computation overhead "
        f"{facts['computation_overhead']:.3g}",
        f"a wrong computation with a matching digest is caught before the commit for "
        f"{_percent(facts['caught'])} of units and sets J if {lost} are late, "
        f"for {_percent(facts['caught_in_audits'])} if every learner reports",
    ):
        console.print(line, highlight=False)


def _matrix_table(code: Code) -> Table:
    table = Table("learner", "row", *(f"u{unit}" for unit in range(code.units)), "load")
    for row, coefficients in enumerate(code.matrix):
        learner, later = divmod(row, code.rows_per_learner)
        cells = [f"{c:.4g}" if c else "." for c in coefficients]
        first = ("", "") if later else (str(learner), str(code.load[learner]))
        table.add_row(first[0], str(row), *cells, first[1])
    return table


def _after(code: Code, losses: int) -> JSON:
    given = decodable_given_losses(code, losses, samples=CHECKED_PATTERNS)
    facts = asdict(condition_statistics(code, losses, limit=CHECKED_PATTERNS))
    facts["caught"] = caught_given_losses(code, losses, samples=CHECKED_PATTERNS)
    finite = {key: value if math.isfinite(value) else None for key, value in facts.items()}
    return {"lost": losses, "decodable": given.value} | finite


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.0%}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"
