"""What the replay service tells Prometheus."""

from collections.abc import Iterator

from fullrank.rpc.exposition import Family
from fullrank_replay.store import Store

ROW_BYTES = 4
"""Of an entry of a row, float32."""


def present(store: Store) -> Iterator[Family]:
    """The tables as they are."""
    tables = store.tables
    for name, text, numbers in (
        ("head_position", "One past the newest row.", [each.head for each in tables.values()]),
        ("tail_position", "The oldest row held.", [each.tail for each in tables.values()]),
        ("capacity_rows", "Rows held at most.", [each.capacity for each in tables.values()]),
        ("row_bytes", "Of a row.", [ROW_BYTES * each.row_size for each in tables.values()]),
    ):
        values = dict(zip(tables, map(float, numbers), strict=True))
        yield Family(name=f"replay_{name}", text=text, label="table", values=values)
