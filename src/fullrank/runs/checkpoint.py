"""Checkpoints: arrays and facts on disk, written atomically and checked by checksums.

``<directory>/000100/`` holds ``state.safetensors`` (the arrays) and ``manifest.json`` (the facts,
and checksums of both files). A checkpoint is written under another name, synced and renamed, and
renamed again before it is removed, so that a directory with its final name is whole; the checksums
show later damage on the disk. The next checkpoint removes what was left of others.
"""

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import numpy as np
from blake3 import blake3
from numpy.typing import NDArray
from pydantic import Field, TypeAdapter
from safetensors import SafetensorError
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays

from fullrank.common.durable import ROOM, rename, replace_bytes, writing
from fullrank.common.errors import CheckpointUnusable, Malformed, StorageFailed
from fullrank.common.failpoints import reach
from fullrank.common.foreign import FORMAT, Bounds, check_format, parse_json, read_regular
from fullrank.common.schema import Ordinal, validated
from fullrank.common.types import JSON

Arrays: TypeAlias = Mapping[str, NDArray[Any]]

STATE = "state.safetensors"
MANIFEST = "manifest.json"
LEARNED = "algorithm."
"""Begins the names of parameters, targets and moments."""
_PARTIAL = ".partial-"
"""Begins the names of directories that are no checkpoints yet, or any more."""
_MANIFEST = Bounds(size=2**24)
"""Bounds of a manifest; a larger file is not read."""
_CHECKSUM_BYTES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """State saved after an iteration."""

    iteration: int
    arrays: Arrays
    facts: JSON
    path: Path
    passed_over: tuple[str, ...] = ()
    """Reasons why newer checkpoints were not used, newest first."""


def save(directory: Path, *, iteration: int, arrays: Arrays, facts: JSON, keep: int) -> Path:
    """Write a checkpoint, read it back, and only then drop all but the newest ``keep``.

    Args:
        directory: The run's checkpoints; made if missing.
        iteration: Last committed iteration, which names the checkpoint; saving it again replaces
            it.
        arrays: Named arrays.
        facts: Further JSON that a resumed run needs.
        keep: Checkpoints to keep, at least 1.

    Returns:
        The directory of the checkpoint.

    Raises:
        StorageFailed: The disk does not take it; older ones are kept.
        CheckpointUnusable: The new checkpoint does not read back; older ones are kept.
    """
    final = directory / f"{iteration:06d}"
    state = save_arrays({name: np.asarray(array, order="C") for name, array in arrays.items()})
    with writing(final, remedy=ROOM, raised=StorageFailed):
        _write(final, state, _manifest(iteration, facts, state))
    load(final)
    for old in saved(directory)[keep:]:
        remove(old)
        reach("checkpoint.pruned")
    return final


def remove(path: Path) -> None:
    """Remove a checkpoint; an interruption leaves none of its name."""
    partial = path.with_name(f"{_PARTIAL}removed-{path.name}")
    rename(path, partial)
    shutil.rmtree(partial)


def _write(final: Path, state: bytes, manifest: bytes) -> None:
    for left in final.parent.glob(f"{_PARTIAL}*"):
        shutil.rmtree(left, ignore_errors=True)
    partial = final.with_name(f"{_PARTIAL}{final.name}")
    partial.mkdir(parents=True)
    replace_bytes(partial / STATE, state)
    reach("checkpoint.state_written")
    replace_bytes(partial / MANIFEST, manifest)
    reach("checkpoint.complete")
    if final.exists():
        remove(final)
    rename(partial, final)
    reach("checkpoint.renamed")


def load(path: Path) -> Checkpoint:
    """Read one checkpoint.

    Raises:
        CheckpointUnusable: A file is missing or damaged, or holds parameters that are not finite;
            the message names it and the reason.
        VersionMismatch: A later version of Fullrank wrote it.
    """
    manifest = read_manifest(path)
    state = _read(path / STATE, most_bytes=manifest["state_bytes"])
    if _checksum(state) != manifest["state_checksum"]:
        raise CheckpointUnusable(f"{path / STATE}: damaged, its checksum differs from {MANIFEST}")
    try:
        arrays = load_arrays(state)
    except (SafetensorError, KeyError, ValueError) as error:
        raise CheckpointUnusable(f"{path / STATE}: not a safetensors file: {error}") from error
    for name, array in sorted(arrays.items()):
        if name.startswith(LEARNED) and not np.isfinite(array).all():
            raise CheckpointUnusable(
                f"{path / STATE}: {name.removeprefix(LEARNED)!r} holds values that are not finite"
            )
    return Checkpoint(
        iteration=manifest["iteration"], arrays=arrays, facts=manifest["facts"], path=path
    )


def newest(directory: Path) -> Checkpoint:
    """The newest usable checkpoint; ``passed_over`` names newer, damaged ones.

    Raises:
        CheckpointUnusable: There is none, or every one is damaged.
        VersionMismatch: A later version of Fullrank wrote the newest readable one.
    """
    passed_over: list[str] = []
    for path in saved(directory):
        try:
            checkpoint = load(path)
        except CheckpointUnusable as error:
            passed_over.append(str(error))
        else:
            return replace(checkpoint, passed_over=tuple(passed_over))
    if passed_over:
        raise CheckpointUnusable("no usable checkpoint: " + "; ".join(passed_over))
    raise CheckpointUnusable(f"{directory}: holds no checkpoint yet")


def saved(directory: Path) -> list[Path]:
    """Directories of checkpoints, newest first; ``load`` tells whether they are usable."""
    if not directory.is_dir():
        return []
    numbered = [path for path in directory.iterdir() if path.name.isdecimal()]
    return sorted(numbered, key=lambda path: int(path.name), reverse=True)


def _manifest(iteration: int, facts: JSON, state: bytes) -> bytes:
    body = {
        "format": FORMAT,
        "iteration": iteration,
        "facts": facts,
        "state_bytes": len(state),
        "state_checksum": _checksum(state),
    }
    return json.dumps({**body, "checksum": _checksum(_canonical(body))}, indent=2).encode()


def read_manifest(path: Path) -> JSON:
    """``iteration``, ``facts``, ``state_bytes`` and ``state_checksum`` of a checkpoint.

    Raises:
        CheckpointUnusable: It is missing, damaged, or not a manifest.
        VersionMismatch: A later version of Fullrank wrote it.
    """
    file = path / MANIFEST
    try:
        content = _read(file, most_bytes=_MANIFEST.size)
        manifest = parse_json(content, origin=MANIFEST, bounds=_MANIFEST)
        stated = manifest.pop("checksum")
    except (Malformed, KeyError, AttributeError, TypeError) as error:
        raise CheckpointUnusable(f"{file}: not a manifest: {error}") from error
    if stated != _checksum(_canonical(manifest)):
        raise CheckpointUnusable(f"{file}: damaged, it differs from its own checksum")
    check_format(manifest.get("format", 1), where=str(file))
    try:
        validated(_SCHEMA, manifest, origin="not a manifest")
    except Malformed as error:
        raise CheckpointUnusable(f"{file}: {error}") from error
    body: JSON = manifest
    return body


_Whole: TypeAlias = Annotated[Ordinal, Field(strict=True)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Facts:
    """Facts of a run's checkpoint; others may stand beside them."""

    run: str = ""
    term: _Whole = 0
    replay_head: _Whole = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Manifest:
    """Members of a manifest."""

    iteration: _Whole
    facts: _Facts
    state_bytes: _Whole
    state_checksum: str


_SCHEMA = TypeAdapter(_Manifest)


def _canonical(body: JSON) -> bytes:
    return json.dumps(body, sort_keys=True, separators=(",", ":")).encode()


def _checksum(data: bytes) -> str:
    return blake3(data).hexdigest(_CHECKSUM_BYTES)


def _read(path: Path, *, most_bytes: int) -> bytes:
    """Content of a file; a file above the limit is not read into memory."""
    try:
        return read_regular(path, most_bytes)
    except Malformed as error:
        raise CheckpointUnusable(str(error)) from error
