"""Laws of algorithms on CUDA; what CUDA does to whole buffers is forced on the CPU, too.

Tests marked ``gpu`` need a device: ``make gpu``.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest
import torch

from fullrank.algorithms import Algorithm, captured, devices
from fullrank.algorithms.action_values import ActionValues
from fullrank.algorithms.actor_critic import ActorCritic
from fullrank.algorithms.base import layout_of
from fullrank.algorithms.devices import CopiedGradients
from fullrank.algorithms.mfac import MFAC
from fullrank.algorithms.on_policy_learner import OnPolicy
from fullrank.algorithms.trajectories import ENTRIES
from fullrank.algorithms.updates import Entries
from fullrank.codes.targets import target_sizes
from fullrank.common.errors import Unsound
from fullrank.common.rows import Rows
from fullrank.common.types import Array, FloatArray
from fullrank.config import load, to_toml
from fullrank.conformance.subjects import computed, random_updates, units_of
from fullrank.net.codec import encode_environment
from fullrank.networks import adam
from fullrank.networks.fused import gradients
from fullrank.networks.fused.cuda import DeviceRows, Graphs, OnFixedBuffers
from fullrank.networks.fused.maddpg import FusedMADDPG
from fullrank.networks.parameters import GroupedParameters
from fullrank.rounds.reports import reporter_of
from fullrank.rounds.verification import digests_of
from fullrank.training.centralised import Centralised
from fullrank.training.worker import AssignedRow, probe_batch, probe_of
from fullrank.v1 import controller_pb2 as pb
from fullrank.wiring.training import training_of
from fullrank_learner import run_context

from .algorithm_cases import (
    LAYERED,
    PARTS,
    build,
    cases,
    config,
    layout,
    plays_episodes,
    spec_of,
    team,
    transitions,
)
from .paths import NoOtherSums, take_paths, take_products, without_passes_of_ppo
from .pretended_device import DEVICE, pretended_device
from .recorded_graphs import compute_by_operations, record_graphs

FEW = 4
"""Transitions that a pretended device computes: operations are counted there, not numbers."""
SEEN = (
    *("maddpg by autograd", "maddpg of three parts", "maddpg of several choices"),
    *("ippo with memory", "ippo of normalised layers", "pqn of images"),
)
"""Variants on paths that no algorithm as it is takes, one for each path; others are thorough."""

ROWS = 64
"""Rows into which those of a unit are laid that is captured."""

NEAR = 1e-5
"""Largest difference between devices, relative to the largest entry."""


def compute_as_on_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the paths of CUDA, with few rows of padding and without passes that are for a CPU."""
    monkeypatch.setattr(captured, "laid_rows", lambda rows, device: ROWS)
    without_passes_of_ppo(monkeypatch)
    take_paths(monkeypatch, of_cuda=True)


def test_the_paths_of_cuda_give_the_bits_of_those_of_the_cpu(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adam, "BLOCK", 512)
    monkeypatch.setattr(gradients, "SNAP_ENTRIES", 100)
    outcomes = []
    for on_cuda in (False, True):
        take_paths(monkeypatch, of_cuda=on_cuda)
        algorithm, rows = build(name), transitions(name, 100)
        units = computed(algorithm, rows, units_of(algorithm))
        for seed in range(2):
            algorithm.optimiser.step(random_updates(algorithm, seed=seed))
        state = algorithm.optimiser.state()
        outcomes.append((units, {key: value.tobytes() for key, value in state.items()}))
    assert outcomes[0] == outcomes[1]


HAND_WRITTEN = ["maddpg", "mfac", "darl1n", "maddpg of several choices", PARTS]


@pytest.mark.parametrize("written", HAND_WRITTEN)
def test_by_products_of_one_order_a_unit_alone_has_its_bits_of_every_company(
    written: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, rows = build(written), transitions(written, 100)
    expected = dict(here.gradients.compute(rows, units_of(here), iteration=5))
    take_products(monkeypatch)
    there, generator = build(written), np.random.default_rng(0)
    alone: dict[int, bytes] = {}
    for unit in units_of(there):
        with NoOtherSums():
            alone |= computed(there, rows, [unit], iteration=5)
    for width in range(2, len(alone) + 1, 2):
        company = [int(unit) for unit in generator.permutation(len(alone))[:width]]
        together = computed(there, rows, company, iteration=5)
        assert together == {unit: alone[unit] for unit in company}
    for unit, update in there.gradients.compute(rows, units_of(there), iteration=5):
        for part, own in zip(parts(written, update), parts(written, expected[unit]), strict=True):
            assert np.abs(part - own).max() <= NEAR * np.abs(own).max()


CAPTURED = ["ippo", "mappo", "mappo of several choices", LAYERED, "pqn", "pqn of networks apart"]
"""Teams whose units are captured with what autograd launches."""


@pytest.mark.parametrize("team", CAPTURED)
def test_a_captured_unit_has_its_bits_of_every_company_and_the_hosts_update_but_for_rounding(
    team: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, rows = build(team), transitions(team, 100)
    expected = dict(here.gradients.compute(rows, units_of(here), iteration=5))
    compute_as_on_cuda(monkeypatch)
    there, generator = build(team), np.random.default_rng(0)
    assert isinstance(there.gradients, captured.CapturedGradients)
    alone: dict[int, bytes] = {}
    for unit, update in there.gradients.compute(rows, units_of(there), iteration=5):
        alone |= computed(there, rows, [unit], iteration=5)
        for part, own in zip(parts(team, update), parts(team, expected[unit]), strict=True):
            np.testing.assert_allclose(part, own, rtol=NEAR, atol=NEAR * min(1.0, own.max()))
    for width in range(2, len(alone) + 1):
        company = [int(unit) for unit in generator.permutation(len(alone))[:width]]
        together = computed(there, rows, company, iteration=5)
        assert together == {unit: alone[unit] for unit in company}


def test_auto_takes_a_device_for_the_hand_written_updates_of_maddpg_alone(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "visible", lambda: 2)
    monkeypatch.setattr(devices, "lack_of_kernels", str)
    algorithm = build(name)
    assert config(name).problem(spec_of(name)).accelerated == algorithm.problem.accelerated
    place = partial(devices.device_of, accelerated=algorithm.problem.accelerated)
    hand_written = isinstance(algorithm.gradients, FusedMADDPG)
    measured = hand_written and not isinstance(config(name), MFAC)
    assert place("auto").type == ("cuda" if measured else "cpu")
    assert (place("cuda").type, place("cpu").type) == ("cuda", "cpu")


def test_updates_that_stay_on_their_device_commit_the_bits_of_those_in_host_memory(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes = []
    without_passes_of_ppo(monkeypatch)
    for on_cuda in (False, True):
        take_paths(monkeypatch, of_cuda=on_cuda)
        outcomes.append(committed(build(name), name, stay=on_cuda))
    assert outcomes[0] == outcomes[1]


def committed(algorithm: Algorithm, name: str, *, stay: bool) -> list[object]:
    """What some iterations commit, the second one with scaled sums, and the state after them."""
    compute = Centralised(algorithm.problem, algorithm.gradients, seed=0).compute
    found = list[object]()
    for iteration in range(3):
        if isinstance(algorithm.parameters, GroupedParameters):
            algorithm.parameters.exponents[:] = iteration == 1
        targets = compute(transitions(name, 100, seed=iteration), iteration=iteration)
        assert isinstance(targets.updates, DeviceRows) == stay
        statistics = algorithm.optimiser.step(targets.updates)
        found += [targets.digests, targets.reports, targets.updates.tobytes(), statistics]
    return [*found, {key: value.tobytes() for key, value in algorithm.optimiser.state().items()}]


def test_a_graph_replayed_on_other_parameters_and_rows_has_the_bits_of_operations_one_by_one(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    compute_as_on_cuda(monkeypatch)
    compute_by_operations(monkeypatch)
    outcomes = []
    for replayed in (False, True):
        graphs = record_graphs(monkeypatch) if replayed else []
        algorithm, found = build(name), []
        if not hasattr(algorithm.gradients, "rows"):
            pytest.skip("nothing is captured")
        for iteration in range(3):
            rows = transitions(name, 100, seed=iteration)
            found.append(computed(algorithm, rows, units_of(algorithm), iteration=iteration))
            algorithm.optimiser.step(random_updates(algorithm, seed=iteration))
        assert graphs or not replayed or name == "darl1n"
        if isinstance(algorithm.gradients, captured.CapturedGradients):
            assert isinstance(algorithm.parameters, GroupedParameters)
            assert len(graphs) <= 1 + len(algorithm.parameters.groups)  # and a step of each group
        outcomes.append(found)
    assert outcomes[0] == outcomes[1]


def test_an_iteration_of_recorded_graphs_commits_the_bits_of_operations_one_by_one(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    compute_as_on_cuda(monkeypatch)
    compute_by_operations(monkeypatch)
    if not isinstance(build(name).gradients, gradients.StayingGradients):
        pytest.skip("nothing stays")
    expected = committed(build(name), name, stay=True)
    graphs = record_graphs(monkeypatch)
    assert committed(build(name), name, stay=True) == expected
    assert graphs


LEARNERS = {
    "maddpg": ("environment.agents=3",),
    "qmix": ("environment.name=two_step_game",),
    "ippo": ("environment.agents=3",),
}
"""Settings of runs, by algorithm."""


@pytest.mark.parametrize("learner_of", LEARNERS)
def test_a_learner_on_a_card_has_the_fingerprint_and_digests_of_the_controllers_recomputation(
    learner_of: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    compute_as_on_cuda(monkeypatch)
    monkeypatch.setattr(run_context, "visible", lambda: 1)
    monkeypatch.setattr("fullrank.wiring.training.device_of", lambda name, **_: name)
    monkeypatch.setattr(devices, "device_of", lambda name, **_: "cpu")
    words = ("compute.device=cuda", "controller.device=cpu", f"algorithm.name={learner_of}")
    sizes = ("algorithm.batch_size=8", "algorithm.hidden=4", *LEARNERS[learner_of])
    chosen = load(overrides=[*words, *sizes]).check().config
    training = training_of(chosen)
    algorithm, agents = training.algorithm, training.environment.agents
    assert isinstance(algorithm.gradients, CopiedGradients)
    welcome = pb.Welcome(configuration=to_toml(chosen), **encode_environment(training.environment))
    learner = run_context.LearnerContext(welcome)
    assert learner.config.compute.device == "cuda:0"
    assert learner.algorithm.gradients.fingerprint() == algorithm.gradients.fingerprint()
    assert learner.probe == probe_of(algorithm, agents, seed=chosen.seed)
    assert learner.probe.stable
    algorithm.optimiser.step(random_updates(algorithm, seed=0))
    for section in algorithm.problem.sections:
        own = learner.algorithm.parameters
        own.view(section.id)[:] = algorithm.parameters.view(section.id)
    learner.algorithm.parameters.written()
    seen = layout_of(agents, masked=algorithm.problem.masked)
    rows = probe_batch(algorithm.problem, seen, seed=chosen.seed)
    units = range(len(algorithm.problem.units))
    whole = [AssignedRow(row=unit, units=(unit,), coefficients=(1.0,)) for unit in units]
    made = learner.worker.compute(whole, rows, iteration=3)
    recomputed = algorithm.gradients.compute(rows, units, iteration=3)
    report_of = reporter_of(algorithm.problem, seed=chosen.seed)
    assert {each.unit: each.digest for each in made} == {
        unit: report_of(update) for unit, update in recomputed
    }


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
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(each, marks=[] if each in SEEN or " " not in each else pytest.mark.thorough)
        for each in cases()
    ],
)
def test_no_operation_on_a_device_reads_memory_of_the_host_and_no_product_is_in_tf32(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pretended_device(monkeypatch) as capture:
        there = torch.zeros(2, 2, device=DEVICE)
        with pytest.raises(RuntimeError, match="same device"):
            torch.add(there, torch.zeros(2, 2))
        with pytest.raises(RuntimeError, match="may round to TF32"):
            torch.mm(there, there)
        with pytest.raises(RuntimeError, match="cannot be captured"):
            capture(lambda: there.copy_(torch.zeros(2, 2)))
        with pytest.raises(RuntimeError, match="cannot be captured"):
            capture(lambda: there.sum().item())
        algorithm, rows, agents = build(name, device=DEVICE), transitions(name, FEW), team(name)
        assert isinstance(algorithm.parameters, GroupedParameters)
        assert algorithm.parameters.groups[0].rows.online.device.type == DEVICE
        units = enumerate(algorithm.problem.units)
        computed(algorithm, rows, [index for index, unit in units if not unit.part])
        algorithm.optimiser.step(random_updates(algorithm, seed=0))
        if isinstance(algorithm.gradients, gradients.StayingGradients):
            central = Centralised(algorithm.problem, algorithm.gradients, seed=0)
            batch: Rows = rows if plays_episodes(name) else transitions(name, 100)
            if central.mirrored is not None:
                batch = DeviceRows(torch.from_numpy(rows).to(DEVICE))
            updates = central.compute(batch, iteration=0).updates
            assert isinstance(updates, DeviceRows)
            assert updates.tensor.device.type == DEVICE
            algorithm.optimiser.step(updates)
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
def test_updates_that_stay_on_a_card_commit_the_bits_of_their_copies_on_the_host(
    name: str,
) -> None:
    stays, copies = (build(name, device="cuda") for _ in range(2))
    for iteration in range(3):
        rows = transitions(name, 100, seed=iteration)
        here, there = (
            Centralised(each.problem, each.gradients, seed=0).compute(rows, iteration=iteration)
            for each in (stays, copies)
        )
        host, statistics = np.asarray(there.updates), stays.problem.statistics
        sizes = stays.problem.unit_sizes
        if stays.problem.target is not None:
            sizes = target_sizes(stays.problem.target, sizes)
        assert (here.digests, here.reports) == (there.digests, there.reports)
        assert here.digests == digests_of(host, sizes, statistics)
        assert here.updates.tobytes() == host.tobytes()
        assert stays.optimiser.step(here.updates) == copies.optimiser.step(host)
        state = copies.optimiser.state()
        for key, value in stays.optimiser.state().items():
            assert np.array_equal(value, state[key])


def launched(
    self: Graphs,
    key: object,
    compute: OnFixedBuffers,
    *,
    draw: Callable[[], torch.Tensor],
    check_cancelled: Callable[[], None],
) -> None:
    """Compute without a graph."""
    compute(lambda: draw().cuda(), check_cancelled)


@pytest.mark.gpu
@pytest.mark.parametrize("written", [*HAND_WRITTEN[:-1], "qmix", *CAPTURED])
def test_captured_iterations_commit_the_bits_of_launched_ones(
    written: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    replayed = committed(build(written, device="cuda"), written, stay=True)
    monkeypatch.setattr(Graphs, "run", launched)
    assert committed(build(written, device="cuda"), written, stay=True) == replayed


@pytest.mark.gpu
@pytest.mark.parametrize("written", ["maddpg", "mfac"])
def test_a_replayed_update_that_is_not_finite_is_refused_and_changes_nothing(written: str) -> None:
    algorithm, rows = build(written, device="cuda"), transitions(written, 100)
    compute = Centralised(algorithm.problem, algorithm.gradients, seed=0).compute
    algorithm.optimiser.step(compute(rows, iteration=0).updates)
    expected, state = compute(rows, iteration=1), algorithm.optimiser.state()
    spoilt = rows.copy()
    spoilt[7, layout(written).reward] = np.inf
    with pytest.raises(Unsound, match="iteration 1: the update of unit 0 has an entry of"):
        compute(spoilt, iteration=1)
    again = compute(rows, iteration=1)
    assert (again.digests, again.updates.tobytes()) == (
        expected.digests,
        expected.updates.tobytes(),
    )
    for key, value in algorithm.optimiser.state().items():
        assert np.array_equal(value, state[key])


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
    entries = ENTRIES
    if isinstance(learner, ActorCritic):
        entries = Entries(learner.statistics())
    elif isinstance(learner, OnPolicy | ActionValues):
        entries = learner.entries
    yield update[: -entries.size]
    sums = entries.sums(update[-entries.size :])
    yield np.array([sums[name] for name in entries.names if name in sums])
