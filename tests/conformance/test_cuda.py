"""Laws of algorithms on CUDA; what CUDA does to whole buffers is forced on the CPU, too.

Tests marked ``gpu`` need a device: ``make gpu``.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from fullrank.algorithms import fused_values
from fullrank.algorithms.actor_critic import ActorCritic
from fullrank.algorithms.trajectories import ENTRIES
from fullrank.algorithms.updates import Entries
from fullrank.common.types import Array, FloatArray
from fullrank.conformance.subjects import computed, random_updates, units_of
from fullrank.networks import adam
from fullrank.networks.fused import gradients, unit_batch
from fullrank.networks.parameters import GroupedParameters

from .algorithm_cases import build, config, layout, team, transitions
from .pretended_device import DEVICE, pretended_device

PATHS = (
    (adam, "steps_at_once"),
    (gradients, "snaps_on"),
    (unit_batch, "computes_apart"),
    (fused_values, "computes_apart"),
)
"""Functions that tell whether CUDA takes another path than the CPU."""

FEW = 4
"""Transitions that a pretended device computes: operations are counted there, not numbers."""

NEAR = 1e-5
"""Largest difference between devices, relative to the largest entry."""


def test_the_paths_of_cuda_give_the_bits_of_those_of_the_cpu(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adam, "BLOCK", 512)
    monkeypatch.setattr(gradients, "SNAP_ENTRIES", 100)
    outcomes = []
    for on_cuda in (False, True):
        for module, path in PATHS:
            monkeypatch.setattr(module, path, lambda device, on_cuda=on_cuda: on_cuda)
        algorithm, rows = build(name), transitions(name, 100)
        units = computed(algorithm, rows, units_of(algorithm))
        for seed in range(2):
            algorithm.optimiser.step(random_updates(algorithm, seed=seed))
        state = algorithm.optimiser.state()
        outcomes.append((units, {key: value.tobytes() for key, value in state.items()}))
    assert outcomes[0] == outcomes[1]


def test_parameters_stay_on_their_device_until_they_are_read(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = build(name)
    monkeypatch.setattr(torch.Tensor, "cpu", torch.Tensor.clone)  # as from a memory of its own
    there = build(name)
    sections = range(len(here.problem.sections))
    read = there.parameters.view(0)
    before = read.copy()
    for algorithm in (here, there):
        algorithm.optimiser.step(random_updates(algorithm, seed=0))
    assert np.array_equal(read, before)
    for section in sections:
        stepped = here.parameters.view(section)
        assert np.array_equal(there.parameters.view(section), stepped)
    assert not np.array_equal(read, before)


@pytest.mark.integration
def test_no_operation_on_a_device_reads_memory_of_the_host_and_no_product_is_in_tf32(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pretended_device(monkeypatch):
        there = torch.zeros(2, 2, device=DEVICE)
        with pytest.raises(RuntimeError, match="same device"):
            torch.add(there, torch.zeros(2, 2))
        with pytest.raises(RuntimeError, match="may round to TF32"):
            torch.mm(there, there)
        algorithm, rows, agents = build(name, device=DEVICE), transitions(name, FEW), team(name)
        assert isinstance(algorithm.parameters, GroupedParameters)
        assert algorithm.parameters.groups[0].rows.online.device.type == DEVICE
        units = enumerate(algorithm.problem.units)
        computed(algorithm, rows, [index for index, unit in units if not unit.part])
        algorithm.optimiser.step(random_updates(algorithm, seed=0))
        algorithm.optimiser.load(algorithm.optimiser.state())
        algorithm.parameters.view(0)
        algorithm.parameters.written()
        observation = np.zeros((2, layout(name).whole_size), np.float32)
        available = np.ones((2, sum(layout(name).action_sizes)), bool)
        actor, alive = algorithm.actor, np.ones((2, len(agents)), bool)
        memory = actor.memory(2)
        actor.act(observation, memory, iteration=0, step=0, alive=alive, available=available)
        actor.act_greedily(observation, memory, available=available)


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
def test_a_replayed_graph_has_the_bits_of_a_launch_with_its_own_parameters_rows_and_draws(
    name: str,
) -> None:
    replays = build(name, device="cuda")
    for iteration in range(3):
        rows = transitions(name, 100, seed=iteration)
        launches = build(name, device="cuda")
        launches.optimiser.load(replays.optimiser.state())
        units = units_of(launches)
        with ThreadPoolExecutor(1) as another_thread:
            expected, replayed = (
                another_thread.submit(computed, algorithm, rows, units, iteration=iteration)
                for algorithm in (launches, replays)
            )
        assert replayed.result() == expected.result()
        replays.optimiser.step(random_updates(replays, seed=iteration))


@pytest.mark.gpu
def test_cuda_computes_and_steps_as_the_cpu_but_for_rounding(name: str) -> None:
    here, there = build(name), build(name, device="cuda")
    rows = transitions(name, 100)
    expected = dict(here.gradients.compute(rows, units_of(here), iteration=5))
    for unit, update in there.gradients.compute(rows, units_of(there), iteration=5):
        for part, own in zip(parts(name, update), parts(name, expected[unit]), strict=True):
            assert np.abs(part - own).max() <= NEAR * np.abs(own).max()
    for algorithm in (here, there):
        algorithm.optimiser.step(random_updates(algorithm, seed=0))
    stepped = there.optimiser.state()
    for key, value in here.optimiser.state().items():
        np.testing.assert_allclose(stepped[key], value, rtol=NEAR, atol=NEAR * 1e-3)


def parts(name: str, update: FloatArray) -> Iterator[Array | FloatArray]:
    """The gradient, and the statistics, whose entries hold them on two scales."""
    learner = config(name)
    entries = Entries(learner.statistics()) if isinstance(learner, ActorCritic) else ENTRIES
    yield update[: -entries.size]
    yield np.array([*entries.sums(update[-entries.size :]).values()])
