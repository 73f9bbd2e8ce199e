"""Laws of algorithms on CUDA; what CUDA does to whole buffers is forced on the CPU, too.

Tests marked ``gpu`` need a device: ``pytest -m gpu tests/conformance/test_cuda.py``. They have not
been run on one.
"""

import numpy as np
import pytest

from fullrank.networks import adam
from fullrank.networks.fused import gradients

from .algorithm_cases import build, computed, random_updates, transitions, units_of

NEAR = 1e-5
"""Largest difference between devices, relative to the largest entry."""


def test_whole_buffers_are_stepped_and_snapped_to_the_bits_of_blocks(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adam, "BLOCK", 512)
    monkeypatch.setattr(gradients, "SNAP_ENTRIES", 100)
    outcomes = []
    for at_once in (False, True):
        monkeypatch.setattr(adam, "steps_at_once", lambda device, at_once=at_once: at_once)
        monkeypatch.setattr(gradients, "snaps_on", lambda device, at_once=at_once: at_once)
        algorithm, rows = build(name), transitions(name, 100)
        units = computed(algorithm, rows, units_of(algorithm))
        for seed in range(2):
            algorithm.optimiser.step(random_updates(algorithm, seed=seed))
        state = algorithm.optimiser.state()
        outcomes.append((units, {key: value.tobytes() for key, value in state.items()}))
    assert outcomes[0] == outcomes[1]


@pytest.mark.gpu
def test_bits_of_a_unit_on_cuda_do_not_depend_on_company_or_order(name: str) -> None:
    algorithm, rows = build(name, device="cuda"), transitions(name, 100)
    generator, units = np.random.default_rng(0), units_of(algorithm)
    alone = {unit: computed(algorithm, rows, [unit])[unit] for unit in units}
    for width in range(1, len(units) + 1):
        company = [int(unit) for unit in generator.permutation(len(units))[:width]]
        together = computed(algorithm, rows, company)
        assert all(together[unit] == alone[unit] for unit in company)


@pytest.mark.gpu
def test_cuda_computes_and_steps_as_the_cpu_but_for_rounding(name: str) -> None:
    here, there = build(name), build(name, device="cuda")
    rows = transitions(name, 100)
    expected = dict(here.gradients.compute(rows, units_of(here), iteration=5))
    for unit, update in there.gradients.compute(rows, units_of(there), iteration=5):
        error = np.abs(update - expected[unit]).max()
        assert error <= NEAR * np.abs(expected[unit]).max()
    for algorithm in (here, there):
        algorithm.optimiser.step(random_updates(algorithm, seed=0))
    stepped = there.optimiser.state()
    for key, value in here.optimiser.state().items():
        np.testing.assert_allclose(stepped[key], value, rtol=NEAR, atol=NEAR * 1e-3)
