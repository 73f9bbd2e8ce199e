"""Metrics: whole lines, honest numbers, and sinks that cannot stop a run."""

import json
import math
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from fullrank.errors import ConfigError, FullrankError
from fullrank.metrics import (
    Fanout,
    IterationRecord,
    JsonLines,
    TensorBoard,
    follow,
    open_sinks,
    read_records,
    to_line,
)


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


def scalars(directory: Path) -> EventAccumulator:
    found = EventAccumulator(str(directory), size_guidance={"scalars": 0})
    found.Reload()
    return found


def test_tensorboard_reads_the_scalars(tmp_path: Path) -> None:
    sink = TensorBoard(tmp_path, first_iteration=0, clock=lambda: 12.0)
    sink.write(record(0))
    sink.write(record(1, return_mean=None, side_returns={}))
    sink.write(record(2, return_mean=-1.0))
    sink.close()
    found = scalars(tmp_path)
    returns = found.Scalars("return/mean")
    assert [(event.step, event.value, event.wall_time) for event in returns] == [
        (0, -1.5, 12.0),
        (2, -1.0, 12.0),
    ]
    values = {tag: found.Scalars(tag)[0].value for tag in found.Tags()["scalars"]}
    assert values["time/compute_s"] == 0.75
    assert (values["code/received"], values["code/late"], values["code/exact"]) == (3, 1, 1)
    assert (values["bytes_sent/sections"], values["bytes_received/coded"]) == (10, 20)
    assert values["return/team"] == -1.5


def test_tensorboard_that_is_not_installed_is_asked_for_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard.compat.proto", None)
    with pytest.raises(ConfigError, match="needs the package tensorboard"):
        TensorBoard(tmp_path, first_iteration=0)


def test_tensorboard_hides_what_a_resumed_run_writes_again(tmp_path: Path) -> None:
    clock = iter(range(100)).__next__
    for first, last, value in ((0, 5, 1.0), (3, 5, 2.0)):
        sink = TensorBoard(tmp_path, first_iteration=first, clock=clock)
        for iteration in range(first, last):
            sink.write(record(iteration, return_mean=value))
        sink.close()
    found = [(event.step, event.value) for event in scalars(tmp_path).Scalars("return/mean")]
    assert found == [(0, 1.0), (1, 1.0), (2, 1.0), (3, 2.0), (4, 2.0)]


def test_metrics_do_not_import_torch() -> None:
    code = (
        "import sys, tempfile; from pathlib import Path; from fullrank.metrics import open_sinks\n"
        "with tempfile.TemporaryDirectory() as path:\n"
        "    open_sinks(Path(path), first_iteration=0, tensorboard=True).close()\n"
        "print('torch' in sys.modules, 'tensorboard' in sys.modules)"
    )
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert other.stdout.split() == ["False", "True"]


class Listing:
    """A sink that keeps what it is given."""

    def __init__(self) -> None:
        self.records: list[IterationRecord] = []
        self.closed = False

    def write(self, record: IterationRecord) -> None:
        self.records.append(record)

    def close(self) -> None:
        self.closed = True


class Broken(Listing):
    """A sink that fails from its second record on, and when closed."""

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


def test_a_run_writes_lines_and_events(tmp_path: Path) -> None:
    sinks = open_sinks(tmp_path, first_iteration=0, tensorboard=True)
    sinks.write(record())
    sinks.close()
    assert read_records(tmp_path / "metrics.jsonl") == [record()]
    assert scalars(tmp_path / "tensorboard").Scalars("return/mean")[0].value == -1.5


def test_a_run_without_events_writes_lines_alone(tmp_path: Path) -> None:
    sinks = open_sinks(tmp_path, first_iteration=0, tensorboard=False)
    sinks.write(record())
    sinks.close()
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.jsonl"]
