"""Unix sockets lie where only their user may enter, and none is left behind."""

import os
import socket
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from fullrank.common.errors import ConfigError, ServiceLost
from fullrank.host import run_directory
from fullrank.host.run_directory import (
    LONGEST_BYTES,
    announce,
    check_socket,
    make_socket_address,
    remove_socket,
    resolve,
    withdraw,
)
from fullrank.net.channel import open_blocking_channel


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A short temporary folder that is the system's."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="t") as made:
        monkeypatch.setattr(tempfile, "tempdir", made)
        yield Path(made)


def path_of(address: str) -> Path:
    return Path(address.removeprefix("unix:"))


def listening(address: str) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path_of(address)))
    listener.listen()
    return listener


def test_a_socket_lies_in_a_directory_that_only_its_user_may_enter(folder: Path) -> None:
    directory = path_of(make_socket_address()).parent
    found = directory.lstat()
    assert directory.parent == folder
    assert (stat.S_IMODE(found.st_mode), found.st_uid) == (0o700, os.geteuid())


@pytest.mark.parametrize("bytes_", [81, 82, 83, 200])
def test_a_long_temporary_folder_gives_no_longer_path_than_a_socket_may_have(
    bytes_: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = folder / ("x" * (bytes_ - len(str(folder)) - 1))
    long.mkdir(mode=0o700)
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    address = make_socket_address()
    with listening(address):
        pass
    assert len(str(path_of(address))) <= LONGEST_BYTES
    assert (path_of(address).parent.parent == long) is (bytes_ <= 82)
    remove_socket(address)


def test_without_a_folder_the_remedy_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_directory, "_folders", lambda: iter(()))
    with pytest.raises(ConfigError, match="set TMPDIR to one whose path has at most 82 bytes"):
        make_socket_address()


def test_a_folder_in_which_others_may_rename_is_passed_over(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.chmod(0o777)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    address = make_socket_address()
    assert path_of(address).parent.parent == Path("/tmp")
    remove_socket(address)
    folder.chmod(0o1777)
    assert path_of(make_socket_address()).parent.parent == folder


@pytest.mark.parametrize("kind", ["open to others", "a link", "of another name", "no socket"])
def test_a_socket_that_another_user_may_have_made_is_not_dialled(kind: str, folder: Path) -> None:
    address = make_socket_address()
    directory = path_of(address).parent
    if kind == "open to others":
        directory.chmod(0o755)
    elif kind == "a link":
        directory.rename(folder / "elsewhere")
        directory.symlink_to(folder / "elsewhere")
    elif kind == "of another name":
        directory.rename(folder / "elsewhere")
        address = f"unix:{folder}/elsewhere/socket"
    else:
        path_of(address).write_text("")
    with pytest.raises(ServiceLost, match="there is no socket of yours at unix:"):
        check_socket(address)
    with pytest.raises(ServiceLost, match="there is no socket of yours at unix:"):
        open_blocking_channel(address)
    remove_socket(address)
    assert path_of(address).parent.exists(), "what is not ours is not removed"


def test_a_socket_is_removed_once_no_service_listens(folder: Path) -> None:
    address = make_socket_address()
    with listening(address):
        remove_socket(address)
        assert path_of(address).exists()
    remove_socket(address)
    assert list(folder.glob("fullrank-*")) == []
    remove_socket(address)


def test_the_socket_of_a_killed_service_goes_with_its_announcement(
    folder: Path, tmp_path: Path
) -> None:
    killed, after, last = (make_socket_address() for _ in range(3))
    for address in (killed, after):
        listening(address).close()
    announce(tmp_path, "replay", killed)
    announce(tmp_path, "replay", after)
    assert resolve("local", tmp_path, "replay") == after
    assert not path_of(killed).exists()
    withdraw(tmp_path, "replay")
    assert list(folder.glob("fullrank-*")) == [path_of(last).parent]
