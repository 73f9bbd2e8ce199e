"""The parts of a run's directory, and whose it is.

What only wants these reads no checkpoint: an image without their libraries starts with it.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field, TypeAdapter

from fullrank.common.errors import CheckpointUnusable, Malformed
from fullrank.common.foreign import TEXT, parse_json, read_regular
from fullrank.common.schema import Name, Ordinal, validated
from fullrank.common.types import JSON

CHECKPOINTS, JOURNAL = "checkpoints", "journal"
"""Subdirectories of a run's directory."""
CONFIGURATION, IDENTITY = "config.toml", "run.json"
"""Files of a run's directory: its settings; its id, term and place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Identity:
    """Facts of ``run.json``; others may stand beside them."""

    run: Name = ""
    term: Annotated[Ordinal, Field(strict=True)] = 0
    config_digest: Name = ""


_IDENTITY = TypeAdapter(_Identity)


def read_identity(run_dir: Path) -> JSON:
    """The facts of ``run.json``.

    Raises:
        Malformed: It is missing or damaged.
    """
    path = run_dir / IDENTITY
    facts = parse_json(read_regular(path, TEXT.size), origin=str(path))
    validated(_IDENTITY, facts, origin=str(path))
    identity: JSON = facts
    return identity


def run_of(run_dir: Path) -> str:
    """Return the id of the run in a directory.

    Raises:
        CheckpointUnusable: The file that states it is missing or damaged.
    """
    path = run_dir / IDENTITY
    try:
        return str(parse_json(read_regular(path, TEXT.size), origin=IDENTITY)["run"])
    except (Malformed, KeyError, TypeError) as error:
        raise CheckpointUnusable(f"{path} is damaged ({error}); restore it from a copy") from None
