"""``fullrank checkpoint export`` and ``import``: a whole run in one file."""

import json
import shutil
import uuid
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from fullrank.cli.options import RunArgument
from fullrank.cli.runs import find_run
from fullrank.cli.say import say
from fullrank.common.durable import rename, replace_text
from fullrank.common.errors import CheckpointUnusable, FullrankError, Malformed, RunDirectoryInUse
from fullrank.common.formats import check_format
from fullrank.host.run_directory import place_of
from fullrank.replay.store import rename_tables
from fullrank.runs.archive import pack, unpack
from fullrank.runs.identity import IDENTITY, check_release, is_continued, read_identity
from fullrank.runs.recovery import Recovery
from fullrank.runs.snapshot import REPLAY, inspect, take


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
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=f".{file.name}.", dir=file.parent) as scratch:
            found = take(path, Path(scratch) / "run")
            size = pack(Path(scratch) / "run", file)
    except OSError as error:
        raise FullrankError(f"cannot write {file}: {error.strerror or error}") from error
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
    scratch = directory.with_name(f".{directory.name}.import")
    shutil.rmtree(scratch, ignore_errors=True)
    try:
        unpack(file, scratch)
        found = _checked(scratch, file)
        run = _identify(scratch, directory, file, same_run=same_run)
        rename(scratch, directory)
    except OSError as error:
        raise FullrankError(f"cannot write {directory}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    which = "the same run" if same_run else "another run"
    say(f"{directory}: {found.committed} committed iterations, {which}, {run}")
    if is_continued(read_identity(directory)):
        say(f"continue with: fullrank resume {directory}")


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
