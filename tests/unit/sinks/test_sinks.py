"""Sinks besides metrics.jsonl: their output, and their isolation from the run."""

import subprocess
import sys
import threading
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.summary.writer import event_file_writer
from tests.unit.runs.test_record import record
from tests.waiting import WAIT_S

from fullrank.common.errors import ConfigError
from fullrank.common.types import JSON, Interval
from fullrank.runs.evaluations import EvaluationRecord
from fullrank.runs.record import IterationRecord
from fullrank.runs.scalars import scalars
from fullrank.sinks import Aside, MetricsSink, open_evaluation_sinks, open_sinks, sinks
from fullrank.sinks import base as module
from fullrank.sinks.tensorboard import Events
from fullrank.sinks.wandb import Wandb


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sink may take long to import its packages, and loses no record at the end of a test."""
    monkeypatch.setattr(module, "CLOSE_S", WAIT_S)


def events(directory: Path) -> EventAccumulator:
    found = EventAccumulator(str(directory), size_guidance={"scalars": 0})
    found.Reload()
    return found


def test_tensorboard_reads_the_events(tmp_path: Path) -> None:
    sink = Events(tmp_path, first_iteration=0, clock=lambda: 12.0)
    sink.write(record(0))
    sink.write(record(1, return_mean=None, side_returns={}))
    sink.write(record(2, return_mean=-1.0))
    sink.close()
    found = events(tmp_path)
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
    with pytest.raises(ConfigError, match="TensorBoard is not installed: pip install"):
        Events(tmp_path, first_iteration=0)


def test_tensorboard_hides_what_a_resumed_run_writes_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = count().__next__
    # TensorBoard reads files in the order of their names, which begin with a second.
    monkeypatch.setattr(event_file_writer, "time", SimpleNamespace(time=clock))
    for first, last, value in ((0, 5, 1.0), (3, 5, 2.0)):
        sink = Events(tmp_path, first_iteration=first, clock=clock)
        for iteration in range(first, last):
            sink.write(record(iteration, return_mean=value))
        sink.close()
    found = [(event.step, event.value) for event in events(tmp_path).Scalars("return/mean")]
    assert found == [(0, 1.0), (1, 1.0), (2, 1.0), (3, 2.0), (4, 2.0)]


def test_opening_a_sink_does_not_import_torch(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from fullrank.sinks.base import sinks\n"
        f"run = Path({str(tmp_path)!r})\n"
        "sinks.build('tensorboard').open(run, first_iteration=0, config={}).close()\n"
        "print('torch' in sys.modules, 'tensorboard' in sys.modules)"
    )
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert other.stdout.split() == ["False", "True"]


def test_a_run_writes_events(tmp_path: Path) -> None:
    opened = open_sinks(tmp_path, ["tensorboard"], first_iteration=0, config={})
    opened.write(record())
    opened.close()
    assert events(tmp_path / "tensorboard").Scalars("return/mean")[0].value == -1.5


def test_a_sink_is_opened_with_the_first_record(tmp_path: Path) -> None:
    open_sinks(tmp_path, ["tensorboard"], first_iteration=0, config={}).close()
    assert not (tmp_path / "tensorboard").exists()


def test_a_sink_that_does_not_exist_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="unknown metrics sink 'tensorbord'; did you mean"):
        open_sinks(tmp_path, ["tensorbord"], first_iteration=0, config={})
    assert list(tmp_path.iterdir()) == []


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


class Stuck(Listing):
    """A sink that blocks until it is released."""

    def __init__(self) -> None:
        super().__init__()
        self.entered, self.released = threading.Event(), threading.Event()

    def write(self, record: IterationRecord) -> None:
        self.entered.set()
        self.released.wait()
        super().write(record)


def test_a_sink_that_hangs_keeps_nobody_and_loses_records_that_are_counted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "KEPT", 3)
    stuck = Stuck()
    sink = Aside("stuck", lambda: stuck)
    sink.write(record(0))
    stuck.entered.wait()
    for iteration in range(1, 10):  # three are queued, six are dropped
        sink.write(record(iteration))
    stuck.released.set()
    sink.close()
    assert [each.iteration for each in stuck.records] == [0, 1, 2, 3]
    assert stuck.closed
    assert [entry.getMessage() for entry in caplog.records] == [
        "metrics_sink_slow sink=stuck: records are dropped",
        "metrics_sink_slow sink=stuck lost=6",
    ]


def test_a_sink_that_never_comes_back_is_left_behind(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "CLOSE_S", 0.01)
    stuck = Stuck()
    sink = Aside("stuck", lambda: stuck)
    sink.write(record(0))
    stuck.entered.wait()
    sink.close()
    assert [entry.getMessage() for entry in caplog.records] == [
        "metrics_sink_abandoned sink=stuck: it did not close in time"
    ]
    stuck.released.set()


def unopenable() -> MetricsSink:
    raise OSError("no route to host")


@pytest.mark.parametrize("open_sink", [unopenable, Broken])
def test_a_sink_that_fails_is_said_once_and_the_run_goes_on(
    open_sink: type[Broken], caplog: pytest.LogCaptureFixture
) -> None:
    sink = Aside("broken", open_sink)
    for iteration in range(4):
        sink.write(record(iteration))
    sink.close()
    sink.write(record(5))
    (said,) = caplog.records
    assert said.getMessage().startswith("metrics_sink_dropped sink=broken reason=no ")


class FakeRun:
    """Stand-in for the run that ``wandb.init`` returns."""

    def __init__(self) -> None:
        self.logged: list[tuple[int, dict[str, float]]] = []
        self.finished = False

    def log(self, values: dict[str, float], *, step: int) -> None:
        self.logged.append((step, values))

    def finish(self) -> None:
        self.finished = True


def test_wandb_gets_the_run_s_scalars_and_goes_on_with_the_same_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[dict[str, object]] = []
    run = FakeRun()

    def init(**settings: object) -> FakeRun:
        begun.append(settings)
        return run

    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=init))
    (tmp_path / "run.json").write_text('{"run": "abc"}')
    sink = Wandb().open(tmp_path, first_iteration=0, config={"seed": 3})
    sink.write(record(7))
    sink.close()
    (settings,) = begun
    assert (settings["id"], settings["resume"]) == ("abc", "allow")
    assert settings["config"] == {"seed": 3}
    assert run.logged == [(7, scalars(record(7)))]
    assert run.finished


@dataclass(frozen=True)
class Half:
    """A sink without evaluations."""

    def open(self, run_dir: Path, *, first_iteration: int, config: JSON) -> MetricsSink:
        raise AssertionError("the run's own sink is the controller's")


def evaluated(iteration: int, mean: float) -> EvaluationRecord:
    sides = {"prey": Interval(-mean, -mean - 1, -mean + 1)}
    returns = Interval(mean, mean - 1, mean + 1)
    return EvaluationRecord(iteration=iteration, term=1, returns=returns, sides=sides)


def test_evaluations_stand_beside_the_run_s_returns_in_sinks_that_take_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sinks._classes, "half", Half)
    run, begun = FakeRun(), list[dict[str, object]]()

    def init(**settings: object) -> FakeRun:
        begun.append(settings)
        return run

    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=init))
    (tmp_path / "run.json").write_text('{"run": "abc"}')
    names = ["tensorboard", "wandb", "half"]
    opened = open_evaluation_sinks(tmp_path, names, first_iteration=0, config={})
    opened.write(evaluated(9, 4.0))
    opened.close()
    found = events(tmp_path / "tensorboard" / "evaluations")
    values = {tag: found.Scalars(tag)[0].value for tag in found.Tags()["scalars"]}
    assert values == {
        "return/mean": 4.0,
        "return_low/mean": 3.0,
        "return_high/mean": 5.0,
        "return/prey": -4.0,
        "return_low/prey": -5.0,
        "return_high/prey": -3.0,
    }
    assert run.logged == [(9, values)]
    assert (begun[0]["id"], begun[0]["group"]) == ("abc-evaluations", "abc")


def test_wandb_that_is_not_installed_is_asked_for_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ConfigError, match=r"pip install 'fullrank\[wandb\]'"):
        Wandb().open(tmp_path, first_iteration=0, config={})
