"""``fullrank plot``: the contents of the figure, and the error for a run without iterations."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullrank.cli.panels import Abscissa, Story
from fullrank.cli.plot import draw, draw_together
from fullrank.common.types import Interval
from fullrank.config import load, to_toml
from fullrank.runs.aggregates import moving_mean
from fullrank.runs.evaluations import EvaluationRecord
from fullrank.runs.record import IterationRecord, to_line

from .conftest import Command


def record(iteration: int, *, late: int = 0, **changes: object) -> IterationRecord:
    values: dict[str, object] = {
        "iteration": iteration, "term": 1, "epoch": 0, "attempt": 0, "code": "cyclic",
        "return_mean": float(iteration), "round_s": 0.25, "collect_s": 0.1, "compute_s": {},
        "decode_s": 0.0, "received": (0, 1), "late": tuple(range(late)), "exact": True,
        "condition": 1.0, "error_bound": 0.0, "update_digest": "", "bytes_sent": {},
        "bytes_received": {},
    }  # fmt: skip
    return IterationRecord(**(values | changes))  # type: ignore[arg-type]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A finished run of 60 iterations."""
    overrides = ["stragglers.name=fixed_k", "stragglers.k=1", "code.tolerance=1", "learners=5"]
    (tmp_path / "config.toml").write_text(to_toml(load(overrides=overrides).config))
    lines = [to_line(record(iteration, late=iteration % 3)) + "\n" for iteration in range(60)]
    (tmp_path / "metrics.jsonl").write_text("".join(lines))
    return tmp_path


def test_a_picture_is_written_into_the_run(fullrank: Command, run: Path) -> None:
    assert fullrank("plot", str(run)) == (0, f"{run / 'plot.png'}\n", "")
    assert (run / "plot.png").read_bytes().startswith(b"\x89PNG")


def test_a_picture_is_written_where_it_is_asked_for(fullrank: Command, run: Path) -> None:
    fullrank("plot", str(run), "--output", str(run / "other.png"))
    assert (run / "other.png").exists()
    assert not (run / "plot.png").exists()


@pytest.mark.parametrize(
    ("missing", "message"),
    [("metrics.jsonl", "cannot read"), ("config.toml", "cannot read")],
)
def test_a_missing_file_is_one_line(
    fullrank: Command, run: Path, missing: str, message: str
) -> None:
    (run / missing).unlink()
    code, output, error = fullrank("plot", str(run))
    assert (code, output) == (1, "")
    assert error.startswith(f"fullrank: {message} {run / missing}: No such file")


def test_several_runs_are_drawn_into_one_picture(
    fullrank: Command, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    for name in ("config.toml", "metrics.jsonl"):
        (other / name).write_text((run / name).read_text())
    monkeypatch.chdir(tmp_path)
    assert fullrank("plot", str(run), str(other)) == (0, "plot.png\n", "")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
    code, _, error = fullrank("plot", str(run), "gone")
    assert (code, error.startswith("fullrank: there is no run")) == (1, True)


def test_each_run_has_its_name_and_colour_and_each_side_its_style() -> None:
    sides = {"chasers": 1.0, "prey": -1.0}
    both = [record(0, side_returns=sides), record(1, side_returns=sides)]
    returns, rounds = draw_together([story("first", both), story("second", both)]).axes
    shown = {line.get_label(): (line.get_color(), line.get_linestyle()) for line in returns.lines}
    names = ["first chasers", "first prey", "second chasers", "second prey"]
    first, prey, second, _ = (shown[name] for name in names)
    assert first[0] == prey[0] != second[0]
    assert first[1] == second[1] != prey[1]
    assert [line.get_color() for line in rounds.lines] == [first[0], second[0]]


def story(name: str, records: list[IterationRecord]) -> Story:
    return Story(directory=Path(name), config=load().config, records=records, evaluations=())


def test_a_run_without_iterations_is_said_to_have_none(fullrank: Command, run: Path) -> None:
    (run / "metrics.jsonl").write_text("")
    code, _, error = fullrank("plot", str(run))
    assert code == 1
    assert "no finished iteration yet" in error


def legend(records: list[IterationRecord], panel: int) -> list[str]:
    shown = draw(records, title="").axes[panel].get_legend()
    assert shown is not None
    return [text.get_text() for text in shown.get_texts()]


def test_win_rates_have_a_panel_of_their_own_with_the_evaluations() -> None:
    records = [record(0, win_rate=0.0), record(1), record(2, win_rate=0.5)]
    interval = Interval(0.5, 0.4, 0.6)
    played = EvaluationRecord(iteration=2, term=1, returns=interval, sides={}, win_rate=interval)
    _, won, rounds = draw(records, [played], title="a run").axes
    assert (won.get_ylabel(), rounds.get_ylabel()) == ("win rate", "round time (s)")
    assert np.asarray(won.lines[0].get_xdata()).tolist() == [0, 2]
    shown = won.get_legend()
    assert shown is not None
    assert [text.get_text() for text in shown.get_texts()] == ["won", "greedily"]
    together = draw_together([story("one", records), story("two", [record(0)])])
    assert [axes.get_ylabel() for axes in together.axes][1] == "win rate"


def test_bounds_that_rounding_moves_beyond_the_mean_are_drawn() -> None:
    interval = Interval(0.5, 0.5 + 1e-15, 0.5 - 1e-15)
    played = EvaluationRecord(iteration=0, term=1, returns=interval, sides={}, win_rate=interval)
    assert draw([record(0, win_rate=0.5)], [played], title="a run").axes


def test_evaluations_of_different_sides_are_drawn_where_each_has_one() -> None:
    one, two = Interval(1.0, 0.0, 2.0), Interval(5.0, 4.0, 6.0)
    of = [{"a": one, "b": two}, {"b": two, "c": one}, {}]
    evaluations = [
        EvaluationRecord(iteration=at, returns=one, sides=sides) for at, sides in enumerate(of)
    ]
    records = [record(at, side_returns={"a": 1.0, "b": 2.0}) for at in range(3)]
    axes = draw(records, evaluations, title="").axes[0]
    points = [line for line in axes.lines if line.get_marker() == "o"]
    assert [np.asarray(line.get_xdata()).tolist() for line in points] == [[0], [0, 1], [1], [2]]


def test_statistics_of_learning_have_panels_where_they_are_recorded() -> None:
    statistics = {"loss": 0.5, "td_error_abs": 0.25, "q_taken_mean": 1.0, "target_mean": 1.5}
    records = [record(0, statistics=statistics), record(1, statistics=statistics)]
    _, errors, values, _ = draw(records, title="a run").axes
    assert (errors.get_ylabel(), errors.get_yscale()) == ("error", "log")
    assert legend(records, 1) == ["loss", "td_error_abs"]
    assert legend(records, 2) == ["q_taken_mean", "target_mean"]
    assert values.get_ylabel() == "value"


def test_statistics_of_ppo_and_pqn_have_panels() -> None:
    records = [record(0, statistics={"value_loss": 0.5, "entropy": 1.6, "q_values": 2.0})]
    labels = [axes.get_ylabel() for axes in draw(records, title="a run").axes]
    assert labels[1:4] == ["error", "value", "entropy of the policy"]


def test_policies_and_gradients_have_panels_and_a_constant_rate_has_none() -> None:
    statistics = {
        "policy_loss/0": -0.1,
        "actor_loss/1": 3.0,
        "alpha": 0.2,
        "approx_kl": 0.01,
        "clipfrac": 0.2,
        "grad_norm/0": 2.0,
        "learning_rate": 0.01,
    }
    records = [record(at, statistics=statistics) for at in range(2)]
    labels = [axes.get_ylabel() for axes in draw(records, title="a run").axes]
    assert labels[1:-1] == [
        "loss of the policy",
        "weight of the entropy",
        "change of the policy",
        "norm of the gradient",
    ]
    assert legend(records, 1) == ["policy_loss/0", "actor_loss/1"]
    assert legend(records, 3) == ["approx_kl", "clipfrac"]


def test_environment_steps_mark_the_axis_and_their_rate_has_a_panel() -> None:
    records = [
        record(i, statistics={"env_steps": 1000 * (i + 1)}, env_steps_per_s=40.0) for i in range(20)
    ]
    returns, rates, _ = draw(records, title="a run").axes
    assert rates.get_ylabel() == "environment steps / s"
    (above,) = returns.child_axes
    assert [mark.get_text() for mark in above.get_xticklabels()] == [
        "1,000", "5,000", "9,000", "13,000", "17,000",
    ]  # fmt: skip


def test_updates_of_one_collection_share_a_mark_of_its_steps() -> None:
    records = [
        record(number, statistics={"env_steps": 6_400.0 * (1 + number // 8)})
        for number in range(24)
    ]
    (above,) = draw(records, title="24 updates").axes[0].child_axes
    assert [mark.get_text() for mark in above.get_xticklabels()] == ["6,400", "12,800", "19,200"]
    assert list(above.get_xticks()) == [0, 8, 16]


def test_every_panel_shows_the_whole_of_its_curves() -> None:
    statistics = {"loss": 500.0, "td_error_abs": 0.001, "q_taken_mean": -70.0, "target_mean": 90.0}
    records = [record(i, statistics=statistics, win_rate=i, return_mean=-900.0) for i in (0, 1)]
    for axes in draw(records, title="a run").axes:
        low, high = axes.get_ylim()
        for line in axes.lines:
            assert low <= np.min(line.get_ydata()) <= np.max(line.get_ydata()) <= high


def test_iterations_without_an_ended_episode_are_passed_over() -> None:
    records = [record(0), record(1, return_mean=None), record(2)]
    assert np.asarray(draw(records, title="").axes[0].lines[0].get_xdata()).tolist() == [0, 2]


def test_a_run_in_which_no_episode_ended_says_so() -> None:
    returns = draw([record(0, return_mean=None)], title="").axes[0]
    assert [text.get_text() for text in returns.texts] == ["no episode has ended yet"]


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=30), st.integers(1, 40))
def test_the_moving_mean_is_the_mean_of_the_window(values: list[float], window: int) -> None:
    smooth = moving_mean(np.array(values), window)
    assert len(smooth) == len(values)
    window = min(window, len(values))
    for index in range(len(values)):
        first = index - window // 2
        inside = values[max(0, first) : first + window]
        assert smooth[index] == pytest.approx(np.mean(inside), abs=1e-6)


def seeded(name: str, seed: int, /, **settings: object) -> Story:
    lines = [
        record(
            i,
            return_mean=float(i + seed),
            iteration_s=2.0,
            rows={0: 0, 1: 1},
            bytes_sent={"commit": 1},
            statistics={"env_steps": 50 * (i + 1)},
        )
        for i in range(10)
    ]
    options = {key.replace("__", "."): value for key, value in {"seed": seed, **settings}.items()}
    config = load(options=options).config
    return Story(directory=Path(name), config=config, records=lines, evaluations=())


def test_runs_that_differ_in_their_seed_are_one_curve_in_a_band() -> None:
    stories = [seeded(str(seed), seed) for seed in (0, 1, 5)]
    figure = draw_together([*stories, seeded("other", 0, algorithm__hidden=8)])
    returns = figure.axes[0]
    labels = {line.get_label(): np.asarray(line.get_ydata()) for line in returns.lines}
    (name,) = (str(label) for label in labels if "3 seeds" in str(label))
    assert name.startswith("maddpg")
    np.testing.assert_allclose(labels[name], np.linspace(2.0, 11.0, 100))
    assert len(returns.collections) == 1
    assert "other" in labels
    shown = [text.get_text() for text in figure.legends[0].get_texts()]
    assert shown == [name, "other"]


def test_seeds_that_were_submitted_secured_or_kept_elsewhere_are_one_curve() -> None:
    kept = [
        {"controller.device": "auto"},
        {"name": "mine-1", "tls.certificates": "/certs/1"},
        {"name": "mine-2", "store.url": "s3://bucket/2", "metrics.prometheus": "0.0.0.0:9464"},
    ]
    figure = draw_together([seeded(str(seed), seed, **own) for seed, own in enumerate(kept)])
    (name,) = (text.get_text() for text in figure.legends[0].get_texts())
    assert name == "maddpg, 3 seeds"


def test_a_second_run_of_a_seed_is_no_sample() -> None:
    figure = draw_together([seeded("one", 0), seeded("two", 0)])
    assert {"one", "two"} <= {line.get_label() for line in figure.axes[0].lines}


def test_each_task_has_a_column_and_each_method_one_colour() -> None:
    tasks = ("cooperative_navigation", "predator_prey")
    stories = [
        seeded(f"{task}-{seed}", seed, environment__name=task) for task in tasks for seed in (0, 1)
    ]
    figure = draw_together(stories, levels=lambda config: {"random play": -3.0})
    first, second = figure.axes[:2]
    assert [first.get_title(), second.get_title()] == list(tasks)
    assert first.lines[0].get_color() == second.lines[0].get_color()
    assert np.asarray(first.lines[-1].get_ydata()).tolist() == [-3.0, -3.0]
    assert "random play" in [text.get_text() for text in figure.legends[0].get_texts()]


@pytest.mark.parametrize(
    ("x", "last"),
    [("updates", 9.0), ("steps", 500.0), ("seconds", 20.0), ("machine-seconds", 60.0)],
)
def test_curves_are_drawn_over_updates_steps_or_seconds(x: str, last: float) -> None:
    story = seeded("one", 0)
    for figure in (
        draw(story.records, title="", x=Abscissa(x)),
        draw_together([story, seeded("two", 1)], x=Abscissa(x)),
    ):
        assert np.asarray(figure.axes[0].lines[0].get_xdata())[-1] == last


def test_steps_that_were_not_recorded_are_one_line(fullrank: Command, run: Path) -> None:
    code, _, error = fullrank("plot", str(run), "--x", "steps")
    assert (code, len(error.splitlines())) == (1, 1)
    assert "no environment steps; choose another --x" in error


def test_curves_of_many_agents_are_their_mean_where_seeds_have_a_band() -> None:
    losses = {f"critic_loss/{agent}": float(agent + 1) for agent in range(5)}
    stories = [
        replace(seeded(str(seed), seed), records=[record(i, statistics=losses) for i in range(3)])
        for seed in (0, 1)
    ]
    errors = draw_together(stories).axes[1]
    (line,) = errors.lines
    assert set(np.asarray(line.get_ydata())) == {3.0}
    shown = errors.get_legend()
    assert shown is not None
    assert [text.get_text() for text in shown.get_texts()] == ["critic_loss, mean of 5"]
