"""``fullrank checkpoint``: list, verify, compare and move the state from which a run resumes."""

import json
import shutil
import uuid
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, TypeAlias

import typer
from rich.table import Table

from fullrank.cli.options import JsonOption, RunArgument
from fullrank.cli.runs import find_run
from fullrank.cli.say import say, say_json
from fullrank.cli.terminal import Terminal
from fullrank.common.durable import rename, replace_text, writing
from fullrank.common.errors import CheckpointUnusable, FullrankError, Malformed, RunDirectoryInUse
from fullrank.common.foreign import check_format
from fullrank.common.types import JSON
from fullrank.host.run_directory import place_of
from fullrank.replay.store import rename_tables
from fullrank.runs.checkpoint import MANIFEST, STATE, Checkpoint, load, newest, read_manifest, saved
from fullrank.runs.ending import lasting_caveats
from fullrank.runs.identity import (
    CHECKPOINTS,
    IDENTITY,
    JOURNAL,
    check_release,
    is_continued,
    read_identity,
)
from fullrank.runs.journal import survey
from fullrank.runs.record import published
from fullrank.runs.recovery import Recovery, differences, examine
from fullrank.runs.snapshot import REPLAY, inspect, pack, take_snapshot, unpack


def export_run(
    run: RunArgument, file: Annotated[Path, typer.Argument(help="The new archive.")]
) -> None:
    """Write a whole run to one file, also while it goes on.

    The archive holds settings, checkpoints, journal, transitions, metrics and history, but no
    certificate and no audit key.
    """
    path = find_run(run)
    if file.exists():
        raise FullrankError(f"{file} exists; choose another name")
    with writing(file):
        file.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=f".{file.name}.", dir=file.parent) as scratch:
            found = take_snapshot(path, Path(scratch) / "run")
            size = pack(Path(scratch) / "run", file)
    say(f"{file}: {found.committed} committed iterations of {path}, {size / 1e6:.1f} MB")


def import_run(
    file: Annotated[Path, typer.Argument(help="An archive.")],
    directory: Annotated[Path, typer.Argument(help="The new run directory.")],
    same_run: Annotated[
        bool,
        typer.Option(
            "--same-run",
            help="The original is lost: this is the same run, under a later term. Otherwise it is "
            "another one, which may go on beside the original.",
        ),
    ] = False,
) -> None:
    """Make a run directory from an archive, after checking every byte."""
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise RunDirectoryInUse(f"{directory} is not empty; choose another directory")
    directory = directory.absolute()
    scratch = directory.with_name(f".{directory.name}.import")
    shutil.rmtree(scratch, ignore_errors=True)
    try:
        with writing(directory):
            unpack(file, scratch)
            found = _checked(scratch, file)
            run = _identify(scratch, directory, file, same_run=same_run)
            rename(scratch, directory)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    which = "the same run" if same_run else "another run"
    say(f"{directory}: {found.committed} committed iterations, {which}, {run}")
    if is_continued(read_identity(directory)):
        say(f"continue with: fullrank run resume {directory}")


def _checked(scratch: Path, file: Path) -> Recovery:
    """Return the state from which the archived run would resume.

    Raises:
        CheckpointUnusable: It would not continue as the original.
    """
    found = inspect(scratch)
    if found.faults:
        faults = "; ".join(found.faults).replace(f"{scratch}/", "")
        raise CheckpointUnusable(f"{file}: {faults}")
    return found


def _identify(scratch: Path, directory: Path, file: Path, *, same_run: bool) -> str:
    """Give the unpacked run its identity and place; returns its id."""
    try:
        facts = read_identity(scratch)
        check_format(facts.get("format"), where=f"{IDENTITY} in {file}")
        packed = str(facts["run"])
    except (Malformed, KeyError) as error:
        raise FullrankError(f"{file}: {IDENTITY} is missing or damaged: {error}") from None
    if same_run:
        check_release(facts, where=str(file))
    run = packed if same_run else uuid.uuid4().hex
    if run != packed:
        rename_tables(scratch / REPLAY, packed, run)
    facts |= {"run": run, **place_of(scratch), "directory": str(directory.resolve())}
    replace_text(scratch / IDENTITY, json.dumps(facts, indent=2) + "\n")
    return run


SideArgument: TypeAlias = Annotated[
    str, typer.Argument(help="Directory of a checkpoint, or a run: its newest checkpoint.")
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
    entries = {checkpoint: _entry(checkpoint) for checkpoint in saved(path / CHECKPOINTS)}
    checkpoints = [entry for checkpoint, entry in entries.items() if checkpoint.exists()]
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
    if not any((path / part).exists() for part in (IDENTITY, CHECKPOINTS, JOURNAL)):
        raise FullrankError(f"{path} is no run: it has neither {IDENTITY} nor checkpoints")
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
    size, facts, fault = 0, JSON(), ""
    for file in (path / STATE, path / MANIFEST):
        with suppress(FileNotFoundError):
            size += file.stat().st_size
    try:
        facts = read_manifest(path)["facts"]
    except CheckpointUnusable as error:
        fault = str(error)
    known = {name: facts.get(name) for name in ("term", "replay_head")}
    return {"iteration": int(path.name), "path": str(path), "bytes": size, **known, "fault": fault}


def _checkpoint_of(side: str) -> Checkpoint:
    if Path(side, MANIFEST).exists():
        return load(find_run(side))
    return newest(find_run(side) / CHECKPOINTS)
