"""What processes of one host share in a run directory: locks, and addresses of services.

An address is a fixed ``host:port``, or ``local`` or port 0 and an announcement. A ``local`` service
has a unix socket of its own; with port 0 the system picks a free port. Two runs on one machine
never collide. The service then announces its address in ``<run>/services/<name>.json``; callers
read it again before each attempt.

Each socket lies in a directory of its own with mode 0700, below the temporary folder or
``$XDG_RUNTIME_DIR``, because a run directory's path may exceed the 107 bytes that a socket's may
have. The name of the directory is drawn at random, so that no other user can have made it before.

A lock admits one process at a time and is released when its process ends. Locked are the directory
itself, which unlike a file in it cannot be removed while it is in use, and its file ``lock``, which
has the holder's process id and serves file systems that lock no directories.
"""

import errno
import fcntl
import json
import os
import re
import socket
import stat
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path

from fullrank.common.durable import replace_text
from fullrank.common.errors import ConfigError, Malformed, RunDirectoryInUse, ServiceLost
from fullrank.common.foreign import parse_json, read_regular
from fullrank.common.types import JSON
from fullrank.config.values import LOCAL, SOCKET

PREFIX, NAME = "fullrank-", "socket"
LONGEST_BYTES = 107
"""Longest path of a socket: 108 bytes with the one that ends it (``unix(7)``)."""


def is_socket(address: str) -> bool:
    """True if an address is that of a unix socket, not ``host:port``."""
    return address.startswith(SOCKET)


def make_socket_address() -> str:
    """Make a directory for a socket and return the socket's address, which is not bound yet.

    Raises:
        ConfigError: There is no folder for it.
    """
    for folder in _folders():
        with suppress(OSError):
            return f"{SOCKET}{tempfile.mkdtemp(prefix=PREFIX, dir=folder)}/{NAME}"
    raise ConfigError(
        "no folder for the service's socket: set TMPDIR to one whose path has at most "
        f"{_longest_folder()} bytes, and in which no other user may remove files of yours"
    )


def remove_socket(address: str) -> None:
    """Remove the directory of a socket, unless a service listens there or it is not ours."""
    if not is_socket(address) or not _is_private(path := _path(address)) or _answers(path):
        return
    path.unlink(missing_ok=True)
    with suppress(OSError):  # it holds something else
        path.parent.rmdir()


def check_socket(address: str) -> None:
    """Refuse to dial a socket that another user may have made.

    Raises:
        ServiceLost: It is not in a directory that belongs to this user alone, or is gone.
    """
    if not _is_private(_path(address)):
        raise ServiceLost(
            f"there is no socket of yours at {address}: its service has ended, belongs to another "
            "user or is on another host, where only an address HOST:PORT reaches it"
        )


def _folders() -> Iterator[Path]:
    """Folders that may hold a socket, the preferred one first.

    Logging out removes ``$XDG_RUNTIME_DIR``, which a run under ``nohup`` would miss.
    """
    names = [tempfile.gettempdir(), "/tmp", os.environ.get("XDG_RUNTIME_DIR", "")]
    for folder in map(Path, names):
        short = len(os.fsencode(folder)) <= _longest_folder()
        if folder.is_absolute() and short and _is_kept(folder):
            yield folder


def _longest_folder() -> int:
    drawn = 8  # letters of mkdtemp
    return LONGEST_BYTES - len(f"/{PREFIX}/{NAME}") - drawn


def _is_kept(folder: Path) -> bool:
    """True if no other user but root can remove or rename a directory of this user in a folder."""
    with suppress(OSError):
        found = folder.stat()
        shared = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not found.st_mode & stat.S_ISVTX
        return found.st_uid in (0, os.geteuid()) and not shared
    return False


def _path(address: str) -> Path:
    return Path(address.removeprefix(SOCKET))


def _is_private(path: Path) -> bool:
    """True if a path is that of a socket, present or not, in such a directory of this user."""
    directory = path.parent
    try:
        found = directory.lstat()
        kind = stat.S_IFMT(path.lstat().st_mode) if os.path.lexists(path) else stat.S_IFSOCK
    except OSError:
        return False
    return (
        path.name == NAME
        and directory.name.startswith(PREFIX)
        and stat.S_ISDIR(found.st_mode)
        and stat.S_IMODE(found.st_mode) == stat.S_IRWXU
        and found.st_uid == os.geteuid()
        and kind == stat.S_IFSOCK
        and _is_kept(directory.parent)
    )


def _answers(path: Path) -> bool:
    with closing(socket.socket(socket.AF_UNIX)) as probe:
        probe.setblocking(False)
        try:
            probe.connect(str(path))
        except BlockingIOError:  # its queue is full
            return True
        except OSError:
            return False
        return True


def is_announced(configured: str) -> bool:
    """True if a configured address is known only once its service has announced it."""
    return configured == LOCAL or configured.endswith(":0")


def is_address(run: str) -> bool:
    """True if ``run`` is the address of a run's monitor rather than the run's directory.

    Raises:
        ConfigError: There is no such port.
    """
    if re.fullmatch(r".+:\d+|unix:/.+", run) is None or Path(run).exists():
        return False
    if not run.startswith("unix:") and port_of(run) > MOST_PORT:
        raise ConfigError(f"{run}: ports end at {MOST_PORT}")
    return True


MOST_PORT = 2**16 - 1

_MOST_BYTES = 2**16
"""Largest announcement."""


def port_of(address: str) -> int:
    """The port of ``host:port``."""
    return int(address.rpartition(":")[2])


def announce(run_dir: Path | None, service: str, address: str) -> None:
    """Write a service's address (and process id) into the run directory, atomically.

    A directory that does not exist is made: a sidecar has no other use for one. The socket of a
    predecessor that was killed is removed.
    """
    if run_dir is None:
        return
    run_dir.mkdir(parents=True, exist_ok=True)
    withdraw(run_dir, service)
    facts = {"address": address, "pid": os.getpid(), **place_of(run_dir)}
    replace_text(_announcement(run_dir, service), json.dumps(facts))


def withdraw(run_dir: Path | None, service: str) -> None:
    """Remove an announcement, and the socket of a service that was killed."""
    if run_dir is not None:
        with suppress(ServiceLost):
            remove_socket(_announced(run_dir, service))
        _announcement(run_dir, service).unlink(missing_ok=True)


def resolve(configured: str, run_dir: Path | None, service: str) -> str:
    """The address to dial now.

    Raises:
        ServiceLost: The service has not announced itself yet; trying again may help.
        ConfigError: There is no run directory to look in.
    """
    if not is_announced(configured):
        return configured
    if run_dir is None:
        raise ConfigError(
            f"{service}.address is {configured}: give --run-dir to find the service, or its "
            "address host:port"
        )
    return _announced(run_dir, service)


def _announced(run_dir: Path, service: str) -> str:
    try:
        path = _announcement(run_dir, service)
        announced = parse_json(read_regular(path, _MOST_BYTES), origin=str(path))
        if not is_elsewhere(run_dir, announced):
            return str(announced["address"])
    except (Malformed, KeyError, TypeError, AttributeError):
        pass
    raise ServiceLost(f"the {service} has not announced its address in {run_dir} yet")


def place_of(run_dir: Path) -> JSON:
    """Path and inode of a directory: a moved one keeps its inode, a restored one its path."""
    return {"directory": str(run_dir.resolve()), "inode": run_dir.stat().st_ino}


def is_elsewhere(run_dir: Path, facts: JSON) -> bool:
    """Return whether facts that state a place were written in another directory than this."""
    here = place_of(run_dir)
    return all(facts.get(name, place) != place for name, place in here.items())


def _announcement(run_dir: Path, service: str) -> Path:
    return run_dir / "services" / f"{service}.json"


LOCK = "lock"


def lock_run(run_dir: Path) -> ExitStack:
    """Lock a run directory for as long as the returned stack stays open.

    Raises:
        RunDirectoryInUse: Another controller holds it.
    """
    return _lock(run_dir, run_dir, "controller")


def lock_replay(directory: Path) -> ExitStack:
    """Lock a directory of tables, which is made if missing, in the same way.

    Raises:
        RunDirectoryInUse: A replay service, or a run in one process, holds it.
    """
    return _lock(directory, directory, "process, a replay service or a run in one process")


def lock_launch(run_dir: Path) -> ExitStack:
    """Lock a run directory against a second process that trains in it, in the same way.

    The services of the first one lock the directory only once they have started.

    Raises:
        RunDirectoryInUse: Another command trains in the directory.
    """
    return _lock(run_dir / "logs", run_dir, "`fullrank train` or `run resume`")


def trainer_of(run_dir: Path) -> int | None:
    """Return the id of the process of this host that trains a run; None if there is none."""
    return holder_of(run_dir / "logs") or holder_of(run_dir)


def holder_of(directory: Path) -> int | None:
    """Return the process that holds a lock, without taking it, which would refuse another's start.

    A process that has got the id of a former holder does not have the file of the lock open.
    """
    if not (number := _stated(directory)):
        return None
    with suppress(OSError):  # it has ended, or is another user's
        held = (directory / LOCK).stat()
        with os.scandir(f"/proc/{number}/fd") as files:
            for each in files:
                with suppress(OSError):  # it has just been closed
                    if os.path.samestat(held, each.stat()):
                        return int(number)
    return None


def _lock(directory: Path, held: Path, holder: str) -> ExitStack:
    directory.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        for path, flags in ((directory, os.O_RDONLY), (directory / LOCK, os.O_RDWR | os.O_CREAT)):
            descriptor = os.open(path, flags | os.O_CLOEXEC, 0o666)
            stack.callback(os.close, descriptor)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                process = f" (process {number})" if (number := _stated(directory)) else ""
                raise RunDirectoryInUse(
                    f"{held} is held by another {holder}{process}; stop it or choose another "
                    "--run-dir"
                ) from None
            except OSError as error:  # network file systems lock only what is open for writing
                if path != directory or error.errno not in _UNSUPPORTED:
                    raise
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        return stack.pop_all()


_UNSUPPORTED = (errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.ENOTSUP)


def _stated(directory: Path) -> str:
    """The process id in the file of a lock; empty without one."""
    try:
        text = read_regular(directory / LOCK, 2**10).decode().strip()
    except (Malformed, UnicodeDecodeError):
        return ""
    return text if re.fullmatch(r"[0-9]{1,9}", text) else ""
