"""Run directories: making new ones and finding existing ones."""

import os
import re
import stat
from collections.abc import Collection
from pathlib import Path

from fullrank.cli.say import say
from fullrank.common.durable import replace_bytes, replace_text
from fullrank.common.errors import FullrankError, Malformed, RunDirectoryInUse
from fullrank.common.registry import nearest
from fullrank.common.text import plain
from fullrank.config.elsewhere import read_run, require
from fullrank.config.toml import config_digest, read_config, to_toml
from fullrank.config.tree import EnvironmentSettings, PluginSettings, RunConfig
from fullrank.config.trust import check_trusted
from fullrank.host.run_directory import is_address, lock_run
from fullrank.replay.store import SUFFIX
from fullrank.runs.identity import CONFIGURATION, IDENTITY, is_continued, read_identity

RUNS = Path("runs")
BEFORE = f"{CONFIGURATION}.before"
"""The configuration that a run had before this version, or this user, changed it."""


def make_directory(path: Path, *, exist_ok: bool = True) -> None:
    """Make a directory and its parents.

    Raises:
        RunDirectoryInUse: It exists already and ``exist_ok`` is false.
        FullrankError: It cannot be made.
    """
    try:
        path.mkdir(parents=True, exist_ok=exist_ok)
    except OSError as error:
        taken = isinstance(error, FileExistsError) and not exist_ok
        kind = RunDirectoryInUse if taken else FullrankError
        raise kind(f"cannot make {path}: {error.strerror}; choose another --run-dir") from error


def default_run_dir(config: RunConfig, *, root: Path = RUNS) -> Path:
    """Make and return ``<root>/<environment>-<algorithm>-<code>-seed<seed>-<counter>``."""
    environment = re.sub(r"[^\w.-]+", "_", config.environment.name)
    stem = f"{environment}-{config.algorithm.name}-{config.code.name}-seed{config.seed}"
    counter = 1
    while True:
        path = root / f"{stem}-{counter}"
        try:
            make_directory(path, exist_ok=False)
        except RunDirectoryInUse:
            counter += 1
        else:
            return path


def find_run(run: Path | str, *, root: Path = RUNS) -> Path:
    """The directory of a run that is given by path or by name below ``root``, which comes first.

    Raises:
        FullrankError: There is no such run, and the message has the nearest name; or something in
            it leads outside or takes more memory than there is.
    """
    places = (Path(run), root / run)
    for path in places if os.sep in str(run) else places[::-1]:
        if path.is_dir():
            _check_contents(path)
            return path
    known = sorted(path.name for path in root.iterdir() if path.is_dir()) if root.is_dir() else []
    hint = nearest(Path(run).name, known) if known else f"; there are no runs in {root}/"
    raise FullrankError(f"there is no run {str(run)!r}{hint}")


def runnable_config(directory: Path, trusted: Collection[str] | None) -> RunConfig:
    """The configuration of a run whose environment this process is going to make.

    Args:
        directory: The run's directory, which may come from elsewhere.
        trusted: Values of ``--trust``.

    Raises:
        ConfigError: It names an environment of another package without the user's word.
        Malformed: It is not the one by which the run's bits came about.
        FullrankError: It cannot be read.
    """
    config = read_config(directory)
    check_trusted(config.environment, origin=str(directory), trusted=trusted or ())
    if os.path.lexists(directory / IDENTITY):  # else the run has not begun
        facts, digest = read_identity(directory), config_digest(config)
        if is_continued(facts) and facts.get("config_digest", digest) != digest:
            raise Malformed(
                f"{directory / CONFIGURATION} was changed: by {IDENTITY} the run has another "
                "environment, algorithm, seed or collection; restore it from a copy"
            )
    return config


def adopt(directory: Path) -> None:
    """Drop the local settings of a run from elsewhere, which this user is going to resume.

    Raises:
        ConfigError: The run cannot go on without one of them.
        RunDirectoryInUse: A controller holds it, such as one that outlives its `train`.
    """
    lock_run(directory).close()
    stored = read_run(directory, os.environ)
    require(stored.dropped, "stragglers.path", origin=str(directory))
    if not stored.dropped:
        return
    path = directory / CONFIGURATION
    replace_bytes(directory / BEFORE, path.read_bytes())
    replace_text(path, to_toml(stored.config))
    settings = ", ".join(f"{key} = {plain(value)}" for key, value in stored.dropped.items())
    say(
        f"{directory} comes from elsewhere, and its settings of a machine are dropped: {settings}; "
        f"to use them, set them in {path} again, and resume"
    )


def newest_run(*, root: Path = RUNS) -> Path:
    """The run that was started or resumed last.

    Raises:
        FullrankError: There is none.
    """
    configurations = list(root.glob("*/config.toml"))
    if not configurations:
        raise FullrankError(
            f"there are no runs in {root}/; name a run, or host:port of its monitor"
        )
    newest = max(configurations, key=lambda path: path.stat().st_mtime).parent
    _check_contents(newest)
    return newest


def meant(run: str | None) -> str:
    """The directory of a run, or the address of its monitor.

    Raises:
        FullrankError: There is no such run.
    """
    if run is not None and is_address(run):
        return run
    return str(newest_run() if run is None else find_run(run))


def _check_contents(directory: Path) -> None:
    """Refuse what an archive may put into a run directory to reach other files or never to end.

    Raises:
        FullrankError: A link leads outside, an entry is no file, or a file with holes claims more
            bytes than this machine has memory.
    """
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    inside = directory.resolve()
    for folder, folders, files in os.walk(directory):
        for path in (Path(folder, name) for name in (*folders, *files)):
            try:
                found = path.lstat()
            except FileNotFoundError:  # its service has removed it
                continue
            kind = found.st_mode
            if stat.S_ISLNK(kind):
                if not _leads_into(path, inside):
                    raise FullrankError(f"{path} is a link that leads outside the run; remove it")
            elif not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):
                raise FullrankError(f"{path} is neither a file nor a directory; remove it")
            elif found.st_size > max(memory, 512 * found.st_blocks) and path.suffix != SUFFIX:
                raise FullrankError(
                    f"{path} claims {found.st_size} bytes, more than the memory of this machine, "
                    "and has fewer; remove it"
                )


def _leads_into(link: Path, inside: Path) -> bool:
    try:
        return link.resolve().is_relative_to(inside)
    except (OSError, RuntimeError):  # it leads to itself
        return False


def named(chosen: PluginSettings | EnvironmentSettings) -> str:
    """Name of a code, an environment or another plug-in, with its given parameters."""
    params = ", ".join(f"{key} = {value}" for key, value in chosen.params.items())
    return f"{chosen.name} ({params})" if params else chosen.name
