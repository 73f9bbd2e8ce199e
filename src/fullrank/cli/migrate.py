"""``fullrank migrate``: a run directory of an earlier version, made resumable by this one."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from fullrank.algorithms.base import layout_of
from fullrank.cli.options import RunArgument, TrustOption
from fullrank.cli.runs import BEFORE, find_run
from fullrank.cli.say import say
from fullrank.common.durable import rename, replace_bytes, replace_text
from fullrank.common.errors import CheckpointUnusable, FullrankError, Malformed
from fullrank.common.foreign import open_regular, read_regular
from fullrank.common.formats import FORMAT, check_format
from fullrank.common.types import IntArray
from fullrank.config.elsewhere import is_own_run
from fullrank.config.leaves import SETTINGS
from fullrank.config.migration import migrated
from fullrank.config.toml import config_digest, to_toml
from fullrank.config.tree import RunConfig
from fullrank.config.trust import check_trusted
from fullrank.replay.conversion import convert, kept_columns
from fullrank.replay.file_format import Mapping
from fullrank.replay.store import table_file
from fullrank.rpc.lock import lock_run
from fullrank.runs.checkpoint import newest, saved
from fullrank.runs.event_history import read_history
from fullrank.runs.event_log import DIRECTORY as HISTORY
from fullrank.runs.identity import (
    CHECKPOINTS,
    CONFIGURATION,
    IDENTITY,
    JOURNAL,
    read_identity,
    run_of,
)
from fullrank.runs.journal import survey
from fullrank.runs.snapshot import REPLAY
from fullrank.wiring import Training, capacity_of, spare_rows, training_of

ASIDE = "history.before"
REMEDY = "finish it with the version that wrote it, or start anew in another directory"


def migrate(
    run: RunArgument,
    *,
    apply: Annotated[
        bool, typer.Option("--apply", help="Write the changes; without it they are only listed.")
    ] = False,
    trust: TrustOption = None,
) -> None:
    """List the changes that a stopped run needs for this version, and make them."""
    directory = find_run(run)
    with lock_run(directory):
        changes, dropped, config, identity = _plan(directory, trust or [])
        change, convert_table = _conversion(directory, config)
        changes += [change] if change else []
        if old_history := not _reads_history(directory):
            changes.append(f"history/ has events of an earlier version, and becomes {ASIDE}/")
        for change in (*dropped, *changes) if changes else ():
            say(f"{directory}: {change}")
        if not changes:
            say(f"{directory}: nothing to change; fullrank resume continues it")
        elif not apply:
            say(f"{directory}: nothing is written yet; --apply writes {len(changes)} changes")
        else:
            old = read_regular(directory / CONFIGURATION, SETTINGS.size)
            replace_bytes(directory / BEFORE, old)
            convert_table()
            if old_history:
                rename(directory / HISTORY, directory / ASIDE)
            replace_text(directory / CONFIGURATION, to_toml(config))
            replace_text(directory / IDENTITY, json.dumps(identity, indent=2) + "\n")
            say(f"{directory}: migrated; the old configuration is {BEFORE}")
            say(f"{directory}: later iterations have the bits of this version, which may be others")


def _plan(
    directory: Path, trust: list[str]
) -> tuple[list[str], tuple[str, ...], RunConfig, dict[str, object]]:
    """The changes, the lost settings, the configuration and the identity of a run of this version.

    Raises:
        FullrankError: There is no run, or it cannot be converted.
    """
    path = directory / CONFIGURATION
    try:
        text = read_regular(path, SETTINGS.size)
        identity = read_identity(directory)
    except Malformed as error:
        raise FullrankError(f"{directory} cannot be migrated: {error}") from None
    migration = migrated(text, origin=str(path), foreign=not is_own_run(directory))
    check_trusted(migration.resolved.config.environment, origin=str(directory), trusted=trust)
    config = migration.resolved.check().config
    digest, stated = config_digest(config), identity.get("format")
    changes = list(migration.renamed)
    check_format(stated or 1, where=str(directory / IDENTITY))
    if stated != FORMAT:
        changes.append(f"run.json states format {FORMAT}")
    if identity.get("config_digest") != digest:
        changes += [*migration.added, "run.json has the digest of today's settings"]
    return (
        changes,
        migration.dropped,
        config,
        {**identity, "format": FORMAT, "config_digest": digest},
    )


def _reads_history(directory: Path) -> bool:
    try:
        read_history(directory)
    except FullrankError:
        return False
    return True


def _conversion(directory: Path, config: RunConfig) -> tuple[str, Callable[[], None]]:
    """Return the conversion that the table needs, in words and as a call; empty if it fits.

    Raises:
        FullrankError: This version would not resume from the run's state; the message names the
            first part that does not fit, and the remedy.
    """
    training = training_of(config)
    try:
        survey(directory / JOURNAL)
        if saved(directory / CHECKPOINTS):
            checkpoint = newest(directory / CHECKPOINTS)
            training.load(checkpoint.arrays, resume_at=checkpoint.iteration + 1)
        table = table_file(directory / REPLAY, run_of(directory))
        return _table_conversion(table, config, training)
    except FullrankError as error:
        raise type(error)(f"{error}; it cannot be migrated: {REMEDY}") from None
    finally:
        training.collector.close()


def _table_conversion(
    path: Path, config: RunConfig, training: Training
) -> tuple[str, Callable[[], None]]:
    if not path.exists():
        return "", lambda: None
    problem = training.problem
    capacity = capacity_of(config, training) + spare_rows(config, training)
    with open_regular(path) as file:
        mapping = Mapping(path, file.fileno())
    found = mapping.layout.row_size
    if (found, mapping.capacity) == (problem.row_size, capacity):
        return "", lambda: None
    if found == problem.row_size:
        columns: IntArray | None = np.arange(found)
    else:
        layout = layout_of(training.collector.agents, masked=problem.masked)
        columns = kept_columns(layout, row_size=found)
    if columns is None or len(columns) != problem.row_size:
        raise CheckpointUnusable(
            f"{path} has rows of {found} numbers, and this version keeps {problem.row_size}"
        )
    change = (
        f"replay keeps {capacity} rows of {problem.row_size} numbers, not {mapping.capacity} of "
        f"{found}"
    )
    return change, partial(convert, path, columns, capacity=capacity)
