"""Snapshots: the state of a run at one moment, copied while the run goes on.

No writer is stopped. Files are copied in such an order that together they are what a crash of the
run would have left: what an iteration depends on is copied no earlier than the iteration itself.
Checkpoints come first, since the journal and the table only lead away from them; then what was
published; then rows; then the journal, which holds every published iteration. Rows that are evicted
meanwhile are those that no later iteration draws from.
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from fullrank.common.errors import CheckpointUnusable, Corrupted, OutOfRange
from fullrank.replay.fence import FILE as FENCE
from fullrank.replay.mapped_table import TableFile
from fullrank.replay.store import table_file
from fullrank.replay.table_copy import copy_table
from fullrank.runs import checkpoint
from fullrank.runs.caveats import CAVEATS, DISPUTED
from fullrank.runs.evaluations import EVALUATIONS
from fullrank.runs.event_log import DIRECTORY as HISTORY
from fullrank.runs.event_log import whole_bytes
from fullrank.runs.identity import CHECKPOINTS, CONFIGURATION, IDENTITY, JOURNAL, run_of
from fullrank.runs.record import METRICS, published
from fullrank.runs.recovery import Recovery, examine, standing

REPLAY = "replay"
"""Subdirectory of a run's directory with its tables."""
FACTS = (CONFIGURATION, IDENTITY, "numerics.json", DISPUTED, "verdicts.json", CAVEATS)
"""Files that are replaced as a whole; all but the first two may be missing."""
LINES = (METRICS, EVALUATIONS)
"""Files to which lines are appended."""
ATTEMPTS = 5
"""Attempts to copy a run that prunes the files being copied, or begins another term."""


def take(run_dir: Path, into: Path) -> Recovery:
    """Copy a run, and check every checksum of the copy.

    Args:
        run_dir: The run's directory, which services may be writing.
        into: A directory that does not exist yet.

    Returns:
        What a resumed copy starts with; it has no faults.

    Raises:
        CheckpointUnusable: The run has no committed iteration, or its files are damaged, or they
            changed faster than they could be read.
    """
    reason = ""
    for _ in range(ATTEMPTS):
        try:
            before = (run_dir / IDENTITY).read_bytes()
            _copy(run_dir, into)
            found = inspect(into)
        except (FileNotFoundError, OutOfRange) as error:  # pruned, or the table was opened anew
            reason = str(error)
        else:
            if not found.faults and (run_dir / IDENTITY).read_bytes() == before:
                return found
            reason = "; ".join(found.faults) or "another controller has taken it over"
        shutil.rmtree(into, ignore_errors=True)
    raise CheckpointUnusable(f"{run_dir} cannot be copied: {reason}")


def inspect(run_dir: Path) -> Recovery:
    """Check every checksum of a copied run, its transitions included.

    Raises:
        CheckpointUnusable: It holds no committed iteration.
    """
    found = examine(run_dir, published=published(run_dir))
    if not found.committed:
        raise CheckpointUnusable("it has no committed iteration yet")
    return Recovery(committed=found.committed, faults=(*found.faults, *_table_faults(run_dir)))


def _table_faults(run_dir: Path) -> Iterator[str]:
    """Why a resumed run would not find its transitions; none if it would."""
    paths = standing(run_dir)
    head = checkpoint.read_manifest(paths[0])["facts"].get("replay_head", 0) if paths else 0
    path = table_file(run_dir / REPLAY, run_of(run_dir))
    if not path.exists():
        if head:
            yield (
                f"{path} is missing: its replay service keeps it in another directory, and a run "
                "without it would play other transitions"
            )
        return
    try:
        table = TableFile(path)
        table.check()
    except Corrupted as error:
        yield str(error)
        return
    if not table.tail <= head <= table.head:
        yield f"{path} holds positions {table.tail} to {table.head}, and not {head}"


def _copy(run_dir: Path, into: Path) -> None:
    for path in standing(run_dir):
        (into / CHECKPOINTS / path.name).mkdir(parents=True)
        for name in (checkpoint.STATE, checkpoint.MANIFEST):
            shutil.copyfile(path / name, into / CHECKPOINTS / path.name / name)
    for folder in (JOURNAL, HISTORY, REPLAY):
        (into / folder).mkdir(parents=True, exist_ok=True)
    for name in FACTS:
        if (run_dir / name).exists() or name in (CONFIGURATION, IDENTITY):
            shutil.copyfile(run_dir / name, into / name)
    for name in LINES:
        _copy_lines(run_dir / name, into / name)
    # The controller's events first: those that they depend on are in the other logs already.
    for path in sorted(
        (run_dir / HISTORY).glob("*.jsonl"), key=lambda log: log.stem != "controller"
    ):
        _copy_lines(path, into / HISTORY / path.name)
    _copy_tables(run_dir, into)
    for path in sorted((run_dir / JOURNAL).glob("*.journal")):
        shutil.copyfile(path, into / JOURNAL / path.name)


def _copy_tables(run_dir: Path, into: Path) -> None:
    """Copy the run's table and its fence; a replay service may hold those of other runs beside."""
    path = table_file(run_dir / REPLAY, run_of(run_dir))
    if not path.exists():
        return
    copy = into / path.relative_to(run_dir)
    if (fence := path.with_name(FENCE)).exists():
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(fence, copy.with_name(FENCE))
    copy_table(TableFile(path), copy)


def _copy_lines(source: Path, target: Path) -> None:
    """Copy the whole lines of a file, if it exists."""
    if source.exists():
        shutil.copyfile(source, target)
        os.truncate(target, whole_bytes(target))
