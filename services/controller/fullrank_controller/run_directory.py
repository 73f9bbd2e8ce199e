"""The run's own directory: one controller at a time, one run for ever, a term that only rises."""

import json
import os
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from fullrank.config import RunConfig, config_digest, to_toml
from fullrank.errors import RunDirectoryInUse
from fullrank.failpoints import reach
from fullrank.recovery import CHECKPOINTS, JOURNAL
from fullrank.rpc.lock import lock_run
from fullrank.types import JSON


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDirectory:
    """A directory that this process holds until it ends."""

    path: Path
    run: str
    term: int
    lock: TextIO

    @property
    def checkpoints(self) -> Path:
        """Where checkpoints lie."""
        return self.path / CHECKPOINTS

    @property
    def journal(self) -> Path:
        """Where the journal lies."""
        return self.path / JOURNAL


def hold(path: Path, config: RunConfig) -> RunDirectory:
    """Lock the directory, check that it is this run's, and raise its term.

    Raises:
        RunDirectoryInUse: Another controller holds it, or it belongs to another run.
    """
    path.mkdir(parents=True, exist_ok=True)
    lock = lock_run(path)
    facts = _facts(path / "run.json")
    digest = config_digest(config)
    if facts.get("config_digest", digest) != digest:
        raise RunDirectoryInUse(
            f"{path} holds a run with another environment, algorithm, collection or seed; choose "
            "another --run-dir, or resume it with its own config.toml"
        )
    run, term = str(facts.get("run", uuid.uuid4().hex)), int(facts.get("term", 0)) + 1
    _write(path / "config.toml", to_toml(config))
    _write(
        path / "run.json",
        json.dumps({"run": run, "term": term, "config_digest": digest}, indent=2) + "\n",
    )
    reach("term.raised")
    return RunDirectory(path=path, run=run, term=term, lock=lock)


def _facts(path: Path) -> JSON:
    if not path.exists():
        return {}
    facts = json.loads(path.read_text())
    return facts if isinstance(facts, dict) else {}


def _write(path: Path, text: str) -> None:
    """Replace a file, whole or not at all, durably."""
    scratch = path.with_name(f".{path.name}")
    with scratch.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    scratch.replace(path)
