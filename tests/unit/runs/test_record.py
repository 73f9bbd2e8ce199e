"""Records: whole lines, finite numbers, and sinks that cannot stop a run."""

import math
import tempfile
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.disks import no_room_beyond

from fullrank.common.errors import FullrankError
from fullrank.runs.record import (
    Condemnation,
    IterationRecord,
    condemnations,
    follow,
    published,
    read_records,
    stand,
    to_line,
)
from fullrank.sinks import JsonLines
from fullrank.sinks.jsonl import complete, condemn


def record(iteration: int = 0, **changes: object) -> IterationRecord:
    plain = IterationRecord(
        iteration=iteration,
        term=1,
        epoch=2,
        attempt=0,
        code="cyclic",
        return_mean=-1.5,
        side_returns={"team": -1.5},
        round_s=0.25,
        collect_s=0.125,
        compute_s={3: 0.5, 0: 0.75},
        decode_s=0.001,
        received=(3, 0, 2),
        late=(1,),
        exact=True,
        condition=4.5,
        error_bound=0.0,
        update_digest="ab",
        bytes_sent={"sections": 10},
        bytes_received={"coded": 20},
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


def write(path: Path, *records: IterationRecord) -> None:
    sink = JsonLines(path)
    for each in records:
        sink.write(each)
    sink.close()


@given(
    value=st.floats() | st.none(),
    compute_s=st.dictionaries(st.integers(0, 99), st.floats(0, 1e6)),
    received=st.lists(st.integers(0, 99)).map(tuple),
)
def test_a_written_record_reads_back_with_null_for_what_is_not_finite(
    tmp_path_factory: pytest.TempPathFactory,
    value: float | None,
    compute_s: dict[int, float],
    received: tuple[int, ...],
) -> None:
    path = tmp_path_factory.getbasetemp() / "read_back.jsonl"
    path.unlink(missing_ok=True)
    sent = record(return_mean=value, condition=value, compute_s=compute_s, received=received)
    write(path, sent)
    finite = value if value is not None and math.isfinite(value) else None
    assert read_records(path) == [replace(sent, return_mean=finite, condition=finite)]


def test_a_torn_last_line_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    write(path, record(0), record(1))
    whole = path.read_bytes()
    for length in range(whole.index(b"\n") + 1, len(whole)):
        path.write_bytes(whole[:length])
        assert read_records(path) == [record(0)]


@given(st.integers(0, 6), st.binary(max_size=8).filter(lambda cut: b"\n" not in cut))
def test_a_resumed_run_writes_what_is_new_and_removes_a_torn_line(first: int, torn: bytes) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "metrics.jsonl")
        write(path, *map(record, range(5)))
        path.write_bytes((whole := path.read_bytes()) + torn)
        write(path, *map(record, range(min(first, 5), 7)))  # repeated from the journal, then new
        assert path.read_bytes().startswith(whole)
        assert len(path.read_bytes().splitlines()) == 7
        assert read_records(path) == [record(iteration) for iteration in range(7)]
        assert list(Path(directory).iterdir()) == [path]


def test_a_damaged_line_is_kept_beside_the_file(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    write(path, *map(record, range(5)))
    lines = path.read_bytes().splitlines(keepends=True)
    lines[2] = b"x" + lines[2][1:]
    path.write_bytes(b"".join(lines))
    write(path, record(5))
    kept = path.with_name("metrics.jsonl.damaged")
    assert kept.read_bytes() == lines[2]
    write(path, record(6))
    assert kept.read_bytes() == lines[2]
    assert [each.iteration for each in read_records(path)] == [0, 1, 3, 4, 5, 6]


def test_a_line_that_the_disk_does_not_take_is_an_error_that_names_the_file(
    tmp_path: Path,
) -> None:
    path = tmp_path / "metrics.jsonl"
    write(path, record(0))
    with (
        no_room_beyond(path.stat().st_size + 20),
        pytest.raises(FullrankError, match=f"cannot write {path}: .*; make room and resume"),
        closing(JsonLines(path)) as sink,
    ):
        sink.write(record(1))
    assert read_records(path) == [record(0)]


def test_a_condemned_iteration_stands_no_more_though_its_line_stays(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    write(path, *map(record, range(5)))
    before = path.read_bytes()
    for first in (5, 3, 3):  # there is nothing to condemn in the first and the last one
        condemn(path, first, term=2)
    assert read_records(path) == [record(iteration) for iteration in range(3)]
    assert condemnations(tmp_path) == [Condemnation(condemned=3, term=2)]
    assert published(tmp_path) == 3
    write(path, record(3, term=2))
    assert read_records(path)[3:] == [record(3, term=2)]
    assert path.read_bytes().startswith(before)


@given(st.sets(st.integers(0, 14)))
def test_lines_that_a_power_cut_lost_are_added_again_where_they_belong(lost: set[int]) -> None:
    known = [*map(record, range(3)), *(record(iteration, term=3) for iteration in range(3, 8))]
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "metrics.jsonl")
        write(path, *map(record, range(6)))
        condemn(path, 3, term=2)
        write(path, *known[3:])
        lines = path.read_bytes().splitlines(keepends=True)
        kept = [line for number, line in enumerate(lines) if number not in lost]
        path.write_bytes(b"".join(kept))
        for _ in range(2):
            complete(path, known, Condemnation(condemned=8, term=4))
            assert read_records(path) == known
        if not lost & {3, 4, 5, 6}:  # the condemned ones
            assert path.read_bytes() == b"".join(lines)


def test_iterations_after_those_that_are_known_stand_no_more(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    write(path, record(0), record(2), record(3))
    complete(path, [record(1)], Condemnation(condemned=2, term=2))
    assert read_records(path) == [record(0), record(1)]
    write(path, record(2, term=2))
    complete(path, [], Condemnation(condemned=3, term=3))
    assert read_records(path) == [record(0), record(1), record(2, term=2)]


def test_a_record_of_a_superseded_controller_changes_nothing() -> None:
    records = [record(0), record(1, term=2)]
    assert not stand(records, record(1))
    assert stand(records, record(1, term=3))
    assert records == [record(0), record(1, term=3)]


def test_following_gives_each_record_once_and_only_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    followed = follow(path)
    assert next(followed) == []
    line = to_line(record(1)) + "\n"
    path.write_text(to_line(record(0)) + "\n" + line[:9])
    assert next(followed) == [record(0)]
    assert next(followed) == []
    with path.open("a") as file:
        file.write(line[9:])
    assert next(followed) == [record(1)]


def test_following_gives_what_a_later_term_commits_again(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    write(path, *map(record, range(5)))
    followed = follow(path)
    assert next(followed) == [record(iteration) for iteration in range(5)]
    again = [record(iteration, term=2) for iteration in range(2, 9)]
    write(path, record(1), *again)
    assert next(followed) == again
