"""``fullrank checkpoint``: what a run can go on from, whether it is whole, and where two differ."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, TypeAlias

import typer
from rich.console import Console
from rich.table import Table

from fullrank.cli.options import JsonOption
from fullrank.cli.runs import find_run
from fullrank.common.errors import CheckpointUnusable
from fullrank.common.types import JSON
from fullrank.runs.checkpoint import MANIFEST, STATE, Checkpoint, load, newest, read_manifest, saved
from fullrank.runs.journal import survey
from fullrank.runs.record import METRICS, read_records
from fullrank.runs.recovery import CHECKPOINTS, JOURNAL, differences, examine

RunArgument: TypeAlias = Annotated[Path, typer.Argument(help="Directory or name of the run.")]
SideArgument: TypeAlias = Annotated[
    Path, typer.Argument(help="A run, for its newest checkpoint, or a checkpoint's directory.")
]

app = typer.Typer(no_args_is_help=True)


@app.callback()
def _checkpoint() -> None:
    """List, verify and compare what runs are resumed from."""


@app.command()
def ls(run: RunArgument, as_json: JsonOption = False) -> None:
    """List a run's checkpoints and the segments of its journal; only manifests are checked."""
    path = find_run(run)
    checkpoints = [_entry(each) for each in saved(path / CHECKPOINTS)]
    segments = [
        {**asdict(each), "path": str(each.path)} for each in survey(path / JOURNAL) if each.records
    ]
    if as_json:
        print(json.dumps({"checkpoints": checkpoints, "journal": segments}, indent=2))
        return
    table = Table("iteration", "bytes", "term", "state")
    for each in checkpoints:
        table.add_row(*(str(each[key]) for key in ("iteration", "bytes", "term", "fault")))
    Console().print(table)
    for segment in segments:
        last = segment["first"] + segment["records"] - 1
        fault = f", then {segment['fault']}" if segment["fault"] else ""
        print(f"journal: iterations {segment['first']} to {last} of term {segment['term']}{fault}")


@app.command()
def verify(run: RunArgument, as_json: JsonOption = False) -> None:
    """Check every checksum, and that checkpoints and journal hold all that was committed.

    Ends with exit code 8 if something is damaged or missing; a record that a crash cut short is
    neither.
    """
    path = find_run(run)
    metrics = path / METRICS
    records = read_records(metrics) if metrics.exists() else []
    found = examine(path, published=records[-1].iteration + 1 if records else 0)
    if as_json:
        print(json.dumps(asdict(found), indent=2))
    else:
        print(f"{path}: a resumed run goes on from {found.committed} committed iterations")
    if found.faults:
        raise CheckpointUnusable("; ".join(found.faults))


@app.command()
def diff(one: SideArgument, other: SideArgument, as_json: JsonOption = False) -> None:
    """Compare two checkpoints array by array; ends with exit code 1 if a bit differs."""
    first, second = _checkpoint_of(one), _checkpoint_of(other)
    found = differences(first, second)
    if as_json:
        print(json.dumps([asdict(each) for each in found], indent=2))
    else:
        for each in found:
            print(f"{each.name}: {each.reason}")
        print(
            f"{first.path} (iteration {first.iteration}) and {second.path} (iteration "
            f"{second.iteration}): {len(found)} of {len(first.arrays)} arrays differ"
        )
    if found:
        raise typer.Exit(1)


def _entry(path: Path) -> JSON:
    size = sum(file.stat().st_size for file in (path / STATE, path / MANIFEST) if file.exists())
    entry: JSON = {"iteration": int(path.name), "path": str(path), "bytes": size}
    try:
        facts = read_manifest(path)["facts"]
    except CheckpointUnusable as error:
        return {**entry, "term": None, "replay_head": None, "fault": str(error)}
    return {
        **entry,
        "term": facts.get("term"),
        "replay_head": facts.get("replay_head"),
        "fault": "",
    }


def _checkpoint_of(side: Path) -> Checkpoint:
    if (side / MANIFEST).exists():
        return load(side)
    return newest(find_run(side) / CHECKPOINTS)
