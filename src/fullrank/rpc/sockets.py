"""Unix sockets of services on one host, which only their user can reach.

Each socket lies in a directory of its own with mode 0700, below the temporary folder or
``$XDG_RUNTIME_DIR``, because a run directory's path may exceed the 107 bytes that a socket's may
have. The name of the directory is drawn at random, so that no other user can have made it before.
"""

import os
import socket
import stat
import tempfile
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

from fullrank.common.errors import ConfigError, ServiceLost
from fullrank.config.values import SOCKET

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
