"""Exact updates: the effect of snapping, and the differences that digests detect."""

import numpy as np
import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fullrank.common import updates
from fullrank.common.types import FloatArray
from fullrank.common.updates import (
    DIGEST_BYTES,
    GRID,
    batch_digest,
    snap,
    unit_digest,
    update_digest,
)

CLIPPED = arrays(
    np.float32,
    st.integers(1, 40),
    elements=st.floats(-1.0, 1.0, width=32, allow_nan=False, allow_subnormal=False),
)


@given(CLIPPED)
def test_a_snapped_entry_is_a_multiple_of_the_grid(update: FloatArray) -> None:
    multiples = snap(update).astype(np.float64) / GRID
    np.testing.assert_array_equal(multiples, np.rint(multiples))


@given(CLIPPED)
def test_snapping_moves_an_entry_by_half_a_grid_step_at_most(update: FloatArray) -> None:
    moved = np.abs(snap(update).astype(np.float64) - update.astype(np.float64))
    assert (moved <= GRID / 2).all()


@given(CLIPPED)
def test_zero_has_one_sign(update: FloatArray) -> None:
    snapped = snap(update * np.float32(1e-12))
    assert not np.signbit(snapped).any()
    assert not snapped.any()


def test_a_digest_covers_the_little_endian_float32_bytes() -> None:
    update = np.array([1.0, -2.5], dtype=np.float32)
    expected = blake3(b"\x00\x00\x80\x3f\x00\x00\x20\xc0").digest(DIGEST_BYTES)
    assert unit_digest(update) == expected
    assert expected.hex() == "9718f9684e8d7ea880ebc84640f1c78d"


@given(CLIPPED, st.data())
def test_any_flipped_bit_changes_the_digest(update: FloatArray, data: st.DataObject) -> None:
    flipped = bytearray(update.tobytes())
    bit = data.draw(st.integers(0, 8 * len(flipped) - 1))
    flipped[bit // 8] ^= 1 << bit % 8
    assert unit_digest(np.frombuffer(bytes(flipped), dtype=np.float32)) != unit_digest(update)


@pytest.mark.parametrize("cores", [1, 2, 5, 64])
@pytest.mark.parametrize("entries", [updates.THREADED_BYTES // 4 + more for more in (-1, 0, 300)])
def test_a_digest_by_several_threads_is_the_digest_by_one(
    entries: int, cores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(updates, "usable_cores", lambda: cores)
    update = np.arange(entries, dtype=np.float32)
    whole, own = (blake3(part.tobytes()).digest(DIGEST_BYTES) for part in (update, update[:-2]))
    statistics = blake3(update[-2:].tobytes()).digest(DIGEST_BYTES)
    assert unit_digest(update) == whole
    assert unit_digest(update, statistics=2) == own + statistics


def test_the_digest_of_a_minibatch_is_the_standard_crc() -> None:
    zeros = np.zeros((2, 4), np.float32)
    assert batch_digest(zeros).hex() == "8a9136aa"  # RFC 3720, section B.4
    assert batch_digest(zeros[:0]) == bytes(4)


def test_the_iteration_digest_depends_on_every_unit_and_their_order() -> None:
    units = [unit_digest(np.full(3, value, dtype=np.float32)) for value in (1.0, 2.0, 3.0)]
    digests = {update_digest(units), update_digest(units[::-1]), update_digest(units[:2])}
    assert len(digests) == 3
