"""The parts of a run's directory, and whose it is.

A run goes on under the minor release that began it: another one reads its files, and may compute
other bits.

What only wants these reads no checkpoint: an image without their libraries starts with it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field, TypeAdapter

from fullrank import __version__
from fullrank.common.errors import CheckpointUnusable, Malformed, VersionMismatch
from fullrank.common.foreign import FORMAT, TEXT, parse_json, read_regular
from fullrank.common.schema import Name, Ordinal, validated
from fullrank.common.text import plain
from fullrank.common.types import JSON

CHECKPOINTS, JOURNAL, HEADS = "checkpoints", "journal", "heads"
"""Subdirectories of a run's directory."""
CONFIGURATION, IDENTITY = "config.toml", "run.json"
"""Files of a run's directory: its settings; its id, term and place."""
COPIED = "copied"
"""Key of ``run.json`` in a copy: the run whose tables of replay become those of its own run."""
UNSTATED = "0.3"
"""The last minor release whose runs state none."""


def series(version: str) -> str:
    """Major and minor number of a version; a value unequal to all of them for another text."""
    numbers = re.fullmatch(r"(\d+\.\d+)\.\d+((a|b|rc)\d+)?([-+.].*)?", version, re.ASCII)
    return numbers[1] if numbers else f"no version: {version}"


STAMP: dict[str, object] = {"format": FORMAT, "release": series(__version__)}
"""What every ``run.json`` begins with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Identity:
    """Facts of ``run.json``; others may stand beside them."""

    run: Name = ""
    release: Name = ""
    term: Annotated[Ordinal, Field(strict=True)] = 0
    config_digest: Name = ""
    copied: Name = ""


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


def is_continued(facts: Mapping[str, object]) -> bool:
    """Return whether this release began a run, by the facts of its ``run.json`` or store."""
    return facts.get("release") == STAMP["release"]


def check_release(facts: Mapping[str, object], *, where: str) -> None:
    """Refuse to go on with a run of another minor release.

    Args:
        facts: Facts of the run, as of ``is_continued``.
        where: Names the run in the message.

    Raises:
        VersionMismatch: Another release began it; the message names that one.
    """
    if not is_continued(facts):
        release = plain(str(facts.get("release", UNSTATED))[:32])
        earlier = "" if "release" in facts else " or earlier"
        raise VersionMismatch(
            f"{where} is a run of fullrank {release}{earlier}, which fullrank {__version__} reads "
            f"but neither resumes nor verifies; install fullrank {release} to resume it"
        )


def check_continues(run_dir: Path) -> None:
    """Refuse to go on with a run that another minor release began.

    Raises:
        VersionMismatch: Another release began it; the message names that one.
        Malformed: Its ``run.json`` is damaged.
    """
    if (run_dir / IDENTITY).exists():
        check_release(read_identity(run_dir), where=str(run_dir))
