"""State from which a run can be resumed, and differences between checkpoints."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fullrank.common.errors import CheckpointUnusable
from fullrank.runs import checkpoint, journal
from fullrank.runs.checkpoint import Arrays, Checkpoint
from fullrank.runs.ending import read_ending
from fullrank.runs.identity import CHECKPOINTS, JOURNAL
from fullrank.runs.journal_format import CUT_SHORT
from fullrank.runs.record import METRICS

LOOKS = 10
"""Looks at a run that goes on, at most; each may miss what the run prunes meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """Recoverable state of a run on disk."""

    committed: int
    """Number of iterations that a resumed run starts with."""
    faults: tuple[str, ...]
    """Damaged or missing files; a record truncated by a crash is no fault."""


def examine(run_dir: Path, *, published: int) -> Recovery:
    """Read every checkpoint and every record of the journal.

    Args:
        run_dir: The run's directory, where a run that goes on may remove some meanwhile.
        published: Number of iterations that the run is known to have committed.
    """
    for _ in range(LOOKS):
        before = checkpoint.saved(run_dir / CHECKPOINTS)
        found, damaged = _examine(run_dir, published)
        after = checkpoint.saved(run_dir / CHECKPOINTS)
        if not found.faults or after == before or damaged & set(after):
            break
    return found


def _examine(run_dir: Path, published: int) -> tuple[Recovery, set[Path]]:
    """The state that is found, and the checkpoints that are damaged."""
    faults: list[str] = []
    damaged: set[Path] = set()
    committed = 0
    paths = checkpoint.saved(run_dir / CHECKPOINTS)
    for path in standing(run_dir):
        try:
            committed = max(committed, checkpoint.load(path).iteration + 1)
        except CheckpointUnusable as error:
            if path.exists():
                faults.append(str(error))
                damaged.add(path)
    for segment in journal.survey(run_dir / JOURNAL):
        if segment.fault and segment.fault != CUT_SHORT:
            faults.append(f"{segment.path}: {segment.fault} after {segment.records} records")
    if not committed and (paths or checkpoints_lost(run_dir)):
        faults.append(f"{run_dir / CHECKPOINTS}: no checkpoint can be used")
    committed += len(journal.read(run_dir / JOURNAL, first=committed))
    if committed < published:
        faults.append(
            f"iterations {committed} to {published - 1} were published, but are in no usable "
            "checkpoint or record; a resumed run computes them again"
        )
    return Recovery(committed=committed, faults=tuple(faults)), damaged


def checkpoints_lost(run_dir: Path) -> bool:
    """True if checkpoints are missing: there is none, and the journal was shortened or is gone.

    The journal is shortened once a checkpoint has what it held, and is gone if it has no segment
    and iterations were published, or the run has ended with some.
    """
    if checkpoint.saved(run_dir / CHECKPOINTS):
        return False
    segments = journal.survey(run_dir / JOURNAL)
    if not segments:
        path, ending = run_dir / METRICS, read_ending(run_dir)
        ended = ending is not None and ending.committed > 0
        return ended or (path.exists() and path.stat().st_size > 0)
    return min(segment.first for segment in segments) > 0


def reaches_back_to(checkpoints: Sequence[Path], *, keep: int) -> int:
    """The iteration that the journal reaches back to.

    It is the one after the oldest of ``keep`` checkpoints, and the first until there are as many.

    Args:
        checkpoints: Their directories, newest first.
        keep: Checkpoints to keep.
    """
    return int(checkpoints[-1].name) + 1 if len(checkpoints) >= keep else 0


def standing(run_dir: Path) -> list[Path]:
    """Directories of the checkpoints, newest first, without those of condemned iterations."""
    segments = journal.survey(run_dir / JOURNAL)
    paths = checkpoint.saved(run_dir / CHECKPOINTS)
    return [path for path in paths if not _is_condemned(path, segments)]


def drop_condemned(run_dir: Path) -> list[Path]:
    """Remove the checkpoints that do not stand; returns their paths."""
    stand = standing(run_dir)
    dropped = [path for path in checkpoint.saved(run_dir / CHECKPOINTS) if path not in stand]
    for path in dropped:
        checkpoint.remove(path)
    return dropped


def _is_condemned(path: Path, segments: Iterable[journal.SegmentSurvey]) -> bool:
    """True if the term that saved a checkpoint, or a later one, condemned its iteration."""
    with suppress(CheckpointUnusable):
        manifest = checkpoint.read_manifest(path)
        term, iteration = manifest["facts"].get("term", 0), manifest["iteration"]
        return any(
            segment.condemned is not None
            and segment.condemned <= iteration
            and segment.term >= term
            for segment in segments
        )
    return False


def newest_before(run_dir: Path, iteration: int) -> Checkpoint | None:
    """The newest usable checkpoint before an iteration, if there is one."""
    for path in checkpoint.saved(run_dir / CHECKPOINTS):
        if int(path.name) < iteration:
            with suppress(CheckpointUnusable):
                return checkpoint.load(path)
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """An array that differs between two states."""

    name: str
    """In a checkpoint, part of the state (algorithm, rollout, collected) and name within it."""
    reason: str


def differences(one: Arrays, other: Arrays) -> list[Difference]:
    """Arrays that differ in any bit, by name; so does an array that only one side has."""
    differing = []
    for name in sorted(one.keys() | other.keys()):
        reason = _difference(one.get(name), other.get(name))
        if reason:
            differing.append(Difference(name=name, reason=reason))
    return differing


def _difference(one: NDArray[Any] | None, other: NDArray[Any] | None) -> str:
    """Reason why two arrays differ; empty if their bits are equal."""
    if one is None or other is None:
        return f"only in the {'second' if one is None else 'first'}"
    if (one.dtype, one.shape) != (other.dtype, other.shape):
        return f"{one.dtype} {one.shape} and {other.dtype} {other.shape}"
    if one.tobytes() == other.tobytes():
        return ""
    apart = np.abs(one.astype(np.float64) - other.astype(np.float64))
    return (
        f"{np.count_nonzero(one != other)} of {one.size} entries, "
        f"by {apart.max(initial=0.0):.3g} at most"
    )
