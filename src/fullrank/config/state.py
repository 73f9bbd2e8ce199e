"""Files that this user's Fullrank keeps outside all run directories, where no archive can write."""

import hashlib
import json
import os
from contextlib import suppress
from pathlib import Path

from fullrank.common.durable import replace_text
from fullrank.common.errors import FullrankError
from fullrank.common.foreign import read_regular
from fullrank.common.types import JSON

LIMIT_BYTES = 2**26
"""Largest file that is read."""


def state_folder(name: str) -> Path | None:
    """Return a folder in ``$XDG_STATE_HOME/fullrank``; None without a home directory."""
    configured = Path(os.environ.get("XDG_STATE_HOME", ""))
    try:
        state = configured if configured.is_absolute() else Path.home() / ".local" / "state"
    except RuntimeError:
        return None
    return state / "fullrank" / name


def name_of(facts: object) -> str:
    """Return the digest that names the file of these facts."""
    text = json.dumps(facts, sort_keys=True, default=str)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def keep(path: Path, facts: JSON) -> None:
    """Write a file of facts; where there is no place for it, none is written."""
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        replace_text(path, json.dumps(facts, indent=2, default=str) + "\n")


def kept(path: Path) -> str:
    """Return the text of a file that this user has written; empty if there is none."""
    try:
        own = path.lstat().st_uid == os.geteuid()
        return read_regular(path, LIMIT_BYTES).decode(errors="replace") if own else ""
    except (OSError, FullrankError):
        return ""
