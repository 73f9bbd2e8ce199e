"""Delay models: exact counts, correct distributions, and equal delays in every process."""

import subprocess
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats
from tests.registries import shipped

from fullrank.common.errors import ConfigError
from fullrank.stragglers import DelayModel, FixedK, delay_models
from fullrank.stragglers.additive import HeavyK
from fullrank.stragglers.base import costs_of, factors_of, lateness_of, model_at

TRACE = ((0, 1, 0.5), (2, 0, 1.25), (2, 3, 2.0))
PARAMETERS = {"trace": {"rows": TRACE}}
INDEPENDENT = ("bernoulli", "exponential", "pareto")
ENDLESS = ("absence",)
"""Models whose delays may be infinite."""


def model(name: str) -> DelayModel:
    return delay_models.build(name, **PARAMETERS.get(name, {}))


def many(delays: DelayModel, *, iterations: int = 200, learners: int = 25) -> NDArray[np.float64]:
    """Delays of 5,000 (iteration, learner) pairs."""
    return np.concatenate(
        [delays.delays(seed=1, iteration=t, learners=learners) for t in range(iterations)]
    )


@pytest.mark.parametrize("name", shipped(delay_models))
@given(st.integers(0, 2**62), st.integers(0, 10**6), st.integers(1, 40))
def test_delays_are_pure_and_one_for_each_learner(
    name: str, seed: int, iteration: int, learners: int
) -> None:
    delays = model(name).delays(seed=seed, iteration=iteration, learners=learners)
    assert delays.shape == (learners,)
    assert delays.dtype == np.float64
    assert (delays >= 0).all()
    assert name in ENDLESS or np.isfinite(delays).all()
    again = model(name).delays(seed=seed, iteration=iteration, learners=learners)
    np.testing.assert_array_equal(delays, again)


@pytest.mark.parametrize("name", shipped(delay_models))
@given(st.integers(0, 2**62), st.integers(0, 10**6), st.integers(1, 40), st.integers(1, 40))
def test_factors_and_costs_are_pure_and_at_least_one(
    name: str, seed: int, iteration: int, learners: int, units: int
) -> None:
    drawn = [
        (
            factors_of(model(name), seed=seed, iteration=iteration, learners=learners),
            costs_of(model(name), seed=seed, iteration=iteration, units=units),
        )
        for _ in range(2)
    ]
    for (values, again), size in zip(zip(*drawn, strict=True), (learners, units), strict=True):
        assert values.shape == (size,)
        assert np.isfinite(values).all()
        assert (values >= 1).all()
        np.testing.assert_array_equal(values, again)


@pytest.mark.parametrize("name", shipped(delay_models))
@given(st.integers(0, 10**4), st.integers(1, 12), st.integers(0, 3))
def test_a_learner_is_as_late_as_its_entry_and_beyond_n_it_is_punctual(
    name: str, iteration: int, learners: int, beyond: int
) -> None:
    asked = {"seed": 4, "iteration": iteration, "learners": learners}
    delays, factors = model(name).delays(**asked), factors_of(model(name), **asked)
    for learner in range(learners):
        late = lateness_of(model(name), **asked, learner=learner, units=5)
        assert (late.delay_s, late.factor) == (delays[learner], factors[learner])
    late = lateness_of(model(name), **asked, learner=learners + beyond, units=5)
    assert (late.delay_s, late.factor) == (0.0, 1.0)
    costs = costs_of(model(name), seed=4, iteration=iteration, units=5)
    np.testing.assert_array_equal(late.costs, costs)


def test_another_process_draws_the_same_delays() -> None:
    names = shipped(delay_models)
    code = (
        "from fullrank.stragglers.base import costs_of, delay_models, factors_of\n"
        "from functools import partial\n"
        f"for name in {names!r}:\n"
        f"    model = delay_models.build(name, **{PARAMETERS!r}.get(name, {{}}))\n"
        "    for draw in (model.delays, partial(factors_of, model)):\n"
        "        print(draw(seed=9, iteration=2, learners=6).tobytes().hex())\n"
        "    print(costs_of(model, seed=9, iteration=2, units=6).tobytes().hex())\n"
    )
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    asked = {"seed": 9, "iteration": 2}
    drawn = [
        values.tobytes().hex()
        for each in map(model, names)
        for values in (
            each.delays(**asked, learners=6),
            factors_of(each, **asked, learners=6),
            costs_of(each, **asked, units=6),
        )
    ]
    assert other.stdout.split() == drawn


@pytest.mark.parametrize("name", [*INDEPENDENT, "none", "trace", "absence"])
@given(st.integers(0, 100), st.integers(1, 20), st.integers(0, 20))
def test_a_learners_delay_does_not_depend_on_n(
    name: str, iteration: int, learners: int, more: int
) -> None:
    few = model(name).delays(seed=3, iteration=iteration, learners=learners)
    all_of_them = model(name).delays(seed=3, iteration=iteration, learners=learners + more)
    np.testing.assert_array_equal(few, all_of_them[:learners])


@pytest.mark.parametrize("name", ["fixed_k", *INDEPENDENT])
def test_seed_and_iteration_both_change_who_straggles(name: str) -> None:
    def draw(seed: int, iteration: int) -> bytes:
        return model(name).delays(seed=seed, iteration=iteration, learners=64).tobytes()

    assert len({draw(0, 0), draw(1, 0), draw(0, 1)}) == 3


@given(st.integers(1, 30), st.data())
def test_exactly_k_learners_straggle(learners: int, data: st.DataObject) -> None:
    k = data.draw(st.integers(0, learners))
    fixed = delay_models.build("fixed_k", k=k, delay_s=0.25)
    delays = fixed.delays(seed=0, iteration=data.draw(st.integers(0, 1000)), learners=learners)
    assert Counter(delays.tolist()) == Counter({0.25: k, 0.0: learners - k})


def test_each_learner_is_equally_often_among_the_k() -> None:
    fixed = delay_models.build("fixed_k", k=2, delay_s=1.0)
    counts = many(fixed, iterations=3000, learners=6).reshape(3000, 6).sum(axis=0)
    assert stats.chisquare(counts).pvalue > 1e-3


def test_more_stragglers_than_learners_are_refused() -> None:
    with pytest.raises(ConfigError, match="k = 5 stragglers need at least 5 learners, there are 4"):
        delay_models.build("fixed_k", k=5).delays(seed=0, iteration=0, learners=4)


def test_bernoulli_stragglers_are_as_frequent_as_asked() -> None:
    delays = many(delay_models.build("bernoulli", probability=0.3, delay_s=0.7))
    assert set(delays.tolist()) == {0.0, 0.7}
    assert stats.binomtest(int((delays > 0).sum()), delays.size, 0.3).pvalue > 1e-3


def test_exponential_delays_follow_their_distribution() -> None:
    delays = many(delay_models.build("exponential", mean_s=0.4))
    assert stats.kstest(delays, stats.expon(scale=0.4).cdf).pvalue > 1e-3


def test_pareto_delays_follow_their_distribution() -> None:
    delays = many(delay_models.build("pareto", scale_s=0.2, shape=1.5))
    assert stats.kstest(delays, stats.pareto(1.5, scale=0.2).cdf).pvalue > 1e-3


@pytest.mark.parametrize("name", ["exponential", "pareto"])
def test_only_stragglers_draw_a_delay_and_its_length_is_independent(name: str) -> None:
    always = many(delay_models.build(name))
    sometimes = many(delay_models.build(name, probability=0.25))
    straggles = sometimes > 0
    assert stats.binomtest(int(straggles.sum()), straggles.size, 0.25).pvalue > 1e-3
    np.testing.assert_array_equal(sometimes[straggles], always[straggles])
    assert stats.ks_2samp(always[straggles], always[~straggles]).pvalue > 1e-3


def test_neighbouring_learners_and_iterations_are_uncorrelated() -> None:
    delays = many(delay_models.build("exponential")).reshape(200, 25)
    for a, b in ((delays[1:], delays[:-1]), (delays[:, 1:], delays[:, :-1])):
        assert stats.spearmanr(a.ravel(), b.ravel()).pvalue > 1e-3


@given(st.integers(0, 3))
def test_a_trace_is_replayed_cyclically(cycle: int) -> None:
    replayed = [
        model("trace").delays(seed=0, iteration=3 * cycle + t, learners=4).tolist()
        for t in range(3)
    ]
    assert replayed == [[0, 0.5, 0, 0], [0, 0, 0, 0], [1.25, 0, 0, 2.0]]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("trace.csv", "iteration,learner,delay_s\n0,1,0.5\n2,0,1.25\n2,3,2\n"),
        ("trace.csv", "delay_s,host,learner,iteration\n0.5,a,1,0\n1.25,b,0,2\n2.0,c,3,2\n"),
        (
            "trace.jsonl",
            '{"iteration": 0, "learner": 1, "delay_s": 0.5}\n\n'
            '{"iteration": 2, "learner": 0, "delay_s": 1.25}\n'
            '{"iteration": 2, "learner": 3, "delay_s": 2}\n',
        ),
    ],
)
def test_a_trace_file_is_the_same_rows(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    from_file = delay_models.build("trace", path=str(tmp_path / name))
    for iteration in range(3):
        asked = {"seed": 0, "iteration": iteration, "learners": 4}
        np.testing.assert_array_equal(from_file.delays(**asked), model("trace").delays(**asked))


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("trace.csv", "iteration,learner\n0,1\n", "has a row without 'delay_s or factor or away'"),
        ("trace.csv", "learner,delay_s\n0,1\n", "has a row without 'iteration'"),
        (
            "trace.csv",
            "iteration,learner,factor\n0,1,0.5\n",
            "factor must be finite and at least 1",
        ),
        ("trace.csv", "iteration,learner,away\n0,1,yes\n", "malformed row.*'yes'"),
        ("trace.csv", "time_s,learner,delay_s\nnan,1,1\n", "time_s must be finite"),
        ("trace.csv", "time_s,learner,delay_s\n-2,1,1\n", "negative time_s or learner in -2.0, 1"),
        (
            "trace.jsonl",
            '{"time_s": 0, "learner": 1, "away": 1}\n{"iteration": 0, "learner": 1, "away": 0}\n',
            "rows by time_s and by iteration; keep one kind",
        ),
        ("trace.csv", "iteration,learner,delay_s\n0,x,1\n", "malformed row.*'x'"),
        ("trace.csv", "iteration,learner,delay_s\n0,1\n", "malformed row"),
        ("trace.csv", "iteration,learner,delay_s\n", "there are no rows"),
        ("trace.csv", "iteration,learner,delay_s\n0,1,-1\n", "must be finite and not negative"),
        ("trace.csv", "iteration,learner,delay_s\n0,1,inf\n", "must be finite and not negative"),
        ("trace.csv", "iteration,learner,delay_s\n-1,1,1\n", "negative iteration or learner"),
        ("trace.jsonl", "[0, 1, 0.5]\n", "malformed row"),
        ("trace.jsonl", "{\n", "malformed row"),
    ],
)
def test_a_damaged_trace_is_refused(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError, match=message):
        delay_models.build("trace", path=str(tmp_path / name))


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("fixed_k", {"k": -1}, "k must not be negative, got -1"),
        ("fixed_k", {"delay_s": -0.1}, "delay_s must be finite and not negative, got -0.1"),
        ("bernoulli", {"probability": 1.1}, r"probability must lie in \[0, 1\], got 1.1"),
        ("bernoulli", {"probability": float("nan")}, "probability must lie"),
        ("exponential", {"mean_s": float("inf")}, "mean_s must be finite"),
        ("pareto", {"shape": 0.0}, "shape must be positive and finite, got 0.0"),
        ("pareto", {"scale_s": -1.0}, "scale_s must be finite"),
        ("trace", {}, "give either path or rows"),
        ("trace", {"path": "x.csv", "rows": TRACE}, "give either path or rows"),
        ("slow_learners", {"k": -1}, "k must not be negative, got -1"),
        ("slow_learners", {"factor": 0.9}, "factor must be finite and at least 1, got 0.9"),
        ("slow_units", {"factor": float("nan")}, "factor must be finite and at least 1, got nan"),
        ("slow_units", {"probability": 2.0}, "probability must lie"),
        ("absence", {"mean_iterations": 0.5}, "mean_iterations must be finite and at least"),
        ("absence", {"probability": 0.6, "mean_iterations": 2.0}, "mean_iterations must be finite"),
    ],
)
def test_impossible_parameters_are_refused(
    name: str, parameters: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=f"^{name}: {message}"):
        delay_models.build(name, **parameters)


def test_heavy_k_delays_exactly_k_by_at_least_the_scale() -> None:
    model = HeavyK(k=7, scale_s=0.2, shape=1.5)
    delays = np.array([model.delays(seed=0, iteration=t, learners=15) for t in range(2000)])
    assert ((delays > 0).sum(axis=1) == 7).all()
    late = delays[delays > 0]
    assert late.min() >= 0.2
    assert (late > 0.4).mean() == pytest.approx(0.5**1.5, rel=0.05)
    same = FixedK(k=7).delays(seed=0, iteration=3, learners=15) > 0
    np.testing.assert_array_equal(delays[3] > 0, same)


def test_a_slow_machine_is_slow_in_every_iteration_unless_it_is_so_now_and_then() -> None:
    def slow(**parameters: object) -> NDArray[np.bool_]:
        machines = delay_models.build("slow_learners", factor=3.0, **parameters)
        factors = [factors_of(machines, seed=2, iteration=t, learners=12) for t in range(500)]
        assert set(np.unique(factors)) == {1.0, 3.0}
        return np.array(factors) > 1.0

    always, sometimes = slow(k=4), slow(k=4, probability=0.25)
    assert (always == always[0]).all()
    assert always[0].sum() == 4
    assert not sometimes[:, ~always[0]].any()
    among = sometimes[:, always[0]]
    assert stats.binomtest(int(among.sum()), among.size, 0.25).pvalue > 1e-3


def test_more_slow_machines_than_learners_are_refused_and_all_units_may_be_slow() -> None:
    with pytest.raises(ConfigError, match="slow_learners: k = 5 stragglers need at least 5"):
        factors_of(delay_models.build("slow_learners", k=5), seed=0, iteration=0, learners=4)
    units = delay_models.build("slow_units", k=5, factor=2.0)
    assert costs_of(units, seed=0, iteration=0, units=3).tolist() == [2.0, 2.0, 2.0]


def test_learners_leave_and_return_as_a_markov_chain() -> None:
    """Also from one block of draws to the next."""
    absence = delay_models.build("absence", probability=0.1, mean_iterations=4.0)
    away = np.isinf(many(absence, iterations=600)).reshape(600, 25)
    before, after = away[:-1], away[1:]
    for state, moved, probability in ((~before, after, 0.1), (before, ~after, 0.25)):
        moves = int((state & moved).sum())
        assert stats.binomtest(moves, int(state.sum()), probability).pvalue > 1e-3


def test_an_absence_outlasts_a_block_of_draws() -> None:
    rare = delay_models.build("absence", probability=0.002, mean_iterations=2000.0)
    away = [np.isinf(rare.delays(seed=0, iteration=t, learners=20)) for t in (254, 255, 256, 257)]
    assert away[0].any()
    assert sum((one != other).sum() for one, other in pairwise(away)) <= 2


BY_TIME = """time_s,learner,delay_s,factor,away
20,1,,,1
10,1,0.5,,
30,1,,4,
10,0,,2,
40,2,,,1
"""


@pytest.mark.parametrize(
    ("time_s", "delays", "factors"),
    [
        (0.0, [0, 0, 0], [1, 1, 1]),
        (9.9, [0, 0, 0], [1, 1, 1]),
        (10.0, [0, 0.5, 0], [2, 1, 1]),
        (22.0, [0, 8, 0], [2, 4, 1]),  # back at 30, slowly
        (35.0, [0, 0, 0], [2, 4, 1]),
        (1e9, [0, 0, np.inf], [2, 4, 1]),
    ],
)
def test_a_trace_by_time_holds_until_the_learners_next_row(
    tmp_path: Path, time_s: float, delays: list[float], factors: list[float]
) -> None:
    (tmp_path / "trace.csv").write_text(BY_TIME)
    trace = delay_models.build("trace", path=str(tmp_path / "trace.csv"))
    asked = {"seed": 0, "iteration": 7, "learners": 3}
    assert model_at(trace, time_s).delays(**asked).tolist() == delays
    assert factors_of(model_at(trace, time_s), **asked).tolist() == factors


def test_a_trace_by_iteration_also_has_factors_and_absences(tmp_path: Path) -> None:
    rows = [
        '{"iteration": 0, "learner": 1, "factor": 3}',
        '{"iteration": 1, "learner": 0, "away": 1}',
    ]
    (tmp_path / "trace.jsonl").write_text("\n".join(rows))
    trace = delay_models.build("trace", path=str(tmp_path / "trace.jsonl"))
    assert model_at(trace, 99.0) is trace
    asked = {"seed": 0, "learners": 2}
    assert factors_of(trace, iteration=2, **asked).tolist() == [1.0, 3.0]
    assert trace.delays(iteration=3, **asked).tolist() == [np.inf, 0.0]
