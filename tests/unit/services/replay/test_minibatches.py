"""Minibatches are gathered once, within a bound of memory."""

from dataclasses import replace

import numpy as np
import pytest

from fullrank.common.errors import Overloaded
from fullrank.common.types import FloatArray, IntArray
from fullrank.replay.items import Items
from fullrank.replay.samplers import Sample
from fullrank.replay.table import TABLE
from fullrank_replay import servicer
from fullrank_replay.servicer import GatheredRows, Minibatches


def sample(iteration: int) -> Sample:
    return Sample(table=TABLE, seed=0, iteration=iteration, tail=0, head=1, size=1)


class Counted:
    """Gathers minibatches and encodes them; counts how often each was gathered and encoded."""

    def __init__(self) -> None:
        self.gathered: list[int] = []
        self.encoded: list[int] = []
        self.minibatches = Minibatches(self._gather)

    async def _gather(self, sample: Sample) -> GatheredRows:
        self.gathered.append(sample.iteration)
        return np.full((1, 1), sample.iteration, np.float32), np.ones(1, np.int64)

    def _encode(self, rows: FloatArray, lengths: IntArray, items: Items) -> list[bytes]:
        self.encoded.append(int(rows[0, 0]))
        return [rows.tobytes()]

    async def read(self, iteration: int, *, size_bytes: int = 4, items: Items = None) -> None:
        with self.minibatches.lent(sample(iteration), size_bytes=size_bytes) as minibatch:
            encoded = await minibatch.encoded(self._encode, items)
            assert encoded == [np.float32(iteration).tobytes()]


async def test_the_last_two_are_kept_and_older_ones_encoded_again() -> None:
    counted = Counted()
    for iteration in (0, 0, 1, 0, 2, 1, 2, 0):
        await counted.read(iteration)
    assert counted.encoded == [0, 1, 2, 0]


async def test_minibatches_of_other_runs_displace_none() -> None:
    counted = Counted()
    await counted.read(0)
    for iteration in (1, 2, 3):
        theirs = replace(sample(iteration), table="another run/transitions")
        with counted.minibatches.lent(theirs, size_bytes=4) as minibatch:
            await minibatch.gathered()
    counted.minibatches.clear("another run/transitions")
    await counted.read(0)
    assert counted.gathered == [0, 1, 2, 3]


async def test_what_is_being_read_is_kept_however_old() -> None:
    counted = Counted()
    with counted.minibatches.lent(sample(0), size_bytes=1) as minibatch:
        for iteration in (1, 2, 3, 0):
            await counted.read(iteration)
        assert (await minibatch.gathered())[0] == 0
    assert counted.encoded == [1, 2, 3, 0]
    assert counted.gathered == [0, 1, 2, 3]


async def test_a_minibatch_that_is_gathered_from_the_mapped_file_is_not_encoded() -> None:
    counted = Counted()
    with counted.minibatches.lent(sample(0), size_bytes=1) as minibatch:
        await minibatch.gathered()
    assert (counted.gathered, counted.encoded) == ([0], [])


async def test_there_is_room_as_soon_as_somebody_has_read_to_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(servicer, "MINIBATCH_BYTES", 10)
    counted = Counted()
    await counted.read(0, size_bytes=4)
    with counted.minibatches.lent(sample(1), size_bytes=6):
        with pytest.raises(Overloaded, match="6 bytes of minibatches are being sent") as raised:
            await counted.read(2, size_bytes=5)
        assert raised.value.retry_after_s > 0
        await counted.read(1, size_bytes=6)
    await counted.read(2, size_bytes=5)
    assert counted.encoded == [0, 1, 2]


async def test_items_are_encoded_once_for_all_who_ask_for_the_same_ones() -> None:
    counted = Counted()
    for items in ((0, 1), (2, 3), (0, 1), None, (2, 3), None):
        await counted.read(0, items=items)
    assert (counted.gathered, counted.encoded) == ([0], [0, 0, 0])


async def test_encoded_items_are_kept_up_to_some_times_the_size_of_the_minibatch() -> None:
    counted = Counted()
    wanted = [(item,) for item in range(servicer.COPIES + 1)]
    for items in [*wanted, wanted[-1], wanted[0]]:
        await counted.read(0, items=items)
    assert len(counted.encoded) == len(wanted) + 1


async def test_what_was_forgotten_is_encoded_again() -> None:
    counted = Counted()
    await counted.read(0)
    counted.minibatches.clear(TABLE)
    await counted.read(0)
    assert counted.encoded == [0, 0]
