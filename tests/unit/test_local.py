from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fullrank.common.errors import CheckpointUnusable, ConfigError, Corrupted, FullrankError
from fullrank.common.types import FloatArray
from fullrank.config import RunConfig, load
from fullrank.local import LocalIteration, LocalRun
from fullrank.stragglers import delay_models
from fullrank.stragglers.base import factors_of

SMALL = {
    "iterations": 6,
    "environment.copies": 2,
    "collect.steps": 10,
    "collect.warmup": 100,
    "collect.warmup_copies": 3,
    "algorithm.batch_size": 32,
    "algorithm.hidden": 16,
    "learners": 5,
}


def config(**options: Any) -> RunConfig:
    keys = {key.replace("__", "."): value for key, value in options.items()}
    return load(options=SMALL | keys).check().config


def digests(run: LocalRun) -> list[str]:
    return [iteration.update_digest for iteration in run]


def test_a_run_is_a_function_of_its_configuration() -> None:
    first, second, other = (LocalRun(config(seed=seed)) for seed in (3, 3, 4))
    assert digests(first) == digests(second)
    assert first.parameter_digest() == second.parameter_digest()
    assert set(digests(LocalRun(config(seed=3)))).isdisjoint(digests(other))


@pytest.mark.parametrize(
    ("algorithm", "own"),
    [
        ("maddpg", {"replay__capacity": 110}),
        ("qmix", {"algorithm__micro_batches": 2}),
        ("ippo", {"algorithm__micro_batches": 2, "algorithm__epochs": 2}),
    ],
)
def test_a_run_goes_on_from_its_state_to_the_same_bits(
    algorithm: str, own: Mapping[str, int]
) -> None:
    settings = config(algorithm__name=algorithm, algorithm__batch_size=2, **own)
    whole, begun, resumed = (LocalRun(settings, coded=False) for _ in range(3))
    updates = digests(whole)
    assert [next(iterations).update_digest for iterations in [iter(begun)] * 4] == updates[:4]
    resumed.load(begun.state())
    assert digests(resumed) == updates[4:]
    assert resumed.parameter_digest() == whole.parameter_digest()


def test_the_state_of_another_version_is_refused_and_the_run_is_as_it_was() -> None:
    begun, resumed = LocalRun(config()), LocalRun(config())
    next(iter(begun))
    lacking = {name: array for name, array in begun.state().items() if name != "time_s"}
    with pytest.raises(CheckpointUnusable, match=r"lacks time_s: use the version that returned"):
        resumed.load(lacking)
    assert digests(resumed) == digests(LocalRun(config()))


def test_a_limit_in_bytes_is_a_limit_in_rows() -> None:
    free = LocalRun(config(iterations=1))
    row_bytes = 4 * free.training.collector.layout.row_size
    few = digests(LocalRun(config(replay__capacity=110)))
    assert digests(LocalRun(config(replay__capacity_bytes=111 * row_bytes - 1))) == few
    assert digests(LocalRun(config())) != few


@pytest.mark.parametrize(
    ("capacity_bytes", "said"),
    [
        (1000, r"replay\.capacity_bytes = 1000 holds \d transitions .* or lower collect\.warmup"),
        (100, r"replay\.capacity_bytes = 100 is less than one transition of \d+ bytes; raise it"),
    ],
)
def test_a_limit_in_bytes_below_the_warm_up_is_refused(capacity_bytes: int, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        LocalRun(config(replay__capacity_bytes=capacity_bytes))


def test_stragglers_are_late_and_nobody_else_is_waited_for() -> None:
    straggling = config(code__name="mds", stragglers__name="fixed_k", stragglers__k=2)
    for iteration in LocalRun(straggling):
        assert len(iteration.received) == 3
        assert sorted(iteration.received + iteration.late) == list(range(5))
        assert iteration.exact


def test_a_longer_unit_brings_light_rows_first() -> None:
    run = LocalRun(config(code__name="mds", compute__emulate_unit_s=1.0, iterations=3))
    load = run.code.load
    for iteration in run:
        assert list(load[list(iteration.received)]) == sorted(load)[: len(iteration.received)]


@pytest.mark.parametrize("model", ["slow_learners", "absence"])
def test_slow_and_absent_learners_are_late_and_change_no_bit(model: str) -> None:
    often = {"stragglers__probability": 0.4, "stragglers__mean_iterations": 2.0}
    parameters = {"stragglers__k": 2} if model == "slow_learners" else often
    unit = {"compute__emulate_unit_s": 1.0, "code__name": "mds"}
    run = LocalRun(config(**unit, stragglers__name=model, **parameters))
    iterations = run.train()
    assert any(iteration.late for iteration in iterations)
    delays = delay_models.build(model, **{key[12:]: each for key, each in parameters.items()})
    for iteration in iterations:
        asked = {"seed": 0, "iteration": iteration.iteration, "learners": 5}
        straggles = np.isinf(delays.delays(**asked)) | (factors_of(delays, **asked) > 1)
        punctual = sum(not straggles[learner] for learner in iteration.received)
        assert punctual == min(len(iteration.received), (~straggles).sum())
    assert [each.update_digest for each in iterations] == [
        each.update_digest for each in LocalRun(config(**unit), coded=False)
    ]


def test_a_run_in_one_process_follows_a_trace_by_its_own_time(tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_text("time_s,learner,away\n0,0,1\n5,0,0\n5,1,1\n")
    trace = {"stragglers__name": "trace", "stragglers__path": str(tmp_path / "trace.csv")}
    run = LocalRun(config(code__name="replication", compute__emulate_unit_s=2.0, **trace))
    late = [sorted({0, 1}.intersection(iteration.late)) for iteration in run]
    assert late[:2] == [[0], [0]]
    assert 1 in late[-1]


def test_a_run_goes_on_from_its_state_in_the_midst_of_a_trace(tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_text("time_s,learner,delay_s\n0,0,9\n5,0,0\n5,1,9\n")
    settings = config(
        algorithm__name="darl1n",
        algorithm__data="independent",
        environment__name="food_collection",
        environment__agents=3,
        code__name="cyclic",
        compute__emulate_unit_s=1.0,
        stragglers__name="trace",
        stragglers__path=str(tmp_path / "trace.csv"),
    )
    whole, begun, resumed = (LocalRun(settings) for _ in range(3))
    iterations = whole.train()
    assert 0 in iterations[0].late
    assert 1 in iterations[-1].late
    assert [next(each) for each in [iter(begun)] * 4] == iterations[:4]
    resumed.load(begun.state())
    assert resumed.train() == iterations[4:]


def test_returns_are_reported_when_episodes_end() -> None:
    returns = [iteration.return_mean for iteration in LocalRun(config(), coded=False)]
    # Episodes of 25 steps, 10 steps an iteration; copy 1 begins in step 12 of its first episode.
    # They end after steps 25 and 50 of copy 0, and 13, 38 and 63 of copy 1.
    assert [value is None for value in returns] == [True, False, False, False, False, True]
    assert all(value < 0 for value in returns if value is not None)


def test_a_small_table_forgets_and_still_agrees_with_the_reference() -> None:
    small = config(replay__capacity=110, collect__warmup=100)
    assert digests(LocalRun(small)) == digests(LocalRun(small, coded=False))
    assert digests(LocalRun(small)) != digests(LocalRun(config()))


def test_a_lag_of_one_collects_with_older_policies() -> None:
    lagging = config(collect__lag=1)
    assert digests(LocalRun(lagging)) == digests(LocalRun(lagging, coded=False))
    prompt, late = digests(LocalRun(config())), digests(LocalRun(lagging))
    assert prompt[0] == late[0]  # the first collection follows no update
    assert prompt[1] != late[1]


def test_a_wrong_computation_is_never_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    run = LocalRun(config(code__name="mds"), independent_learners=True)
    gradients, calls = run.training.algorithm.gradients, iter(range(100))
    honest = gradients.compute

    def wrong_once(
        batch: FloatArray, units: list[int], *, iteration: int, **others: Any
    ) -> Iterator[tuple[int, FloatArray]]:
        bad = next(calls) == 1
        for unit, update in honest(batch, units, iteration=iteration):
            yield unit, np.negative(update) if bad and unit == 0 else update

    monkeypatch.setattr(gradients, "compute", wrong_once)
    with pytest.raises(Corrupted, match="iteration 0: learners disagree"):
        run.train()


@pytest.mark.parametrize("steps", [25, 7])
@pytest.mark.parametrize("ahead", [False, True])
def test_training_goes_on_from_its_state_as_if_it_had_not_stopped(steps: int, ahead: bool) -> None:
    stopped, resumed = (LocalRun(config(collect__steps=steps), coded=False) for _ in range(2))
    iterations = iter(stopped)
    for _ in range(3):
        next(iterations)
    if ahead:
        stopped.training.collector.collect(3)
    assert resumed.parameter_digest() != stopped.parameter_digest()
    resumed.training.load(stopped.training.state(resume_at=3), resume_at=3)
    assert resumed.parameter_digest() == stopped.parameter_digest()
    for iteration in (3, 4):
        played = [run.training.collector.collect(iteration) for run in (stopped, resumed)]
        assert played[0].rows.tobytes() == played[1].rows.tobytes()
        steps_so_far = 2 * steps * (iteration + 1)
        assert [each.statistics for each in played] == 2 * [{"env_steps": steps_so_far}]


def neighbours(**options: Any) -> RunConfig:
    ising = {"algorithm__name": "darl1n", "environment__name": "food_collection", "learners": 12}
    return config(**ising, algorithm__evaluate_every=3, collect__lag=0, **options)


def test_learners_that_make_their_own_samples_commit_the_bits_of_the_reference() -> None:
    reference = digests(LocalRun(neighbours(), coded=False))
    for code in ("ldgm", "cyclic"):
        straggling = neighbours(code__name=code, stragglers__name="bernoulli")
        assert digests(LocalRun(straggling, independent_learners=True)) == reference
    assert digests(LocalRun(neighbours(seed=1), coded=False)) != reference


def test_without_transitions_returns_come_from_evaluations() -> None:
    run = LocalRun(neighbours(), coded=False)
    returns = [iteration.return_mean for iteration in run]
    assert [value is None for value in returns] == [False, True, True, False, True, True]
    assert run._table.head == 0


@pytest.mark.parametrize("code", ["uncoded", "cyclic"])
def test_steps_that_learners_play_count_once_for_each_agent_whatever_the_code(code: str) -> None:
    iterations = LocalRun(neighbours(code__name=code)).train()
    each = 32 * 6  # the minibatch of each of six agents
    steps = [iteration.statistics["env_steps"] for iteration in iterations]
    assert steps == [each * (number + 1) for number in range(len(iterations))]


@pytest.mark.parametrize("coded", [False, True])
@pytest.mark.parametrize("algorithm", ["maddpg", "darl1n"])
def test_frozen_agents_keep_what_they_have_while_the_others_learn(
    algorithm: str, coded: bool
) -> None:
    settings = config(
        algorithm__name=algorithm, environment__name="grassland", environment__agents=4, learners=6
    )
    run = LocalRun(settings, coded=coded, frozen={0, 1})
    before = run.training.algorithm.optimiser.state()
    run.train()
    after = run.training.algorithm.optimiser.state()
    same = {
        unit: np.array_equal(before[f"policy/{unit}"], after[f"policy/{unit}"]) for unit in range(4)
    }
    assert same == {0: True, 1: True, 2: False, 3: False}


def test_learners_with_samples_of_their_own_wait_for_low_variance_and_commit_what_they_have() -> (
    None
):
    def noises(code: str, limit: float) -> list[LocalIteration]:
        settings = {
            "environment__name": "food_collection",
            "environment__agents": 3,
            "algorithm__name": "darl1n",
            "algorithm__data": "independent",
            "algorithm__max_variance": limit,
            "code__name": code,
            "learners": 6,
            "iterations": 3,
        }
        return LocalRun(config(**settings)).train()

    ranked, waiting = (noises("mds", limit) for limit in (float("inf"), 0.95))
    assert all(len(each.received) == 3 and not each.exact for each in ranked)
    assert all(each.variance is not None and each.variance <= 0.95 for each in waiting)
    assert all(3 < len(each.received) < 6 for each in waiting)
    assert [each.received for each in noises("uncoded", 0.5)] == [
        each.received for each in noises("uncoded", float("inf"))
    ]
    assert noises("mds", 0.95) == waiting


def test_within_a_collection_there_is_no_state_to_go_on_from() -> None:
    own = {"algorithm__micro_batches": 2, "algorithm__epochs": 2, "algorithm__batch_size": 2}
    run = LocalRun(config(algorithm__name="ippo", **own), coded=False)
    next(iter(run))
    assert not run.resumable
    with pytest.raises(FullrankError, match=r"1 iterations are applied, and a collection has 2"):
        run.state()


def test_a_warm_up_of_whole_episodes_may_be_longer_than_the_table() -> None:
    """25 steps of 3 copies are 78 rows with those of the last observations."""
    own = {"collect__warmup": 60, "replay__capacity": 60, "algorithm__batch_size": 2}
    own |= {"algorithm__micro_batches": 2}
    run = LocalRun(config(algorithm__name="qmix", iterations=1, **own), coded=False)
    assert len(run.train()) == 1


def test_a_collection_of_whole_episodes_may_be_longer_than_the_table() -> None:
    """Three copies collect 78 rows; a minibatch draws from the 60 that are kept."""
    own = {"collect__warmup": 20, "replay__capacity": 60, "algorithm__batch_size": 2}
    own |= {"algorithm__micro_batches": 2, "environment__copies": 3}
    run = LocalRun(config(algorithm__name="qmix", iterations=2, **own), coded=False)
    assert len(run.train()) == 2
