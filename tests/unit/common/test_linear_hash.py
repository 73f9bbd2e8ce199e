"""The linear hash adds up as updates do, and detects changed entries."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fullrank.common.linear_hash import LinearHash, combine
from fullrank.common.types import Matrix
from fullrank.common.updates import GRID, snap

LENGTH = 40
HASHING = LinearHash(LENGTH, key=3)


def draw(units: int, seed: int) -> Matrix:
    generator = np.random.default_rng(seed)
    scale = 10.0 ** generator.uniform(-9, 0, (units, 1)) / 2
    drawn = (scale * generator.uniform(-1, 1, (units, LENGTH))).astype(np.float32)
    return snap(drawn).astype(np.float64)


@given(
    seed=st.integers(0, 2**31),
    coefficients=st.lists(st.integers(-1000, 1000), min_size=1, max_size=9),
)
def test_the_hash_of_a_combination_is_the_combination_of_the_hashes(
    seed: int, coefficients: list[int]
) -> None:
    updates, weights = draw(len(coefficients), seed), np.array([coefficients], np.float64)
    expected = HASHING.of(weights @ updates)
    assert np.array_equal(combine(weights, HASHING.of(updates)), expected)


@given(entry=st.integers(0, LENGTH - 1), steps=st.integers(-(2**53), 2**53).filter(bool))
def test_a_single_changed_entry_always_shows(entry: int, steps: int) -> None:
    change = np.zeros(LENGTH)
    change[entry] = steps * GRID
    assert (HASHING.of(change) != 0).any()


@given(seed=st.integers(0, 2**31), cut=st.integers(0, LENGTH))
def test_blocks_add_up_and_padding_does_not_count(seed: int, cut: int) -> None:
    update = draw(1, seed)[0]
    parts = HASHING.of(update[:cut]) + HASHING.of(update[cut:], start=cut)
    assert np.array_equal(parts, HASHING.of(update))
    update[cut:] = 0.0
    assert np.array_equal(HASHING.of(update[:cut]), HASHING.of(update))


def test_equal_keys_give_equal_hashes_and_others_do_not() -> None:
    update = draw(1, seed=0)[0].astype(np.float32)
    again, other = LinearHash(LENGTH, key=3), LinearHash(LENGTH, key=4)
    assert np.array_equal(again.of(update), HASHING.of(update))
    assert (other.of(update) != HASHING.of(update)).all()
