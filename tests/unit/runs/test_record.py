"""Records: whole lines, finite numbers, and sinks that cannot stop a run."""

import json
import math
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullrank.common.errors import FullrankError
from fullrank.runs.record import IterationRecord, follow, read_records, to_line
from fullrank.sinks import Fanout, JsonLines


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


def write(path: Path, *records: IterationRecord, first_iteration: int = 0) -> None:
    sink = JsonLines(path, first_iteration=first_iteration)
    for each in records:
        sink.write(each)
    sink.close()


def test_a_line_has_every_promised_field() -> None:
    promised = (
        "iteration term epoch attempt code return_mean round_s collect_s compute_s decode_s "
        "received late exact condition error_bound update_digest bytes_sent bytes_received"
    )
    assert set(promised.split()) <= set(json.loads(to_line(record())))


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
    sent = record(return_mean=value, condition=value, compute_s=compute_s, received=received)
    write(path, sent)
    finite = value if value is not None and math.isfinite(value) else None
    assert read_records(path) == [replace(sent, return_mean=finite, condition=finite)]


def test_only_algorithms_with_statistics_write_them() -> None:
    assert "statistics" not in json.loads(to_line(record()))
    line = to_line(record(statistics={"loss": 0.25, "td_error_abs": math.inf}))
    assert json.loads(line)["statistics"] == {"loss": 0.25, "td_error_abs": None}


def test_a_line_is_on_disk_before_the_sink_is_closed(tmp_path: Path) -> None:
    sink = JsonLines(tmp_path / "metrics.jsonl", first_iteration=0)
    for iteration in range(3):
        sink.write(record(iteration))
        assert len(read_records(tmp_path / "metrics.jsonl")) == iteration + 1
    sink.close()


def test_a_torn_last_line_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    write(path, record(0), record(1))
    whole = path.read_bytes()
    for length in range(whole.index(b"\n") + 1, len(whole)):
        path.write_bytes(whole[:length])
        assert read_records(path) == [record(0)]


def test_another_damaged_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text(to_line(record(0)) + "\n{}\n" + to_line(record(2)) + "\n")
    with pytest.raises(FullrankError, match=r"metrics\.jsonl, line 2, is not a metrics record"):
        read_records(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FullrankError, match=r"cannot read .*metrics\.jsonl: No such file"):
        read_records(tmp_path / "metrics.jsonl")


@given(st.integers(0, 6), st.binary(max_size=8).filter(lambda cut: b"\n" not in cut))
def test_a_resumed_run_drops_what_it_will_write_again(first_iteration: int, torn: bytes) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "metrics.jsonl")
        write(path, *map(record, range(5)))
        kept = path.read_bytes().splitlines(keepends=True)[:first_iteration]
        path.write_bytes(path.read_bytes() + torn)
        write(path, record(first_iteration, term=2), first_iteration=first_iteration)
        lines = path.read_bytes().splitlines(keepends=True)
        assert lines == [*kept, to_line(record(first_iteration, term=2)).encode() + b"\n"]
        assert list(Path(directory).iterdir()) == [path]


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


def test_following_survives_a_run_that_resumes(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    write(path, *map(record, range(5)))
    followed = follow(path)
    assert next(followed) == [record(iteration) for iteration in range(5)]
    again = [record(iteration, term=2) for iteration in range(2, 9)]
    write(path, *again, first_iteration=2)
    assert next(followed) == [record(0), record(1), *again]


class Listing:
    """A sink that keeps its records."""

    def __init__(self) -> None:
        self.records: list[IterationRecord] = []
        self.closed = False

    def write(self, record: IterationRecord) -> None:
        self.records.append(record)

    def close(self) -> None:
        self.closed = True


class Broken(Listing):
    """A sink that fails from its second record on, and on close."""

    def write(self, record: IterationRecord) -> None:
        super().write(record)
        if len(self.records) > 1:
            raise OSError("no space left on device")

    def close(self) -> None:
        raise OSError("no space left on device")


def test_a_sink_that_raises_is_dropped_with_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    broken, listing = Broken(), Listing()
    fanout = Fanout([broken, listing])
    for iteration in range(4):
        fanout.write(record(iteration))
    fanout.close()
    assert [each.iteration for each in listing.records] == [0, 1, 2, 3]
    assert listing.closed
    assert len(broken.records) == 2
    assert [entry.getMessage() for entry in caplog.records] == ["metrics_sink_dropped sink=Broken"]


def test_a_sink_that_fails_to_close_does_not_keep_the_others_open(
    caplog: pytest.LogCaptureFixture,
) -> None:
    listing = Listing()
    Fanout([Broken(), listing]).close()
    assert listing.closed
    assert len(caplog.records) == 1
