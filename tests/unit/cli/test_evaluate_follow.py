"""``fullrank eval --follow``: the policies played, the records written, and the end."""

import json
import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from fullrank.cli.evaluate import CheckpointPolicies
from fullrank.cli.plot import draw
from fullrank.cli.policies import Trained, Version
from fullrank.common.errors import FullrankError
from fullrank.common.types import Interval
from fullrank.runs import checkpoint
from fullrank.runs.evaluations import EvaluationRecord, append, read_evaluations
from fullrank.runs.record import METRICS, IterationRecord, begun, read_records, to_line

from .conftest import Command, finished
from .test_plot import record

WORDS = ("--follow", "--episodes", "3")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run of five iterations with a checkpoint of the first only."""
    run = finished(tmp_path / "chase", environment__name="predator_prey")
    order(run, 5)
    return run


def order(run: Path, iterations: int) -> None:
    """Give a run another number of iterations, as its controller does when it is ordered to."""
    config = run / "config.toml"
    config.write_text(
        re.sub(r"\niterations = \d+\n", f"\niterations = {iterations}\n", config.read_text())
    )


def publish(run: Path, iteration: int, *, term: int = 0) -> None:
    """Save the run's policies again, as those of a later iteration."""
    found = checkpoint.newest(run / "checkpoints")
    checkpoint.save(
        run / "checkpoints", iteration=iteration, arrays=found.arrays, facts={"term": term}, keep=9
    )


@pytest.fixture
def after_look(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, Callable[[], None]], None]:
    """``after_look(n, act)`` calls ``act`` after the n-th check for newer policies."""
    planned: dict[int, Callable[[], None]] = {}
    looks = 0
    newer = CheckpointPolicies.newer

    def look(self: CheckpointPolicies, than: Version) -> Trained | None:
        nonlocal looks
        found = newer(self, than)
        looks += 1
        planned.pop(looks, lambda: None)()
        return found

    monkeypatch.setattr(CheckpointPolicies, "newer", look)
    monkeypatch.setattr(import_module("fullrank.cli.evaluate"), "LONGEST_PAUSE_S", 0.0)
    return planned.__setitem__


def test_each_policies_are_played_until_the_run_s_last_ones(
    fullrank: Command, run: Path, after_look: Callable[[int, Callable[[], None]], None]
) -> None:
    after_look(1, lambda: publish(run, 2))
    after_look(4, lambda: publish(run, 4))
    outcome = fullrank("eval", str(run), *WORDS, "--json")
    assert outcome.code == 0, outcome.error
    printed = [json.loads(line) for line in outcome.output.splitlines()]
    assert [facts["iteration"] for facts in printed] == [0, 2, 4]
    noted = (run / "evaluations.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in noted] == printed
    once = fullrank("eval", str(run), "--episodes", "3", "--no-random", "--json").output
    assert json.loads(once) == printed[-1]


def test_a_run_that_is_made_longer_meanwhile_is_followed_to_its_later_end(
    fullrank: Command, run: Path, after_look: Callable[[int, Callable[[], None]], None]
) -> None:
    def lengthen() -> None:
        publish(run, 4)
        order(run, 8)

    after_look(1, lengthen)
    after_look(3, lambda: publish(run, 7))
    assert fullrank("eval", str(run), *WORDS).code == 0
    assert [evaluated.iteration for evaluated in read_evaluations(run)] == [0, 4, 7]


def test_a_run_that_is_made_shorter_while_it_is_waited_for_has_ended(
    fullrank: Command, run: Path, after_look: Callable[[int, Callable[[], None]], None]
) -> None:
    after_look(1, lambda: publish(run, 2))
    after_look(3, lambda: order(run, 3))
    outcome = fullrank("eval", str(run), *WORDS, "--patience", "0")
    assert (outcome.code, outcome.error) == (0, "")
    assert [evaluated.iteration for evaluated in read_evaluations(run)] == [0, 2]


def test_what_was_played_before_is_not_played_again(
    fullrank: Command, run: Path, after_look: Callable[[int, Callable[[], None]], None]
) -> None:
    publish(run, 4)
    assert fullrank("eval", str(run), *WORDS).output.startswith("iteration 4: return ")
    assert fullrank("eval", str(run), *WORDS) == (0, "", "")
    assert [evaluated.iteration for evaluated in read_evaluations(run)] == [4]


def test_what_a_later_term_publishes_is_played_and_supersedes(
    fullrank: Command, run: Path, after_look: Callable[[int, Callable[[], None]], None]
) -> None:
    publish(run, 3, term=1)
    metrics(run, *(record(each) for each in range(4)))

    def take_back() -> None:
        (run / "checkpoints" / "000003").rename(run / "taken_back")
        publish(run, 2, term=2)
        metrics(run, record(0), record(1, term=2), record(2, term=2))

    after_look(1, take_back)
    after_look(3, lambda: publish(run, 4, term=2))
    assert fullrank("eval", str(run), *WORDS).code == 0
    found = read_evaluations(run)
    assert [(each.term, each.iteration) for each in found] == [(1, 3), (2, 2), (2, 4)]
    terms = begun(read_records(run / METRICS))
    assert [each.superseded(terms) for each in found] == [True, False, False]
    shown = EventAccumulator(str(run / "tensorboard" / "evaluations"))
    shown.Reload()
    steps = [event.step for event in shown.Scalars("return/mean")]
    assert steps == [2, 4]


def test_a_run_whose_last_policies_were_taken_back_is_followed_again(
    fullrank: Command, run: Path
) -> None:
    publish(run, 4, term=1)
    metrics(run, *(record(each) for each in range(5)))
    assert fullrank("eval", str(run), *WORDS).output.startswith("iteration 4: ")
    assert fullrank("eval", str(run), *WORDS) == (0, "", "")
    publish(run, 4, term=2)
    metrics(run, record(0), *(record(each, term=2) for each in range(1, 5)))
    assert fullrank("eval", str(run), *WORDS).output.startswith("iteration 4: ")


def metrics(run: Path, *records: IterationRecord) -> None:
    (run / METRICS).write_text("".join(to_line(each) + "\n" for each in records))


@pytest.mark.parametrize("published", [True, False])
def test_a_run_that_publishes_nothing_more_is_given_up_in_one_line(
    fullrank: Command, run: Path, published: bool
) -> None:
    if not published:
        (run / "checkpoints").rename(run / "elsewhere")
    code, _, error = fullrank("eval", str(run), *WORDS, "--patience", "0")
    assert code == 9
    assert len(error.splitlines()) == 1
    seen, reason = (0, "is the run still going?") if published else (-1, "holds no checkpoint yet")
    assert f"no policies after iteration {seen} for 0 s" in error
    assert reason in error


def test_a_line_that_is_cut_short_is_left_out_and_a_damaged_one_named(
    fullrank: Command, run: Path
) -> None:
    fullrank("eval", str(run), *WORDS, "--patience", "0")
    with (run / "evaluations.jsonl").open("a") as file:
        file.write('{"iteration": 3, "tr')
    assert [evaluated.iteration for evaluated in read_evaluations(run)] == [0]
    append(run, {})
    with pytest.raises(FullrankError, match="is damaged"):
        read_evaluations(run)


def test_superseded_evaluations_are_drawn_hollow_and_said_to_be() -> None:
    interval = Interval(1.0, 0.0, 2.0)
    evaluations = [
        EvaluationRecord(iteration=2, term=term, returns=interval, sides={"team": interval})
        for term in (1, 2)
    ]
    returns = draw([record(0), record(1, term=2)], evaluations, title="").axes[0]
    points = [line for line in returns.lines if line.get_marker() == "o"]
    assert [line.get_markerfacecolor() == "none" for line in points] == [False, True]
    legend = returns.get_legend()
    assert legend is not None
    texts = [text.get_text() for text in legend.get_texts()]
    assert texts[-2:] == ["greedily", "greedily, superseded"]


def test_evaluations_are_drawn_by_side_with_their_intervals(fullrank: Command, run: Path) -> None:
    fullrank("eval", str(run), *WORDS, "--patience", "0")
    sides = {"predator": 1.0, "prey": -1.0}
    records: list[IterationRecord] = [record(0, side_returns=sides)]
    returns = draw(records, read_evaluations(run), title="").axes[0]
    legend = returns.get_legend()
    assert legend is not None
    names = ["predator", "prey", "predator greedily", "prey greedily"]
    assert [text.get_text() for text in legend.get_texts()] == names
    (evaluated,) = read_evaluations(run)
    points = [line for line in returns.lines if line.get_marker() == "o"]
    drawn = [np.asarray(line.get_ydata()).item() for line in points]
    assert drawn == [evaluated.sides[side].mean for side in ("predator", "prey")]
