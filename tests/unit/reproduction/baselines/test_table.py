"""The sparse table against a dictionary of numbers."""

import numpy as np

from fullrank_reproduction.baselines.scalable_actor_critic import SparseTable


def test_values_are_zero_until_set_and_keys_keep_their_places() -> None:
    table, generator = SparseTable(), np.random.default_rng(0)
    known: dict[tuple[int, ...], float] = {}
    for _ in range(30):
        keys = generator.integers(0, 4, (6, 5, 3)).astype(np.int32)
        places = table.places(keys)
        assert places.shape == (6, 5)
        for key, place in zip(keys.reshape(-1, 3).tolist(), places.ravel(), strict=True):
            assert table.values[place] == known.get(tuple(key), 0.0)
        for key, place in zip(keys.reshape(-1, 3).tolist(), places.ravel(), strict=True):
            table.values[place] = known[tuple(key)] = generator.random()
    assert len(table) == len(known)


def test_keys_that_differ_in_one_number_are_two() -> None:
    table = SparseTable()
    keys = np.array([[1, 0, 300], [1, 0, 44], [1, 300, 0], [0, 1, 300]], np.int32)
    assert len(set(table.places(keys))) == len(table) == 4
