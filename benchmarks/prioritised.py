"""Claim: a prioritised minibatch costs less than one from a sum tree, in tables of any size.

Tables hold rows of the default run (132 float32); before each minibatch of 1024 an iteration
appends 100 rows, which evict the 100 oldest. Fullrank keeps a running total of the rows' tickets
and finds the drawn ones by binary search; the sum tree is the textbook's, in NumPy, with all draws
at once. All gather the rows, and take turns; medians. Exits with 1 if Fullrank takes longer.

    OMP_NUM_THREADS=1 python benchmarks/prioritised.py
"""

import argparse
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from statistics import median

import numpy as np

from fullrank.common.types import FloatArray, IntArray, Vector
from fullrank.replay import TABLE, MemoryStorage, Priority, Sample, Table

ROW_SIZE, APPENDED, BATCH = 132, 100, 1024
PRIORITY = Priority(first=60, count=3, gain=10.0)


class Contender:
    """A full table; ``draw`` gives a minibatch."""

    def __init__(self, capacity: int, priority: Priority | None) -> None:
        self.table = Table(MemoryStorage(capacity, ROW_SIZE), capacity=capacity)
        self._priority = priority

    def append(self, rows: FloatArray) -> None:
        self.table.append(self.table.head, rows)

    def draw(self, iteration: int) -> FloatArray:
        return self.table.minibatch(
            Sample(
                table=TABLE,
                seed=0,
                iteration=iteration,
                tail=self.table.tail,
                head=self.table.head,
                size=BATCH,
                priority=self._priority,
            )
        )


class SumTree(Contender):
    """The same tickets in a sum tree over the slots, updated when a minibatch is drawn."""

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity, None)
        self._leaves = 1 << (capacity - 1).bit_length()
        self._sums, self._summed = np.zeros(2 * self._leaves), 0

    def draw(self, iteration: int) -> FloatArray:
        table = self.table
        self._add(np.arange(self._summed, table.head))
        self._summed = table.head
        drawn = np.random.default_rng(iteration).uniform(0.0, self._sums[1], BATCH)
        slots = self._find(drawn)
        tail_slot = table.tail % table.capacity
        return table.gather(table.tail + (slots - tail_slot) % table.capacity)

    def _add(self, new: IntArray) -> None:
        nodes = self._leaves + new % self.table.capacity
        self._sums[nodes] = PRIORITY.tickets(self.table.gather(new)[:, PRIORITY.entries])
        while nodes[0] > 1:
            nodes = np.unique(nodes // 2)
            self._sums[nodes] = self._sums[2 * nodes] + self._sums[2 * nodes + 1]

    def _find(self, drawn: Vector) -> IntArray:
        nodes = np.ones(len(drawn), np.int64)
        while nodes[0] < self._leaves:
            left = self._sums[2 * nodes]
            right = drawn >= left
            drawn = drawn - left * right
            nodes = 2 * nodes + right
        return nodes - self._leaves


def measure(capacity: int, iterations: int) -> dict[str, float]:
    """Median seconds of a minibatch, by contender."""
    contenders = {
        "uniform": Contender(capacity, None),
        "prioritised": Contender(capacity, PRIORITY),
        "sum tree": SumTree(capacity),
    }
    rows = np.random.default_rng(0).standard_normal((capacity, ROW_SIZE), dtype=np.float32)
    for contender in contenders.values():
        contender.append(rows)
        contender.draw(0)
    times: dict[str, list[float]] = defaultdict(list)
    for iteration in range(1, iterations + 1):
        for name, contender in contenders.items():
            contender.append(rows[iteration : iteration + APPENDED])
            started = time.perf_counter()
            contender.draw(iteration)
            times[name].append(time.perf_counter() - started)
    return {name: median(seconds) for name, seconds in times.items()}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--iterations", type=int, default=300)
    options = parser.parse_args(arguments)
    print("| rows | uniform, ms | prioritised | sum tree |")
    print("|---|---|---|---|")
    holds = True
    for capacity in options.rows:
        uniform, prioritised, tree = measure(capacity, options.iterations).values()
        ratios = f"x {prioritised / uniform:.2f} | x {tree / uniform:.2f}"
        print(f"| {capacity} | {1e3 * uniform:.2f} | {ratios} |")
        holds &= prioritised <= tree
    return int(not holds)


if __name__ == "__main__":
    sys.exit(main())
