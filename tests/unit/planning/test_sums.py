"""Candidates, plans and virtual time of codes that recover sums of units."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tests.faultlab.simulation import toy_algorithm
from tests.registries import shipped

from fullrank.codes import codes, make_code
from fullrank.codes.conditions import decodable
from fullrank.codes.targets import sum_of_units, sums_of_groups
from fullrank.common.types import Matrix
from fullrank.config.auto_code import AutoCodeSettings
from fullrank.planning.arrival import Arrivals, decodable_after
from fullrank.planning.candidates import candidates
from fullrank.planning.costs import Traffic
from fullrank.planning.observation import Observation
from fullrank.planning.planner import Planner
from fullrank.rounds.decoding import ExactDecoding
from fullrank.rounds.round import Round

assert toy_algorithm  # importing it registers the algorithms


def free(matrix: Matrix) -> Traffic:
    nothing = np.zeros(len(matrix), dtype=np.int64)
    return Traffic(parameters=nothing, sample=nothing, digests=nothing, coded=nothing)


def test_candidates_recover_the_target_asked_for() -> None:
    target = sum_of_units(4)
    options = candidates(learners=6, units=4, seed=0, target=target)
    assert all((option.code.target == target).all() for option in options)
    names = {option.name for option in options}
    assert {"fractional", "cyclic", "mds"} <= names
    assert "fractional" not in {option.name for option in candidates(learners=6, units=4, seed=0)}


def test_fewer_rows_than_units_have_candidates_if_their_sum_is_asked_for() -> None:
    options = candidates(learners=3, units=8, seed=0, target=sum_of_units(8))
    assert [option.label for option in options] == ["fractional,tolerance=2"]
    bare, _ = candidates(learners=3, units=8, seed=0, target=sum_of_units(8), tolerance=0)
    assert (bare.label, bare.code.load.tolist()) == ("uncoded", [3, 3, 2])
    several = candidates(learners=3, units=8, seed=0, target=sums_of_groups(2, 4))
    assert min(option.code.rows_per_learner for option in several) == 2


def observe(planner: Planner, *, late: set[int]) -> None:
    """Learners 0 to 5 hold cyclic(1) of three units; some take ten seconds more."""
    code = make_code("cyclic", rows=6, units=3, tolerance=1)
    compute_s = np.multiply(0.1, code.load, dtype=np.float64)
    delay_s = np.array([10.0 if learner in late else 0.0 for learner in range(6)])
    arrival_s = compute_s + delay_s
    for _ in range(20):
        planner.observe(
            Observation(
                code="cyclic,tolerance=1",
                learners=tuple(range(6)),
                load=code.load,
                compute_s=compute_s,
                arrival_s=arrival_s,
                round_s=float(arrival_s.max()),
                moved=free(code.matrix),
            )
        )


def test_four_late_learners_of_six_leave_two_for_the_sum() -> None:
    """No code recovers three units from two learners; the sum needs one learner of each group."""
    plans = {}
    for name, target in (("each", None), ("sum", sum_of_units(3))):
        planner = Planner(AutoCodeSettings(), units=3, seed=0, moved=free, target=target)
        observe(planner, late={0, 2, 3, 5})
        plans[name] = planner.plan(range(6))
    chosen, punctual = plans["sum"].candidate.code, np.array([[1, 4]])
    assert decodable(chosen.matrix, punctual, target=chosen.target).all()
    assert plans["sum"].forecasts[0].mean_s < 1.0 < 10.0 < plans["each"].forecasts[0].mean_s


@given(
    name=st.sampled_from([name for name in shipped(codes) if name != "ldpc"]),
    spare=st.integers(2, 6),
    groups=st.sampled_from([1, 2]),
    seed=st.integers(0, 1000),
)
def test_virtual_time_commits_a_sum_at_the_arrival_at_which_a_round_turns_decodable(
    name: str, spare: int, groups: int, seed: int
) -> None:
    target = sums_of_groups(groups, 4 // groups)
    code = make_code(name, rows=4 + spare, units=4, target=target)
    order = np.random.default_rng(seed).permutation(code.rows)
    round_, count = Round(0, code, decoding=ExactDecoding()), 0
    while not round_.decodable:
        round_.offer(learner=int(order[count]), row=int(order[count]))
        count += 1
    assert decodable_after(code.matrix, order, target) == count
    assert Arrivals(code.matrix, target=target).needed(order[None]).tolist() == [count]


def test_every_candidate_survives_a_loss_and_gives_every_unit() -> None:
    found = candidates(learners=15, units=8, seed=0)
    assert all(each.code.tolerance >= 1 and each.code.recovers_units for each in found)
    assert {f"cyclic,tolerance={s}" for s in range(1, 8)} < {each.label for each in found}


def test_no_code_is_the_first_candidate_where_none_need_survive_a_loss() -> None:
    for learners in (5, 8, 15):
        survivors = candidates(learners=learners, units=8, seed=0)
        found = candidates(learners=learners, units=8, seed=0, tolerance=0)
        assert found[0].label == "uncoded"
        assert set(survivors) < set(found)
        loads = [(each.code.load.max(), each.code.load.sum()) for each in found]
        assert loads == sorted(loads)
        assert len({each.code.matrix.tobytes() for each in found}) == len(found)


def test_a_code_that_does_not_exist_for_the_sizes_is_left_out() -> None:
    six, eight = (
        {each.name for each in candidates(learners=learners, units=4, seed=0)}
        for learners in (6, 8)
    )
    assert "ldpc" in six - eight


def test_few_learners_have_candidates_with_several_rows_each() -> None:
    for learners in (2, 5, 8):
        found = candidates(learners=learners, units=8, seed=0)
        assert all(each.code.learners == learners for each in found)
        assert all(each.code.rows_per_learner > 1 <= each.code.tolerance for each in found)
        assert "cyclic,tolerance=1" in {each.label for each in found}
    assert candidates(learners=1, units=8, seed=0) == ()
