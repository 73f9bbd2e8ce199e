"""Generalised advantages: discounted sums of temporal differences [Schulman16]."""

import numpy as np
import pytest

from fullrank.algorithms.on_policy import advantages


@pytest.mark.parametrize("terminated", [False, True])
def test_advantages_are_the_discounted_sums_of_temporal_differences(terminated: bool) -> None:
    generator, discount, trace = np.random.default_rng(2), 0.9, 0.7
    reward, value = generator.normal(size=(6, 2)), generator.normal(size=(7, 2))
    continues = np.ones((6, 1))
    continues[-1] = not terminated
    errors = reward + discount * continues * value[1:] - value[:-1]
    expected = [
        sum((discount * trace) ** ahead * errors[step + ahead] for ahead in range(6 - step))
        for step in range(6)
    ]
    arrays = (array.astype(np.float32) for array in (reward, continues, np.ones((6, 1)), value))
    found = advantages(*arrays, discount=discount, trace=trace)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_the_advantage_of_the_longest_trace_is_the_return_less_the_value() -> None:
    reward, value = np.ones((4, 1), np.float32), np.full((5, 1), 3.0, np.float32)
    ends = np.array([[1], [1], [1], [0]], np.float32)
    found = advantages(reward, ends, np.ones_like(ends), value, discount=1.0, trace=1.0)
    np.testing.assert_array_equal(found[:, 0], [1.0, 0.0, -1.0, -2.0])


def test_an_agent_that_leaves_by_its_own_limit_goes_on_with_the_value_of_its_last_state() -> None:
    """The first agent is out in steps 2 and 3, and is back in step 4; the second one stays."""
    reward, value = np.ones((6, 2), np.float32), np.full((7, 2), 3.0, np.float32)
    value[2, 0], reward[2:4, 0] = 10.0, 99.0
    earns = np.ones((6, 2), np.float32)
    earns[1:3, 0] = 0.0
    found = advantages(reward, np.ones_like(reward), earns, value, discount=1.0, trace=1.0)
    np.testing.assert_array_equal(found[:, 1], [6.0, 5.0, 4.0, 3.0, 2.0, 1.0])
    np.testing.assert_array_equal(found[[0, 1, 4, 5], 0], [1 + 1 + 10 - 3, 1 + 10 - 3, 2, 1])
