"""The mirror of a table on a device, here the CPU."""

import numpy as np
import pytest
import torch

from fullrank.replay.storage import MemoryStorage
from fullrank.replay.table import Table
from fullrank.training import mirror
from fullrank.training.mirror import Mirror

CAPACITY, SIZE = 10, 3


def test_a_mirror_gathers_the_rows_of_its_table_while_these_take_the_places_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mirror, "CHUNK_BYTES", 4 * 4 * SIZE)  # of four rows
    generator = np.random.default_rng(0)
    table = Table(MemoryStorage(CAPACITY, SIZE), capacity=CAPACITY)
    table.append(0, generator.random((7, SIZE), dtype=np.float32))
    mirrored = Mirror(table, torch.device("cpu"))
    for added in (1, 0, 6, 9, 10, 2):
        if added:
            table.append(table.head, generator.random((added, SIZE), dtype=np.float32))
        positions = generator.integers(table.tail, table.head, 20)
        assert np.array_equal(mirrored.gather(positions), table.gather(positions))
    everything = np.arange(table.tail, table.head)
    assert np.array_equal(mirrored.gather(everything), table.gather(everything))
