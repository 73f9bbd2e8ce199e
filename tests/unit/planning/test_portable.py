"""Functions of IEEE operations alone, and plans that are the same on every processor."""

import os
import subprocess
import sys

import numpy as np
import pytest
from scipy.special import gammaincc, ndtr

from fullrank.planning.portable import exp, gamma_tail, log, power, product


def test_logarithm_and_exponential_are_those_of_the_library_but_for_the_last_bits() -> None:
    values = np.concatenate([np.geomspace(1e-300, 1e300, 999), [1.0, np.nextafter(1.0, 0.0)]])
    np.testing.assert_allclose(log(values), np.log(values), rtol=1e-14, atol=1e-15)
    exponents = np.linspace(-700.0, 700.0, 999)
    np.testing.assert_allclose(exp(exponents), np.exp(exponents), rtol=1e-12)


def test_a_power_is_repeated_multiplication() -> None:
    assert power(0.99, np.array([2, 0, 1])).tolist() == [0.99 * 0.99, 1.0, 0.99]


@pytest.mark.parametrize("halves", [1, 2, 3, 8, 15, 80, 801])
def test_tails_are_those_of_the_gamma_distribution(halves: int) -> None:
    values = halves / 2 + np.geomspace(0.01, 100.0, 50)
    found = gamma_tail(np.full(50, halves), values)
    np.testing.assert_allclose(found, gammaincc(halves / 2, values), rtol=1e-6)
    assert gamma_tail(np.array([halves]), np.array([0.4 * halves])) == 1.0


def test_the_tail_of_one_half_is_that_of_the_normal_distribution_on_both_sides() -> None:
    deviation = np.array([1.5, 4.0, 8.0])
    found = gamma_tail(np.ones(3, np.int64), deviation**2 / 2)
    np.testing.assert_allclose(found, 2 * ndtr(-deviation), rtol=1e-6)


def test_a_product_is_exact_in_every_order_of_summation() -> None:
    draws = np.random.default_rng(0)
    matrix = (draws.random((40, 999)) < 0.5).astype(np.float64)
    values, order = draws.random(999), draws.permutation(999)
    one = product(matrix, values, digits=40)
    np.testing.assert_array_equal(one, product(matrix[:, order], values[order], digits=40))
    np.testing.assert_allclose(one, matrix @ values, rtol=1e-10)


PLAN = """
import numpy as np
from fullrank.config.auto_code import AutoCodeSettings
from fullrank.planning.candidates import candidates
from fullrank.planning.costs import Payload
from fullrank.planning.observation import Observation
from fullrank.planning.planner import Planner

planner = Planner(
    AutoCodeSettings(), units=4, seed=0, moved=Payload().traffic, undecodable="hedge"
)
code, draws = candidates(learners=6, units=4, seed=0)[0].code, np.random.default_rng(0)
for _ in range(40):
    compute_s = code.load * (1.0 + draws.random(6))
    arrival_s = compute_s + 4.0 * (draws.random(6) < 0.3) * draws.random(6)
    round_s = np.sort(arrival_s)[4]
    here = arrival_s <= round_s
    planner.observe(
        Observation(
            code="cyclic,tolerance=1",
            learners=tuple(range(6)),
            load=code.load,
            compute_s=np.where(here, compute_s, np.nan),
            arrival_s=np.where(here, arrival_s, np.nan),
            round_s=round_s,
            moved=Payload().traffic(code.matrix),
        )
    )
plan = planner.plan(range(6))
print([(each.label, each.total, each.cautious) for each in plan.forecasts])
"""


def planned(**environment: str) -> str:
    """Forecasts of a plan that another process makes."""
    words = [sys.executable, "-c", PLAN]
    done = subprocess.run(
        words, env=os.environ | environment, capture_output=True, text=True, check=True
    )
    return done.stdout


@pytest.mark.integration
def test_a_plan_is_the_same_with_the_instructions_of_an_older_processor() -> None:
    found = np.show_config(mode="dicts")["SIMD Extensions"].get("found", [])
    older = planned(OPENBLAS_CORETYPE="Nehalem", NPY_DISABLE_CPU_FEATURES=" ".join(found))
    assert older == planned()
    assert "uncoded,hedged" in older
