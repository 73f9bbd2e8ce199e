from fullrank.planning import candidates


def test_every_candidate_survives_a_loss_and_gives_every_unit() -> None:
    found = candidates(learners=15, units=8, seed=0)
    assert all(each.code.tolerance >= 1 and each.code.recovers_units for each in found)
    assert {f"cyclic,tolerance={s}" for s in range(1, 8)} < {each.label for each in found}


def test_a_code_that_does_not_exist_for_the_sizes_is_left_out() -> None:
    assert "ldpc" not in {each.name for each in candidates(learners=14, units=8, seed=0)}


def test_few_learners_have_candidates_with_several_rows_each() -> None:
    for learners in (2, 5, 8):
        found = candidates(learners=learners, units=8, seed=0)
        assert all(each.code.learners == learners for each in found)
        assert all(each.code.rows_per_learner > 1 <= each.code.tolerance for each in found)
        assert "cyclic,tolerance=1" in {each.label for each in found}
    assert candidates(learners=1, units=8, seed=0) == ()
