import errno
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from fullrank.common import durable
from fullrank.common.errors import CheckpointUnusable, StorageFailed, VersionMismatch
from fullrank.runs import checkpoint
from fullrank.runs.checkpoint import MANIFEST, STATE, newest, save, saved

ARRAYS = {
    "policy": np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4),
    "transposed": np.arange(6.0).reshape(2, 3).T,
    "head": np.array(7, dtype=np.int64),
    "empty": np.zeros((0, 5), dtype=np.float32),
}


def written(directory: Path, *iterations: int, keep: int = 9) -> None:
    for iteration in iterations:
        save(directory, iteration=iteration, arrays=ARRAYS, facts={"at": iteration}, keep=keep)


def test_what_was_saved_is_read_back(tmp_path: Path) -> None:
    facts = {"seed": 2**40, "journal": [1, 2], "code": {"name": "cyclic"}, "rate": 0.1}
    path = save(tmp_path / "checkpoints", iteration=100, arrays=ARRAYS, facts=facts, keep=1)
    found = newest(tmp_path / "checkpoints")
    assert path == found.path == tmp_path / "checkpoints" / "000100"
    assert (found.iteration, found.facts, found.passed_over) == (100, facts, ())
    assert found.arrays.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert found.arrays[name].dtype == array.dtype
        np.testing.assert_array_equal(found.arrays[name], array, strict=True)


def test_a_save_cut_short_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = tmp_path / "first"
    written(tmp_path, 10)

    def power_cut(directory: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(durable, "sync_directory", power_cut)
        with pytest.raises(KeyboardInterrupt):
            written(tmp_path, 20)
        with pytest.raises(KeyboardInterrupt):
            written(first, 0)
    assert list(first.iterdir())
    assert not saved(first)
    assert newest(tmp_path).iteration == 10
    written(tmp_path, 20)
    assert newest(tmp_path).iteration == 20


@pytest.mark.parametrize("iteration", [20, 30])  # which replaces a checkpoint, or prunes one
def test_a_removal_cut_short_leaves_no_damaged_checkpoint_and_the_next_one_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, iteration: int
) -> None:
    written(tmp_path, 10, 20)

    def killed(path: Path, **_: object) -> None:
        if path.exists():
            (path / STATE).unlink()
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            written(tmp_path, iteration, keep=2)
    assert newest(tmp_path).iteration in (10, 30)
    for path in saved(tmp_path):
        checkpoint.load(path)
    written(tmp_path, 40, keep=2)
    assert sorted(tmp_path.iterdir()) == saved(tmp_path)[::-1]


def test_a_full_disk_is_said_in_a_line_and_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path, 10)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        told = f"cannot write {tmp_path / '000020'}: No space left on device; make room and resume"
        with pytest.raises(StorageFailed, match=told):
            written(tmp_path, 20)
    assert newest(tmp_path).iteration == 10


@pytest.mark.parametrize("name", [STATE, MANIFEST])
@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "gone"])
def test_a_damaged_newest_is_passed_over_by_name(tmp_path: Path, name: str, damage: str) -> None:
    written(tmp_path, 10, 20)
    path = tmp_path / "000020" / name
    data = bytearray(path.read_bytes())
    if damage == "gone":
        path.unlink()
    else:
        data[len(data) // 2] ^= 1
        path.write_bytes({"flip": bytes(data), "cut": bytes(data[:-9]), "empty": b""}[damage])
    found = newest(tmp_path)
    assert found.iteration == 10
    assert len(found.passed_over) == 1
    assert str(path) in found.passed_over[0]


def test_a_bit_flipped_in_any_byte_is_found(tmp_path: Path) -> None:
    path = save(tmp_path, iteration=1, arrays={"x": np.ones(2)}, facts={"a": 1.5}, keep=1)
    for name in (STATE, MANIFEST):
        whole = (path / name).read_bytes()
        for byte in range(len(whole)):
            data = bytearray(whole)
            data[byte] ^= 4
            (path / name).write_bytes(data)
            with pytest.raises(CheckpointUnusable):
                checkpoint.load(path)
        (path / name).write_bytes(whole)


def hostile(path: Path, state: bytes, **members: object) -> None:
    """A checkpoint with correct checksums and hostile content."""
    body: dict[str, object] = {
        "iteration": 30,
        "facts": {},
        "state_bytes": len(state),
        "state_checksum": checkpoint._checksum(state),
        **members,
    }
    path.mkdir()
    (path / STATE).write_bytes(state)
    stated = checkpoint._checksum(checkpoint._canonical(body))
    (path / MANIFEST).write_text(json.dumps({**body, "checksum": stated}))


def safetensors(header: object, data: bytes = b"") -> bytes:
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


@pytest.mark.parametrize(
    "state",
    [
        b"",
        (10**11).to_bytes(8, "little") + b"{}",  # a header of 100 GB
        safetensors({"x": {"dtype": "F32", "shape": [10**12], "data_offsets": [0, 4]}}, b"1234"),
        safetensors({"x": {"dtype": "F32", "shape": [1], "data_offsets": [0, 2**62]}}, b"1234"),
        safetensors({"x": {"dtype": "BF16", "shape": [1], "data_offsets": [0, 2]}}, b"12"),
        safetensors([1, 2]),
        b"\x80\x04cos\nsystem\n(S'true'\ntR.",  # a pickle
    ],
    ids=["empty", "header", "shape", "offsets", "dtype", "list", "pickle"],
)
def test_a_hostile_state_is_refused_by_name(tmp_path: Path, state: bytes) -> None:
    written(tmp_path, 10)
    hostile(tmp_path / "000030", state)
    found = newest(tmp_path)
    assert found.iteration == 10
    assert f"{tmp_path / '000030' / STATE}" in found.passed_over[0]


@pytest.mark.parametrize(
    "members",
    [{"iteration": "1"}, {"facts": []}, {"state_bytes": None}, {"state_checksum": 3}],
    ids=lambda members: next(iter(members)),
)
def test_a_hostile_manifest_is_refused_by_name(tmp_path: Path, members: dict[str, object]) -> None:
    hostile(tmp_path / "000030", safetensors({}), **members)
    with pytest.raises(CheckpointUnusable, match=f"{MANIFEST}: not a manifest"):
        newest(tmp_path)


def test_a_manifest_of_a_later_format_is_refused_and_not_passed_over(tmp_path: Path) -> None:
    written(tmp_path, 10)
    hostile(tmp_path / "000030", safetensors({}), format=2, facts=[])
    with pytest.raises(VersionMismatch, match=rf"000030/{MANIFEST} has format 2, .* up to 1"):
        newest(tmp_path)


@pytest.mark.parametrize("name", [STATE, MANIFEST])
def test_a_file_that_is_far_too_large_is_not_read(tmp_path: Path, name: str) -> None:
    written(tmp_path, 10, 20)
    with (tmp_path / "000020" / name).open("r+b") as file:
        file.truncate(10**11)  # sparse: 100 GB
    found = newest(tmp_path)
    assert found.iteration == 10
    assert "are the limit" in found.passed_over[0]


def test_older_ones_are_kept_until_the_new_one_reads_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path, 10, 20)

    def write_with_a_flipped_bit(path: Path, data: bytes) -> None:
        flipped = bytearray(data)
        flipped[len(data) // 2] ^= 1
        path.write_bytes(flipped)

    monkeypatch.setattr(checkpoint, "replace_bytes", write_with_a_flipped_bit)
    with pytest.raises(CheckpointUnusable, match="000030"):
        written(tmp_path, 30, keep=1)
    assert newest(tmp_path).iteration == 20


def test_parameters_that_are_not_finite_are_named_and_passed_over(tmp_path: Path) -> None:
    save(tmp_path, iteration=1, arrays={"algorithm.policy/2": np.ones(3)}, facts={}, keep=9)
    spoilt = {
        "algorithm.policy/2": np.array([1.0, np.nan, 3.0]),
        "rollout.seen": np.array([np.nan]),
    }
    with pytest.raises(CheckpointUnusable, match="'policy/2' holds values that are not finite"):
        save(tmp_path, iteration=2, arrays=spoilt, facts={}, keep=1)  # which reads it back
    found = newest(tmp_path)
    assert found.iteration == 1
    assert "000002" in found.passed_over[0]
