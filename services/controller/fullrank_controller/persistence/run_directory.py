"""The run directory: held by one controller at a time, bound to one run, with a rising term."""

import json
import logging
import uuid
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from secrets import randbelow, token_bytes

from fullrank.audit.ledger import KEY_BYTES
from fullrank.common.durable import replace_bytes, replace_text
from fullrank.common.errors import CheckpointUnusable, Malformed, RunDirectoryInUse, StaleTerm
from fullrank.common.failpoints import reach
from fullrank.common.foreign import FORMAT, TEXT, check_format, read_regular
from fullrank.common.types import JSON, RunTerm
from fullrank.config.toml import config_digest, to_toml, why_another_run
from fullrank.config.tree import RunConfig
from fullrank.host.run_directory import is_elsewhere, lock_run, place_of, withdraw
from fullrank.replay.store import rename_tables
from fullrank.runs.ending import Ending, keep_caveat, lasting_caveats, write_ending
from fullrank.runs.identity import (
    CONFIGURATION,
    COPIED,
    IDENTITY,
    STAMP,
    check_continues,
    read_identity,
)
from fullrank.runs.snapshot import REPLAY
from fullrank.runs.store import SharedStore

log = logging.getLogger(__name__)

SECRET = "audit.key"
"""File with the key under which audits are drawn, readable by its owner only."""
INSTANCES = 2**63 - 1
"""Number of instances of which one is drawn; 0 is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDirectory:
    """A locked run directory."""

    path: Path
    run: str
    term: int
    instance: int
    """Drawn for this term: a controller on a copy of the directory may begin the same term."""
    lock: ExitStack
    identity: bytes
    """Contents of ``run.json`` as this controller wrote it."""
    config_digest: str
    """Digest of the settings that determine the bits of the run."""
    store: SharedStore | None = None
    """Keeps the run outside this machine; the directory is a copy of it."""

    @property
    def run_term(self) -> RunTerm:
        """The term of this controller."""
        return RunTerm(self.run, self.term, self.instance)

    def confirm(self) -> None:
        """Return if no later controller has taken the directory.

        Raises:
            StaleTerm: Another controller has raised the term, even if the lock is still held.
        """
        path = self.path / IDENTITY
        if path.exists() and read_regular(path, TEXT.size) == self.identity:
            return
        later = _facts(self.path).get("term")
        if later != self.term:
            raise StaleTerm(
                f"{self.path} is in term {later}, this controller in term {self.term}: a later "
                "controller has its journal; nothing more is committed here"
            )

    def end(self, ending: Ending) -> None:
        """Record how the run has ended."""
        self.confirm()
        write_ending(self.path, ending)

    @property
    def secret(self) -> bytes:
        """The key of audits, drawn when a controller first asks for it; no learner sees it.

        Raises:
            CheckpointUnusable: Its file is damaged.
        """
        path = self.path / SECRET
        if not path.exists():
            replace_bytes(path, f"{token_bytes(KEY_BYTES).hex()}\n".encode(), mode=0o600)
        try:
            return bytes.fromhex(read_regular(path, TEXT.size).decode())
        except (Malformed, ValueError):
            raise CheckpointUnusable(
                f"{path} is damaged; remove it, and audits are drawn under another key"
            ) from None

    @property
    def caveats(self) -> tuple[str, ...]:
        """Guarantees that the run has lost for good, a line each."""
        return tuple(lasting_caveats(self.path))

    def keep_caveat(self, line: str) -> None:
        """Keep a lost guarantee for the life of the run."""
        self.confirm()
        keep_caveat(self.path, line)

    def withdraw(self, service: str) -> None:
        """Remove an announced address, unless a later controller has announced its own."""
        with suppress(StaleTerm):
            self.confirm()
            withdraw(self.path, service)


def hold(path: Path, config: RunConfig) -> RunDirectory:
    """Lock the directory, check that it belongs to this run, and raise its term on disk.

    Raises:
        RunDirectoryInUse: Another controller holds it, or it belongs to another run.
        VersionMismatch: Another minor release began its run, or a later version wrote it.
        StaleTerm: Another controller begins a term of the run now.
        StorageFailed: The store cannot be reached.
    """
    path.mkdir(parents=True, exist_ok=True)
    with lock_run(path) as lock:
        facts = _facts(path)
        check_format(facts.get("format", FORMAT), where=str(path / IDENTITY))
        check_continues(path)
        digest, stored = config_digest(config), path / CONFIGURATION
        if facts.get("config_digest", digest) != digest:
            text = read_regular(stored, TEXT.size) if stored.exists() else b""
            raise RunDirectoryInUse(f"{path} {why_another_run(text, config)}")
        run, last, copied = facts.get("run", _new_id(config)), facts.get("term", 0), ""
        rename_tables(path / REPLAY, facts.get(COPIED, ""), run)  # if a start was cut off before
        if (original := _original_of(path, facts)) is not None:
            run, copied = _new_id(config), run
            log.warning("copied original=%s run=%s: this is run %s", original, copied, run)
        instance, term, store = 1 + randbelow(INSTANCES), last + 1, None
        if config.store.url:
            store = SharedStore(config.store.url, path, keep=config.checkpoint.keep)
            run = _run_in(store, config, run if "run" in facts else "", last=last) or run
            term = store.begin(run, digest=digest, last=last, instance=instance)
        replace_text(stored, to_toml(config))
        identity = {**STAMP, "run": run, "term": term, "config_digest": digest}
        identity |= place_of(path) | ({COPIED: copied} if copied else {})
        written = (json.dumps(identity, indent=2) + "\n").encode()
        replace_bytes(path / IDENTITY, written)
        rename_tables(path / REPLAY, copied, run)
        reach("term.raised")
        return RunDirectory(
            path=path,
            run=run,
            term=term,
            instance=instance,
            lock=lock.pop_all(),
            identity=written,
            config_digest=digest,
            store=store,
        )


def _run_in(store: SharedStore, config: RunConfig, run: str, *, last: int) -> str:
    """The id of the run in a store; empty if it holds none.

    Args:
        store: The store.
        config: The resolved configuration.
        run: The id of the run in the directory; empty for a new directory.
        last: The last term that the directory knows.

    Raises:
        RunDirectoryInUse: It holds another run than the directory, or than the configuration's, or
            less of the run than the directory.
    """
    found = store.log.read()
    if found is None:
        return ""
    url = config.store.url
    if run not in ("", found.run):
        raise RunDirectoryInUse(
            f"{url} holds another run, {found.run}; choose another store.url, or an empty "
            "--run-dir to go on with that run"
        )
    if last > found.term:
        raise RunDirectoryInUse(
            f"{url} ends with term {found.term} of the run, and the directory has gone on to term "
            f"{last} without it; choose an empty store.url, which takes what the directory holds"
        )
    if not found.whole and not run:
        raise RunDirectoryInUse(
            f"{url} holds a part of run {found.run}, whose controller was interrupted while it "
            "stored the rest; start the controller again in its own directory"
        )
    if found.config_digest != config_digest(config):
        text = store.log.files.get(CONFIGURATION, "").encode()
        raise RunDirectoryInUse(f"{url} {why_another_run(text, config)}")
    return found.run


def _original_of(path: Path, facts: JSON) -> str | None:
    """The directory of which this one is a copy; None if it is the run's, perhaps moved.

    A directory that was moved or restored is the same run, because nothing of it is left where it
    was. A copy beside its original is another one: learners and replay must not mistake them.
    """
    if not is_elsewhere(path, facts):
        return None
    original = Path(str(facts.get("directory", "")))
    try:
        same = _facts(original).get("run") == facts["run"]
    except (OSError, Malformed, KeyError):
        return None
    return str(original) if same else None


def _new_id(config: RunConfig) -> str:
    """An id that no other run has, which begins with the run's name."""
    unique = uuid.uuid4().hex
    return f"{config.name}-{unique[:12]}" if config.name else unique


def _facts(run_dir: Path) -> JSON:
    return read_identity(run_dir) if (run_dir / IDENTITY).exists() else {}
