"""Metrics of the replay service."""

from collections.abc import Callable, Iterator

from fullrank.replay.store import Store
from fullrank.replay.table import Table
from fullrank.rpc.prometheus import Family, gauge


def table_metrics(store: Store) -> Iterator[Family]:
    """The current state of every table."""

    def by_table(value: Callable[[Table], int]) -> dict[str, float]:
        return {name: float(value(table)) for name, table in store.tables.items()}

    for name, text, value in (
        ("head_position", "One past the newest row.", lambda table: table.head),
        ("tail_position", "The oldest row held.", lambda table: table.tail),
        ("capacity_rows", "Rows held at most.", lambda table: table.capacity),
        ("row_bytes", "Size of a row.", lambda table: 4 * table.row_size),
    ):
        yield gauge(f"replay_{name}", text, by_table(value), label="table")
