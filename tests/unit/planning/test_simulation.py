from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.planning import worlds

from fullrank.codes import Code, make_code, support
from fullrank.common.errors import ConfigError, NotDecodable
from fullrank.planning.arrival import Arrivals, decodable_after, needed_of
from fullrank.planning.cluster import Cluster, finish_times
from fullrank.planning.costs import Payload
from fullrank.planning.simulation import observation_of, play, simulate
from fullrank.rounds.decision import Verdict
from fullrank.rounds.decoding import ExactDecoding, LeastSquaresDecoding
from fullrank.rounds.round import Round
from fullrank.stragglers import FixedK
from fullrank.stragglers.additive import NoDelay
from fullrank.stragglers.slow import SlowLearners, SlowUnits
from fullrank.stragglers.trace import Trace

PAYLOAD = Payload(
    section_sizes=(100, 100, 100, 50),
    needs=lambda unit: (unit, 3),
    vector_size=25,
    batch_entries=1000,
)


def test_uncoded_pays_the_delay_and_cyclic_does_not() -> None:
    cluster = Cluster(unit_s=0.1, latency_s=0.01)
    two = FixedK(k=2, delay_s=5.0)
    uncoded = simulate(cluster, make_code("uncoded", rows=8, units=8), two, iterations=30, seed=0)
    coded = make_code("cyclic", rows=15, units=8, tolerance=2)
    cyclic = simulate(cluster, coded, two, iterations=30, seed=0)
    sample_s = 0.01 * 3  # assignment, request and minibatch
    np.testing.assert_allclose(uncoded.round_s, sample_s + 0.1 + 5.0 + 0.01)
    assert uncoded.waited.all()
    assert not cyclic.waited.any()
    assert cyclic.round_s.max() <= sample_s + 0.1 * coded.load.max() + 0.01 + 1e-9


def test_the_commit_leaves_out_the_stragglers() -> None:
    code = make_code("mds", rows=5, units=3)
    slow = Trace(rows=((0, 1, 9.0), (0, 4, 9.0)))
    rounds = simulate(Cluster(unit_s=0.1), code, slow, iterations=2, seed=0)
    assert [sorted(received) for received in rounds.received] == [[0, 2, 3]] * 2


def test_a_slow_machine_is_left_out_by_a_code_and_a_slow_unit_is_not() -> None:
    uncoded = make_code("uncoded", rows=4, units=4)
    coded = make_code("cyclic", rows=8, units=4, tolerance=1)
    machine, unit = SlowLearners(k=1, factor=10.0), SlowUnits(k=1, factor=10.0)
    rounds = {
        (code.name, model): simulate(Cluster(unit_s=0.1), code, model, iterations=20, seed=3)
        for code in (uncoded, coded)
        for model in (machine, unit)
    }
    assert coded.load.max() == 1
    for (name, model), played in rounds.items():
        escapes = name == "cyclic" and model is machine
        np.testing.assert_allclose(played.round_s, 0.1 if escapes else 1.0)
        assert played.waited.all() == (not escapes)


def test_a_learner_computes_a_slow_unit_and_its_others_one_after_the_other() -> None:
    mds = make_code("mds", rows=4, units=4)
    unit = SlowUnits(k=1, factor=5.0)
    assert mds.load.max() > 1
    played = play(Cluster(unit_s=0.1), mds, unit, iterations=range(3), seed=0)
    costs = unit.costs(seed=0, iteration=0, units=4)
    held = mds.blocks.any(axis=1)
    np.testing.assert_allclose(played.compute_s, np.tile(held @ costs * 0.1, (3, 1)))


def test_a_round_that_needs_a_learner_that_is_away_does_not_end(tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_text("iteration,learner,away\n0,1,1\n1,0,0\n")
    away = Trace(path=str(tmp_path / "trace.csv"))
    code = make_code("uncoded", rows=3, units=3)
    cluster = Cluster(unit_s=0.1, bandwidth=1000.0, payload=PAYLOAD)
    rounds = simulate(cluster, code, away, iterations=4, seed=0)
    assert np.isinf(rounds.round_s).tolist() == [True, False, True, False]
    coded = make_code("mds", rows=5, units=3)
    rounds = simulate(cluster, coded, away, iterations=4, seed=0)
    assert np.isfinite(rounds.round_s).all()
    assert 1 not in rounds.received[0]


def test_rounds_under_a_trace_by_time_begin_where_the_one_before_ends(tmp_path: Path) -> None:
    rows = ["time_s,learner,delay_s,factor,away", "0,0,1,,", "2.5,0,,3,", "6,0,,,1", "20,0,0,,"]
    (tmp_path / "trace.csv").write_text("\n".join(rows))
    trace = Trace(path=str(tmp_path / "trace.csv"))
    code = make_code("uncoded", rows=2, units=2)
    rounds = simulate(Cluster(unit_s=1.0), code, trace, iterations=5, seed=0)
    assert rounds.round_s.tolist() == [2.0, 2.0, 3.0, 14.0, 1.0]  # from 0, 2, 4, 7 and 21
    assert rounds.waited.tolist() == [True, True, True, True, False]


def test_bytes_take_their_time_on_shared_wires() -> None:
    uncoded = make_code("uncoded", rows=3, units=3)
    cluster = Cluster(bandwidth=1000.0, replay_bandwidth=4000.0, payload=PAYLOAD)
    rounds = simulate(cluster, uncoded, NoDelay(), iterations=1, seed=0)
    parameters, samples, replies = 3 * 4 * 150, 3 * 4 * 1000, 3 * (4 * 25 + 16)
    assert rounds.sent_bytes == parameters
    assert rounds.round_s == pytest.approx(
        [max(parameters / 1000, samples / 4000) + replies / 1000]
    )


@given(
    starts=st.lists(st.floats(0, 5), min_size=1, max_size=8),
    data=st.data(),
    bandwidth=st.floats(0.5, 50),
)
def test_a_shared_link_wastes_nothing_and_favours_nobody(
    starts: list[float], data: st.DataObject, bandwidth: float
) -> None:
    count = len(starts)
    sizes = data.draw(st.lists(st.integers(1, 100), min_size=count, max_size=count))
    start_s, size = np.array(starts), np.array(sizes)
    finish_s = finish_times(start_s, size, bandwidth)
    np.testing.assert_array_equal(finish_times(start_s, size, np.inf), start_s)
    # Integrate an equal split over the time between events: each transfer gets its size.
    events = np.unique(np.concatenate([start_s, finish_s]))
    middle, width = (events[1:] + events[:-1]) / 2, np.diff(events)
    opened = (start_s[:, None] <= middle) & (middle < finish_s[:, None])
    share = np.where(opened, bandwidth / np.maximum(opened.sum(axis=0), 1), 0.0)
    np.testing.assert_allclose((share * width).sum(axis=1), size, rtol=1e-6)


NAMES = st.sampled_from(["uncoded", "replication", "mds", "cyclic", "ldgm", "random_sparse"])
SIZES = st.tuples(st.integers(1, 9), st.integers(0, 10))


def code_of(name: str, units: int, spare: int) -> Code:
    params: dict[str, Any] = {"tolerance": spare // 2} if name == "cyclic" else {}
    return make_code(name, rows=units + spare, units=units, **params)


@pytest.mark.integration
@given(name=NAMES, sizes=SIZES, seed=st.integers(0, 1000))
def test_bisection_finds_where_the_round_turns_decodable(
    name: str, sizes: tuple[int, int], seed: int
) -> None:
    code = code_of(name, *sizes)
    order = np.random.default_rng(seed).permutation(code.rows)
    round_ = Round(0, code, decoding=ExactDecoding())
    count = 0
    while not round_.decodable:
        round_.offer(learner=int(order[count]), row=int(order[count]))
        count += 1
    assert decodable_after(code.matrix, order) == count
    assert Arrivals(code.matrix).needed(order[None]).tolist() == [count]


@given(
    name=NAMES,
    sizes=SIZES,
    seed=st.integers(0, 1000),
    limit=st.sampled_from([0.0, 0.7, 1.0, 2.0, 8.0, np.inf]),
)
def test_it_finds_where_a_round_of_learners_own_samples_commits(
    name: str, sizes: tuple[int, int], seed: int, limit: float
) -> None:
    code = code_of(name, *sizes)
    order = np.random.default_rng(seed).permutation(np.flatnonzero(code.load))
    round_ = Round(0, code, target_sizes=(1,) * code.units, decoding=LeastSquaresDecoding(limit))
    verdict, count = Verdict.WAIT, 0
    while verdict is not Verdict.COMMIT and count < len(order):
        learner = int(order[count])
        for unit in support(code.matrix[learner]):
            round_.report(unit, b"", learner=learner)
        round_.offer(learner=learner, row=learner, coded=np.zeros(1))
        verdict, count = round_.decide().verdict, count + 1
    assert verdict in (Verdict.COMMIT, Verdict.HIGH_VARIANCE)
    assert needed_of(code.matrix, order, limit) == count
    assert Arrivals(code.matrix, limit).needed(order[None]).tolist() == [count]


def test_rows_that_never_decode_are_refused() -> None:
    dependent = Code(name="bad", matrix=np.array([[1.0, 2.0], [2.0, 4.0], [3.0, 6.0]]))
    for limit in (np.inf, 1.0):
        with pytest.raises(NotDecodable, match="all 3 learners"):
            simulate(Cluster(), dependent, NoDelay(), iterations=1, seed=0, max_variance=limit)
    with pytest.raises(NotDecodable):
        decodable_after(np.eye(3), np.array([0, 1]))


@pytest.mark.parametrize(
    "impossible",
    [
        {"unit_s": -1.0},
        {"unit_s": (0.1, float("nan"))},
        {"spread": -0.1},
        {"latency_s": -1.0},
        {"bandwidth": 0.0},
        {"replay_bandwidth": -5.0},
    ],
)
def test_an_impossible_cluster_is_refused(impossible: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(impossible))):
        Cluster(**impossible)


@pytest.mark.parametrize(
    ("units", "k", "decodable"),
    [(8, 1, 0.933), (8, 2, 0.800), (8, 3, 0.615), (10, 1, 0.667), (10, 2, 0.381)],
)
def test_replication_waits_as_often_as_combinatorics_says(
    units: int, k: int, decodable: float
) -> None:
    """P(decodable) of the replication code of [Wang21] with 15 learners and k random stragglers."""
    code = make_code("replication", rows=15, units=units)
    count = 1500
    rounds = simulate(Cluster(), code, FixedK(k=k, delay_s=1.0), iterations=count, seed=0)
    error = np.sqrt(decodable * (1 - decodable) / count)
    assert abs((1 - rounds.waited.mean()) - decodable) < 4 * error


def test_services_see_no_more_than_what_arrived() -> None:
    regime = worlds.late(3, delay_s=0.5)
    code = make_code("cyclic", rows=15, units=8, tolerance=3)
    played = play(regime.cluster(Payload()), code, regime.delays, iterations=range(5), seed=1)
    for index in range(5):
        observation = observation_of(played, index, code)
        received = np.isfinite(observation.arrival_s)
        assert received.sum() == played.needed[index]
        assert np.nanmax(observation.arrival_s) == observation.round_s == played.round_s[index]
        np.testing.assert_array_equal(received, np.isfinite(observation.compute_s))
        np.testing.assert_array_equal(observation.load, code.load)
