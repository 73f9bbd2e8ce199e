"""One process at a time holds a directory, whatever is removed from it."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from fullrank.common.errors import RunDirectoryInUse
from fullrank.host.run_directory import lock_launch, lock_replay, lock_run

LOCKS = pytest.mark.parametrize("lock", [lock_run, lock_replay, lock_launch])


@LOCKS
def test_a_second_one_is_refused_by_name_until_the_first_has_ended(
    tmp_path: Path, lock: Callable[[Path], ExitStack]
) -> None:
    with lock(tmp_path):
        told = rf"{tmp_path} is held by another .* \(process {os.getpid()}\)"
        with pytest.raises(RunDirectoryInUse, match=told):
            lock(tmp_path)
    lock(tmp_path).close()


@LOCKS
def test_the_removal_of_the_lock_file_gives_a_directory_to_nobody(
    tmp_path: Path, lock: Callable[[Path], ExitStack]
) -> None:
    with lock(tmp_path):
        for file in tmp_path.rglob("lock"):
            file.unlink()
        with pytest.raises(RunDirectoryInUse, match=f"{tmp_path} is held by another"):
            lock(tmp_path)


@LOCKS
def test_a_directory_that_was_moved_is_held_and_its_copy_is_free(
    tmp_path: Path, lock: Callable[[Path], ExitStack]
) -> None:
    one, copy, moved = tmp_path / "one", tmp_path / "copy", tmp_path / "moved"
    one.mkdir()
    with lock(one):
        shutil.copytree(one, copy)
        one.rename(moved)
        lock(copy).close()
        with pytest.raises(RunDirectoryInUse):
            lock(moved)


def test_the_kinds_of_locks_exclude_only_their_own(tmp_path: Path) -> None:
    with lock_launch(tmp_path), lock_run(tmp_path), lock_replay(tmp_path / "replay"):
        pass


def test_a_process_that_is_killed_holds_nothing(tmp_path: Path) -> None:
    held = (
        "import sys; from pathlib import Path; from fullrank.host.run_directory import lock_run; "
    )
    held += "lock = lock_run(Path(sys.argv[1])); print(flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", held, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        with pytest.raises(RunDirectoryInUse, match=rf"\(process {holder.pid}\)"):
            lock_run(tmp_path)
        holder.kill()
    lock_run(tmp_path).close()
