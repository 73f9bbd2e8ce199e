from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullrank.algorithms import EnvironmentSpec
from fullrank.algorithms.maddpg import MADDPG
from fullrank.codes import Code, make_code, support
from fullrank.common.errors import ConfigError, NotDecodable
from fullrank.environments import make_environment
from fullrank.planning.arrival import Arrivals, decodable_after, needed_of
from fullrank.planning.cluster import Cluster, finish_times
from fullrank.planning.costs import Payload
from fullrank.planning.simulation import simulate
from fullrank.rounds.decision import Verdict
from fullrank.rounds.least_squares import LeastSquaresDecoding
from fullrank.rounds.round import Round
from fullrank.stragglers import Exponential, FixedK, NoDelay, Pareto, Trace

PAYLOAD = Payload(
    section_sizes=(100, 100, 100, 50),
    needs=lambda unit: (unit, 3),
    vector_size=25,
    batch_entries=1000,
)
DENSE = Code(name="dense", matrix=np.vander([1.0, 2.0, 3.0, 4.0], 3))


def test_equal_arguments_give_equal_rounds() -> None:
    cluster = Cluster(unit_s=0.1, spread=0.3, latency_s=0.01, bandwidth=1e4, payload=PAYLOAD)
    code = make_code("cyclic", rows=6, units=3, tolerance=2)
    runs = [
        simulate(cluster, code, Exponential(mean_s=0.2), iterations=20, seed=seed)
        for seed in (5, 5, 6)
    ]
    assert runs[0].round_s.tobytes() == runs[1].round_s.tobytes() != runs[2].round_s.tobytes()
    for first, second in zip(runs[0].received, runs[1].received, strict=True):
        np.testing.assert_array_equal(first, second)


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


def test_one_loss_too_many_pays_the_delay() -> None:
    code = make_code("cyclic", rows=5, units=4, tolerance=1)
    three = simulate(Cluster(), code, FixedK(k=3, delay_s=2.0), iterations=10, seed=1)
    assert three.waited.all()
    np.testing.assert_allclose(three.round_s, 2.0)


def test_the_commit_leaves_out_the_stragglers() -> None:
    code = make_code("mds", rows=5, units=3)
    slow = Trace(rows=((0, 1, 9.0), (0, 4, 9.0)))
    rounds = simulate(Cluster(unit_s=0.1), code, slow, iterations=2, seed=0)
    for received, late in zip(rounds.received, rounds.late, strict=True):
        assert sorted(received) == [0, 2, 3]
        assert late.tolist() == [1, 4]


def test_a_learner_without_units_is_neither_received_nor_late() -> None:
    code = make_code("uncoded", rows=5, units=3)
    rounds = simulate(Cluster(), code, NoDelay(), iterations=1, seed=0)
    assert sorted(rounds.received[0]) == [0, 1, 2]
    assert not rounds.late[0].size


def test_a_slow_learner_is_waited_for_only_when_it_is_needed() -> None:
    slow = Cluster(unit_s=(0.1, 0.1, 0.1, 4.0))
    assert simulate(slow, DENSE, NoDelay(), iterations=1, seed=0).round_s == pytest.approx([0.3])
    uncoded = make_code("uncoded", rows=4, units=4)
    assert simulate(slow, uncoded, NoDelay(), iterations=1, seed=0).round_s == pytest.approx([4.0])


def test_spread_keeps_the_mean() -> None:
    code = Code(name="one", matrix=np.ones((1, 1)))
    cluster = Cluster(unit_s=2.0, spread=0.5)
    round_s = simulate(cluster, code, NoDelay(), iterations=4000, seed=0).round_s
    error = round_s.std() / np.sqrt(len(round_s))
    assert abs(round_s.mean() - 2.0) < 4 * error
    assert np.log(round_s).std() == pytest.approx(0.5, rel=0.05)


def test_bytes_take_their_time_on_shared_wires() -> None:
    uncoded = make_code("uncoded", rows=3, units=3)
    cluster = Cluster(bandwidth=1000.0, replay_bandwidth=4000.0, payload=PAYLOAD)
    rounds = simulate(cluster, uncoded, NoDelay(), iterations=1, seed=0)
    parameters, samples, replies = 3 * 4 * 150, 3 * 4 * 1000, 3 * (8 * 25 + 16)
    assert rounds.sent_bytes == parameters
    assert rounds.round_s == pytest.approx(
        [max(parameters / 1000, samples / 4000) + replies / 1000]
    )


def test_a_dense_row_costs_more_parameters() -> None:
    cluster = Cluster(payload=PAYLOAD)
    dense = simulate(cluster, DENSE, NoDelay(), iterations=1, seed=0)
    assert dense.sent_bytes == 4 * 4 * 350


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


@given(name=NAMES, sizes=SIZES, seed=st.integers(0, 1000))
def test_bisection_finds_where_the_round_turns_decodable(
    name: str, sizes: tuple[int, int], seed: int
) -> None:
    code = code_of(name, *sizes)
    order = np.random.default_rng(seed).permutation(code.rows)
    round_ = Round(0, code)
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


@pytest.mark.parametrize(("learners", "low"), [(12, 1.4), (24, 0.8), (40, 0.65)])
def test_the_less_noise_is_allowed_the_more_rounds_wait_for_stragglers(
    learners: int, low: float
) -> None:
    code, late = make_code("mds", rows=learners, units=learners // 2), FixedK(k=4, delay_s=5.0)
    waited = [
        simulate(
            Cluster(unit_s=0.1, spread=0.1), code, late, iterations=30, seed=0, max_variance=limit
        ).waited.mean()
        for limit in (np.inf, low, 0.0)
    ]
    assert waited[0] == 0.0 < waited[1] < waited[2] == 1.0


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


def test_speeds_must_name_every_learner() -> None:
    cluster = Cluster(unit_s=(1.0, 1.0))
    with pytest.raises(ConfigError, match=r"names 2 learners, the code has 4"):
        simulate(cluster, DENSE, NoDelay(), iterations=1, seed=0)


@pytest.mark.parametrize(
    ("name", "params", "units"),
    [
        ("uncoded", {}, 1024),
        ("replication", {}, 1024),
        pytest.param("cyclic", {"tolerance": 3}, 1024, marks=pytest.mark.thorough),
        ("cyclic", {"tolerance": 31}, 256),
        ("mds", {}, 256),
    ],
)
def test_thousands_of_learners_are_simulated(name: str, params: dict[str, Any], units: int) -> None:
    code = make_code(name, rows=4096, units=units, **params)
    payload = Payload(section_sizes=(4000,) * units, needs=lambda unit: (unit,), vector_size=4000)
    cluster = Cluster(unit_s=0.01, spread=0.2, latency_s=1e-3, bandwidth=1e9, payload=payload)
    rounds = simulate(cluster, code, Pareto(probability=0.1), iterations=3, seed=0)
    assert np.isfinite(rounds.round_s).all()
    for received, late in zip(rounds.received, rounds.late, strict=True):
        assert units <= len(received) == np.count_nonzero(code.load) - len(late)


def test_a_payload_is_what_the_algorithm_moves() -> None:
    environment = make_environment("cooperative_navigation", copies=1)
    spec = EnvironmentSpec(agents=tuple(environment.agents))
    problem = MADDPG(hidden=16, batch_size=64).problem(spec)
    cluster = Cluster(payload=Payload.of(problem))
    uncoded = make_code("uncoded", rows=4, units=3)
    rounds = simulate(cluster, uncoded, NoDelay(), iterations=1, seed=0)
    sizes = {(section.role, section.agents[0]): section.size for section in problem.sections}
    own = sum(size for (role, _), size in sizes.items() if role != "target_policy")
    targets = sum(size for (role, _), size in sizes.items() if role == "target_policy")
    assert rounds.sent_bytes == 4 * (own + 3 * targets)


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
