"""Keyed streams: pure functions of (seed, purpose, indices), and nothing else."""

import hashlib
import struct

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fullrank.common.seeding import derive, stream

SEEDS = st.integers(0, 2**63 - 1)
INDICES = st.lists(st.integers(-(2**63), 2**63 - 1), max_size=4).map(tuple)


def draw(seed: int, purpose: str, *indices: int) -> bytes:
    return stream(seed, purpose, *indices).bytes(16)


@given(SEEDS, INDICES)
def test_any_change_of_the_key_changes_the_draws(seed: int, indices: tuple[int, ...]) -> None:
    draws = {
        draw(seed, "a", *indices),
        draw(seed ^ 1, "a", *indices),
        draw(seed, "b", *indices),
        draw(seed, "a", *indices, 0),
        draw(seed, "a", *indices, 1),
    }
    assert len(draws) == 5


def test_what_was_drawn_before_changes_nothing() -> None:
    before = draw(5, "a", 1)
    stream(5, "b", 1).random(1000)
    np.random.seed(0)
    assert draw(5, "a", 1) == before


def test_a_stream_is_philox_by_its_key() -> None:
    words = hashlib.blake2b(struct.pack("<2q", 7, 3) + b"sample", digest_size=16).digest()
    philox = np.random.Philox(key=np.frombuffer(words, dtype="<u8"))
    assert draw(7, "sample", 3) == np.random.Generator(philox).bytes(16)


@given(SEEDS, INDICES)
def test_a_derived_seed_fits_31_bits(seed: int, indices: tuple[int, ...]) -> None:
    assert 0 <= derive(seed, "library", *indices) < 2**31
