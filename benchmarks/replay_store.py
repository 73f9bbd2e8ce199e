"""Claim: the replay store gathers as fast as memory, and no other store is twice as fast.

The peers are LMDB, SQLite (WAL), a mapped ring behind a log, and plain memory. A million rows of
the default run (132 float32). Each store appends as an iteration does: 100 rows, which evict the
100 oldest and are on disk when the call returns. It gathers minibatches of 1024 rows into one
array, and is reopened, up to its first minibatch, with the files in the page cache. Stores take
turns; medians of all turns. They gather in bouts of ten, too short for a busy machine to slow one
and not its neighbour: a bout counts by its median, and is compared with the adjacent bout from
plain memory. Exits with 1 if gathering takes more than 1.25 times as long as from memory, in the
median of all bouts, or if another store appends or gathers in half the time.

    OMP_NUM_THREADS=1 python benchmarks/replay_store.py
"""

import argparse
import mmap
import os
import random
import sqlite3
import struct
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Protocol

import google_crc32c
import lmdb
import numpy as np

from fullrank.common.types import FloatArray, IntArray
from fullrank.replay import MemoryStorage, RingFile, Table

ROW_SIZE, APPENDED, BATCH, BLOCK = 132, 100, 1024, 5_000
BOUT = 10
ROW_BYTES = 4 * ROW_SIZE
GATHER_CLAIM, OTHERS_CLAIM = 1.25, 2.0


class Store(Protocol):
    """Rows by position; with ``sync`` rows are on disk when ``append`` returns."""

    def __init__(self, home: Path, capacity: int, *, sync: bool) -> None: ...

    def append(self, first: int, rows: FloatArray) -> None: ...

    def gather(self, positions: IntArray, out: FloatArray) -> None: ...

    def close(self) -> None: ...


class PlainMemory:
    """Upper bound of gathering speed; stores nothing durably."""

    def __init__(self, home: Path, capacity: int, *, sync: bool) -> None:
        self._table = Table(MemoryStorage(capacity, ROW_SIZE), capacity=capacity)

    def append(self, first: int, rows: FloatArray) -> None:
        self._table.append(first, rows)

    def gather(self, positions: IntArray, out: FloatArray) -> None:
        self._table.gather(positions, out)

    def close(self) -> None:
        pass


class Ring(PlainMemory):
    """Fullrank's ring of checked rows."""

    def __init__(self, home: Path, capacity: int, *, sync: bool) -> None:
        path = home / "t.table"
        if path.exists():
            storage = RingFile(path, sync=sync)
        else:
            storage = RingFile.create(path, row_size=ROW_SIZE, capacity=capacity, sync=sync)
        self._table = Table(storage, capacity=capacity)


class RingBehindLog:
    """Rows go to a synced log, then into a mapped ring; opening replays the log."""

    _HEADER = struct.Struct("<QII")
    _LONGEST = 64 * 2**20

    def __init__(self, home: Path, capacity: int, *, sync: bool) -> None:
        self._sync, self._capacity = sync, capacity
        size = capacity * ROW_BYTES
        self._ring = (home / "ring").open("a+b")
        self._ring.truncate(size)
        self._map = mmap.mmap(self._ring.fileno(), size)
        self._rows = np.frombuffer(self._map, np.float32).reshape(capacity, ROW_SIZE)
        self._log = (home / "log").open("a+b", buffering=0)
        self._repeat()

    def _repeat(self) -> None:
        self._log.seek(0)
        content = self._log.read()
        start = 0
        while start + self._HEADER.size <= len(content):
            first, count, crc = self._HEADER.unpack_from(content, start)
            start += self._HEADER.size
            data = content[start : start + count * ROW_BYTES]
            if google_crc32c.value(data) != crc:
                break
            self._place(first, np.frombuffer(data, np.float32).reshape(count, ROW_SIZE))
            start += len(data)

    def _place(self, first: int, rows: FloatArray) -> None:
        self._rows[np.arange(first, first + len(rows)) % self._capacity] = rows

    def append(self, first: int, rows: FloatArray) -> None:
        data = rows.tobytes()
        header = self._HEADER.pack(first, len(rows), google_crc32c.value(data))
        self._log.write(header + data)
        if self._sync:
            os.fdatasync(self._log.fileno())
        self._place(first, rows)
        if self._log.tell() > self._LONGEST:
            os.fsync(self._ring.fileno())
            self._log.truncate(0)

    def gather(self, positions: IntArray, out: FloatArray) -> None:
        np.take(self._rows, positions % self._capacity, axis=0, out=out, mode="clip")

    def close(self) -> None:
        self._log.close()
        self._ring.close()


class Lmdb:
    """LMDB: a row under its position; an append is a transaction."""

    def __init__(self, home: Path, capacity: int, *, sync: bool) -> None:
        self._capacity = capacity
        self._environment = lmdb.open(str(home), map_size=4 * capacity * ROW_BYTES, sync=sync)

    def append(self, first: int, rows: FloatArray) -> None:
        with self._environment.begin(write=True) as transaction:
            for position in range(first, first + len(rows)):
                if position >= self._capacity:
                    transaction.delete(_key(position - self._capacity))
            pairs = [(_key(first + index), row.tobytes()) for index, row in enumerate(rows)]
            transaction.cursor().putmulti(pairs, append=True)

    def gather(self, positions: IntArray, out: FloatArray) -> None:
        with self._environment.begin(buffers=True) as transaction:
            for index, position in enumerate(positions.tolist()):
                out[index] = np.frombuffer(transaction.get(_key(position), b""), np.float32)

    def close(self) -> None:
        self._environment.sync(True)
        self._environment.close()


def _key(position: int) -> bytes:
    return position.to_bytes(8, "big")


class Sqlite:
    """SQLite: a row under its position; an append is a transaction; write-ahead log."""

    def __init__(self, home: Path, capacity: int, *, sync: bool) -> None:
        self._capacity = capacity
        self._connection = sqlite3.connect(home / "rows.db", isolation_level=None)
        for statement in (
            "PRAGMA page_size = 8192",
            "PRAGMA journal_mode = WAL",
            f"PRAGMA synchronous = {'FULL' if sync else 'OFF'}",
            f"PRAGMA mmap_size = {4 * capacity * ROW_BYTES}",
            "CREATE TABLE IF NOT EXISTS rows (position INTEGER PRIMARY KEY, row BLOB)",
        ):
            self._connection.execute(statement)

    def append(self, first: int, rows: FloatArray) -> None:
        pairs = [(first + index, row.tobytes()) for index, row in enumerate(rows)]
        tail = first + len(rows) - self._capacity
        self._connection.execute("BEGIN")
        self._connection.execute("DELETE FROM rows WHERE position < ?", (tail,))
        self._connection.executemany("INSERT INTO rows VALUES (?, ?)", pairs)
        self._connection.execute("COMMIT")

    def gather(self, positions: IntArray, out: FloatArray) -> None:
        query = "SELECT row FROM rows WHERE position = ?"
        for index, position in enumerate(positions.tolist()):
            (row,) = self._connection.execute(query, (position,)).fetchone()
            out[index] = np.frombuffer(row, np.float32)

    def close(self) -> None:
        self._connection.close()


STORES: dict[str, type[Store]] = {
    "ring of checked rows (Fullrank)": Ring,
    "mapped ring behind a log": RingBehindLog,
    "LMDB": Lmdb,
    "SQLite, WAL": Sqlite,
    "plain memory": PlainMemory,
}


class Contender:
    """A filled store, and the durations of its operations."""

    def __init__(self, name: str, home: Path, capacity: int) -> None:
        self.times: dict[str, list[float]] = defaultdict(list)
        self._make, self._home, self._capacity = STORES[name], home, capacity
        self._generator = np.random.default_rng(0)
        self._out = np.empty((BATCH, ROW_SIZE), np.float32)
        self._head, self._keeps = 0, name != "plain memory"
        self._store = self._make(home, capacity, sync=False)
        for _ in range(capacity // BLOCK):
            self._append(BLOCK)
        self.reopen()
        self.times["append"].clear()
        self.bytes_on_disk = sum(512 * path.stat().st_blocks for path in home.rglob("*"))

    def _append(self, count: int) -> None:
        rows = self._generator.standard_normal((count, ROW_SIZE), dtype=np.float32)
        self._time("append", lambda: self._store.append(self._head, rows))
        self._head += count

    def _positions(self) -> IntArray:
        tail = max(0, self._head - self._capacity)
        return self._generator.integers(tail, self._head, size=BATCH)

    def _time(self, what: str, action: Callable[[], None]) -> None:
        started = time.perf_counter()
        action()
        self.times[what].append(time.perf_counter() - started)

    def reopen(self) -> None:
        """Close the store and open it with ``sync``."""
        if self._keeps:
            self._store.close()
            self._time("open", self._open)

    def _open(self) -> None:
        self._store = self._make(self._home, self._capacity, sync=True)
        self._store.gather(self._positions(), self._out)

    def append(self, times: int) -> None:
        """Append the rows of some iterations."""
        for _ in range(times):
            self._append(APPENDED)

    def gather(self) -> None:
        """Gather a bout of minibatches."""
        for _ in range(BOUT):
            positions = self._positions()
            self._time("gather", partial(self._store.gather, positions, self._out))

    def bouts(self) -> list[float]:
        """Median seconds of a minibatch in each bout."""
        times = self.times["gather"]
        return [median(times[start : start + BOUT]) for start in range(0, len(times), BOUT)]


def compare(capacity: int, turns: int, times: int) -> dict[str, Contender]:
    """Measure all stores in turn."""
    with tempfile.TemporaryDirectory(dir=".", prefix=".replay-store-") as scratch:
        contenders: dict[str, Contender] = {}
        for name in STORES:
            home = Path(scratch) / str(len(contenders))
            home.mkdir()
            contenders[name] = Contender(name, home, capacity)
        for turn in range(turns):
            order = random.Random(turn).sample(list(contenders.values()), len(contenders))
            for contender in order:
                contender.append(times)
            for _ in range(times):
                for contender in order:
                    contender.gather()
        for contender in contenders.values():
            contender.reopen()
    return contenders


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows held")
    parser.add_argument("--turns", type=int, default=5, help="alternations")
    parser.add_argument("--times", type=int, default=40, help="appends and bouts in a turn")
    options = parser.parse_args(arguments)
    contenders = compare(options.rows, options.turns, options.times)
    print("| store | append, ms (90 %) | gather, ms (90 %) | open, s | file / rows |")
    print("|---|---|---|---|---|")
    for name, store in contenders.items():
        size = store.bytes_on_disk / (options.rows * ROW_BYTES)
        opened = f"{median(store.times['open']):.2f} | {size:.2f}" if store.bytes_on_disk else "|"
        print(f"| {name} | {_ms(store, 'append')} | {_ms(store, 'gather')} | {opened} |")
    return int(not _holds(contenders))


def _ms(contender: Contender, what: str) -> str:
    times = contender.times[what]
    return f"{1e3 * median(times):.2f} ({1e3 * float(np.quantile(times, 0.9)):.2f})"


def _holds(contenders: dict[str, Contender]) -> bool:
    """Tell if gathering is as fast as from memory, and no store is far ahead."""
    ring, *others, memory = STORES
    beside = zip(contenders[ring].bouts(), contenders[memory].bouts(), strict=True)
    ratio = median(one / other for one, other in beside)
    print(f"\ngathering takes {ratio:.2f} times what it takes from memory (<= {GATHER_CLAIM})")
    ahead = max(
        median(contenders[ring].times[what]) / median(contenders[other].times[what])
        for what in ("append", "gather")
        for other in others
    )
    print(f"\nthe best other store is {ahead:.2f} times as fast (<= {OTHERS_CLAIM})")
    return ratio <= GATHER_CLAIM and ahead <= OTHERS_CLAIM


if __name__ == "__main__":
    sys.exit(main())
