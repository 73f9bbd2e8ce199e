"""Checkpoints: arrays and facts on disk, never half written and never silently damaged.

``<directory>/000100/`` holds ``state.safetensors`` (the arrays) and ``manifest.json`` (the facts,
and checksums of both files). A checkpoint is written beside its place, synced and renamed, so that
whatever carries its name is whole; what the disk damages later is caught by the checksums.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays

from fullrank.durable import sync_directory
from fullrank.errors import CheckpointUnusable
from fullrank.failpoints import reach
from fullrank.types import JSON

Arrays: TypeAlias = Mapping[str, np.ndarray[Any, Any]]

STATE = "state.safetensors"
MANIFEST = "manifest.json"
_PARTIAL = ".partial-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """What was saved after an iteration."""

    iteration: int
    arrays: Arrays
    facts: JSON
    path: Path
    passed_over: tuple[str, ...] = ()
    """Why newer checkpoints were not taken, newest first."""


def save(directory: Path, *, iteration: int, arrays: Arrays, facts: JSON, keep: int) -> Path:
    """Write a checkpoint and drop all but the newest ``keep``.

    Args:
        directory: The run's checkpoints; made if missing.
        iteration: Last committed iteration, which names the checkpoint; saving it again replaces
            it.
        arrays: Named arrays.
        facts: Whatever else a resumed run needs; JSON.
        keep: Checkpoints to keep, at least 1.

    Returns:
        Where it lies.
    """
    final = directory / f"{iteration:06d}"
    partial = directory / f"{_PARTIAL}{final.name}"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    state = save_arrays({name: np.asarray(array, order="C") for name, array in arrays.items()})
    _write(partial / STATE, state)
    reach("checkpoint.state_written")
    _write(partial / MANIFEST, _manifest(iteration, facts, state))
    sync_directory(partial)
    reach("checkpoint.complete")
    shutil.rmtree(final, ignore_errors=True)
    partial.rename(final)
    reach("checkpoint.renamed")
    sync_directory(directory)
    for old in saved(directory)[keep:]:
        shutil.rmtree(old)
        reach("checkpoint.pruned")
    return final


def load(path: Path) -> Checkpoint:
    """Read one checkpoint.

    Raises:
        CheckpointUnusable: Naming the file and what is wrong with it.
    """
    manifest = _read_manifest(path / MANIFEST)
    state = _read(path / STATE)
    if _checksum(state) != manifest["state_checksum"]:
        raise CheckpointUnusable(f"{path / STATE}: damaged, its checksum differs from {MANIFEST}")
    try:
        arrays = load_arrays(state)
    except SafetensorError as error:
        raise CheckpointUnusable(f"{path / STATE}: not a safetensors file: {error}") from error
    return Checkpoint(
        iteration=manifest["iteration"], arrays=arrays, facts=manifest["facts"], path=path
    )


def newest(directory: Path) -> Checkpoint:
    """The newest checkpoint that can be used; it says which newer ones cannot.

    Raises:
        CheckpointUnusable: There is none, or every one is damaged.
    """
    passed_over: list[str] = []
    for path in saved(directory):
        try:
            found = load(path)
        except CheckpointUnusable as error:
            passed_over.append(str(error))
        else:
            return Checkpoint(
                iteration=found.iteration,
                arrays=found.arrays,
                facts=found.facts,
                path=path,
                passed_over=tuple(passed_over),
            )
    if passed_over:
        raise CheckpointUnusable("no usable checkpoint: " + "; ".join(passed_over))
    raise CheckpointUnusable(f"{directory}: holds no checkpoint yet")


def saved(directory: Path) -> list[Path]:
    """Where checkpoints lie, newest first; whether they can be used, ``load`` tells."""
    if not directory.is_dir():
        return []
    found = [path for path in directory.iterdir() if path.name.isdigit()]
    return sorted(found, key=lambda path: int(path.name), reverse=True)


def _manifest(iteration: int, facts: JSON, state: bytes) -> bytes:
    body = {"iteration": iteration, "facts": facts, "state_checksum": _checksum(state)}
    return json.dumps({**body, "checksum": _checksum(_canonical(body))}, indent=2).encode()


def _read_manifest(path: Path) -> JSON:
    try:
        manifest = json.loads(_read(path))
        stated = manifest.pop("checksum")
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise CheckpointUnusable(f"{path}: not a manifest: {error}") from error
    if stated != _checksum(_canonical(manifest)):
        raise CheckpointUnusable(f"{path}: damaged, it differs from its own checksum")
    body: JSON = manifest
    return body


def _canonical(body: JSON) -> bytes:
    return json.dumps(body, sort_keys=True, separators=(",", ":")).encode()


def _checksum(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise CheckpointUnusable(f"{path}: cannot be read: {error.strerror}") from error


def _write(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
