"""``fullrank checkpoint``: list, verify, compare and move the state from which a run resumes."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, TypeAlias

import typer
from rich.table import Table

from fullrank.cli.archive import export_run, import_run
from fullrank.cli.options import JsonOption, RunArgument
from fullrank.cli.runs import find_run
from fullrank.cli.say import say, say_json
from fullrank.cli.terminal import Terminal
from fullrank.common.errors import CheckpointUnusable
from fullrank.common.types import JSON
from fullrank.runs.caveats import lasting_caveats
from fullrank.runs.checkpoint import MANIFEST, STATE, Checkpoint, load, newest, read_manifest, saved
from fullrank.runs.identity import CHECKPOINTS, JOURNAL
from fullrank.runs.journal import survey
from fullrank.runs.record import published
from fullrank.runs.recovery import differences, examine

SideArgument: TypeAlias = Annotated[
    Path, typer.Argument(help="Directory of a checkpoint, or a run: its newest checkpoint.")
]

app = typer.Typer(no_args_is_help=True)
app.command("export")(export_run)
app.command("import")(import_run)


@app.callback()
def _checkpoint() -> None:
    """List, verify and compare checkpoints; move a whole run as one file."""


@app.command()
def ls(run: RunArgument, as_json: JsonOption = False) -> None:
    """List checkpoints and the segments of the journal, checking manifests only."""
    path = find_run(run)
    checkpoints = [_entry(checkpoint) for checkpoint in saved(path / CHECKPOINTS)]
    segments = [
        {**asdict(segment), "path": str(segment.path)}
        for segment in survey(path / JOURNAL)
        if segment.records
    ]
    if as_json:
        say_json({"checkpoints": checkpoints, "journal": segments})
        return
    table = Table("iteration", "bytes", "term", "state")
    for entry in checkpoints:
        table.add_row(*(str(entry[key]) for key in ("iteration", "bytes", "term", "fault")))
    Terminal().print(table)
    for segment in segments:
        last = segment["first"] + segment["records"] - 1
        fault = f", then {segment['fault']}" if segment["fault"] else ""
        say(f"journal: iterations {segment['first']} to {last} of term {segment['term']}{fault}")


@app.command()
def verify(run: RunArgument, as_json: JsonOption = False) -> None:
    """Check all checksums, and that every committed iteration is on disk.

    The exit code is 8 if something is damaged or missing; a record truncated by a crash counts as
    neither.
    """
    path = find_run(run)
    recovery, caveats = examine(path, published=published(path)), lasting_caveats(path)
    if as_json:
        say_json({**asdict(recovery), "caveats": caveats})
    else:
        say(
            f"{path}: a resumed run continues from {recovery.committed} committed iterations",
            *(f"caveat: {caveat}" for caveat in caveats),
        )
    if recovery.faults:
        raise CheckpointUnusable("; ".join(recovery.faults))


@app.command()
def diff(one: SideArgument, other: SideArgument, as_json: JsonOption = False) -> None:
    """Compare two checkpoints array by array; exit code 1 if a bit differs."""
    first, second = _checkpoint_of(one), _checkpoint_of(other)
    differing = differences(first.arrays, second.arrays)
    if as_json:
        say_json([asdict(difference) for difference in differing])
    else:
        for difference in differing:
            say(f"{difference.name}: {difference.reason}")
        say(
            f"{first.path} (iteration {first.iteration}) and {second.path} (iteration "
            f"{second.iteration}): {len(differing)} of {len(first.arrays)} arrays differ"
        )
    if differing:
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
        return load(find_run(side))
    return newest(find_run(side) / CHECKPOINTS)
