"""Laws that the problem, the gradients and the optimiser of every algorithm keep."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from fullrank.algorithms import Algorithm
from fullrank.algorithms.action_values import ActionValues
from fullrank.algorithms.problem import Unit
from fullrank.common.errors import Cancelled, CheckpointUnusable
from fullrank.common.types import FloatArray
from fullrank.common.updates import GRID, unit_digest
from fullrank.environments import AgentSpec
from fullrank.networks.fused import kernels
from fullrank.networks.fused.maddpg import FusedMADDPG
from fullrank.replay.episodes import episodes_in
from fullrank.replay.items import rows_of_items, spread

from .algorithm_cases import (
    PARTS,
    SEED,
    build,
    by_autograd,
    cases,
    class_of,
    collects,
    computed,
    config,
    draws,
    layout,
    narrow_team,
    plays_episodes,
    random_updates,
    spec_of,
    team,
    transitions,
    units_of,
)

SIZES = [(16, 16), (333, 50)]
PRODUCTS = {"mm", "bmm", "addmm", "baddbmm"}


@pytest.mark.parametrize(("batch", "hidden"), SIZES)
def test_bits_of_a_unit_do_not_depend_on_company_order_or_threads(
    name: str, batch: int, hidden: int
) -> None:
    algorithm = build(name, batch=batch, hidden=hidden)
    check_company(name, algorithm, transitions(name, batch))


@pytest.mark.parametrize("name", cases(lambda name: not collects(name)))
def test_bits_of_narrow_units_do_not_depend_on_company_order_or_threads(name: str) -> None:
    agents = narrow_team(observation=1, actions=1, values=plays_episodes(name))
    check_narrow(name, agents, hidden=1)


@pytest.mark.parametrize("name", cases(collects))
def test_bits_of_one_hidden_unit_do_not_depend_on_company_order_or_threads(name: str) -> None:
    check_narrow(name, team(name), hidden=1)


def check_narrow(name: str, agents: Sequence[AgentSpec], hidden: int) -> None:
    """Check networks with random biases too, so that few of their hidden units are dead."""
    algorithm, generator = build(name, hidden=hidden, agents=agents), np.random.default_rng(0)
    for section in algorithm.problem.sections:
        view = algorithm.parameters.view(section.id)
        view += generator.normal(scale=0.1, size=view.shape).astype(np.float32)
    algorithm.parameters.written()
    check_company(name, algorithm, transitions(name, 100, agents=agents))


def check_company(name: str, algorithm: Algorithm, rows: FloatArray) -> None:
    """Compare the bits of each unit alone with its bits in random company, order and threads."""
    generator = np.random.default_rng(len(rows))
    for threads in (1, 2):
        torch.set_num_threads(threads)
        if threads == 1 or by_autograd(name) or plays_episodes(name):  # bits depend on threads
            alone = {unit: computed(algorithm, rows, [unit])[unit] for unit in units_of(algorithm)}
        count = len(algorithm.problem.units)
        for width in range(1, count + 1):
            units = [int(unit) for unit in generator.permutation(count)[:width]]
            together = computed(algorithm, rows, units)
            assert sorted(together) == sorted(units)
            assert all(together[unit] == alone[unit] for unit in units)


class Products(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Multiplications of one matrix in each product that may go to oneDNN."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.sizes: list[int] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> object:
        kind = func._schema.name.removeprefix("aten::").removesuffix("_")
        if kind in PRODUCTS and torch.get_float32_matmul_precision() != "highest":
            left, right = args[-2:]
            self.sizes.append(left.shape[-2] * left.shape[-1] * right.shape[-1])
        return func(*args, **(kwargs or {}))


def test_where_onednn_is_wanted_it_gets_every_product_of_a_unit_alone(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for probe in ("_prefers_onednn", "is_float32", "is_steady"):
        monkeypatch.setattr(kernels, probe, lambda *_: True)
    algorithm, rows = build(name, batch=333, hidden=50), transitions(name, 333)
    with Products() as products:
        computed(algorithm, rows, [0])
    assert all(size > 4096 for size in products.sizes)
    never = by_autograd(name) or plays_episodes(name)
    assert products.sizes or never


def test_bits_do_not_depend_on_where_the_batch_lies_in_memory(name: str) -> None:
    algorithm, rows = build(name), transitions(name, 100)
    memory = np.empty(rows.size + 3, np.float32)
    shifted = memory[3:].reshape(rows.shape)
    shifted[:] = rows
    units = units_of(algorithm)
    assert computed(algorithm, shifted, units) == computed(algorithm, rows, units)


@pytest.mark.parametrize("name", cases(draws))
def test_bits_depend_on_the_iteration_and_the_seed(name: str) -> None:
    algorithm, rows = build(name), transitions(name, 100)
    first = computed(algorithm, rows, [0])
    other = build(name, seed=SEED + 1)
    for section in other.problem.sections:
        other.parameters.view(section.id)[:] = algorithm.parameters.view(section.id)
    other.parameters.written()
    assert computed(algorithm, rows, [0], iteration=6) != first
    assert computed(other, rows, [0]) != first


def test_a_unit_reads_no_section_beyond_its_needs(name: str) -> None:
    source, learner, rows = build(name), build(name), transitions(name, 100)
    for unit in units_of(source):
        for section in learner.problem.sections:
            needed = section.id in source.problem.needs(unit)
            values = source.parameters.view(section.id) if needed else np.nan
            learner.parameters.view(section.id)[:] = values
        learner.parameters.written()
        assert computed(learner, rows, [unit]) == computed(source, rows, [unit])


def test_sections_are_numbered_and_sized_as_their_views(name: str) -> None:
    algorithm = build(name)
    assert [section.id for section in algorithm.problem.sections] == list(
        range(len(algorithm.problem.sections))
    )
    rows = algorithm.problem.episodes or layout(name)
    assert algorithm.problem.row_size == rows.row_size
    for section in algorithm.problem.sections:
        view = algorithm.parameters.view(section.id)
        assert view.shape == (section.size,)
        assert view.dtype == np.float32
        assert view.flags.writeable


def test_the_problem_is_known_before_anything_is_made(name: str) -> None:
    algorithm, problem = build(name), config(name).problem(spec_of(name))
    assert replace(problem, target=None) == replace(algorithm.problem, target=None)
    if problem.target is None or algorithm.problem.target is None:
        assert problem.target is algorithm.problem.target
    else:
        assert np.array_equal(problem.target, algorithm.problem.target)
    everyone = tuple(range(len(team(name))))
    shared = [Unit(everyone, part) for part in range(len(problem.units))]
    parts, share = (getattr(config(name), key, 1) for key in ("micro_batches", "share"))
    own = [Unit((agent,), part) for agent in range(len(team(name))) for part in range(parts)]
    together = share == "all" or issubclass(class_of(name), ActionValues)
    assert [*problem.units] == (shared if together else own)
    for unit, update in algorithm.gradients.compute(
        transitions(name, 100), units_of(algorithm), iteration=0
    ):
        assert update.shape == (problem.unit_sizes[unit],)


def test_work_can_be_abandoned_at_every_cancellation_point(name: str) -> None:
    algorithm, rows = build(name), transitions(name, 100)
    whole = computed(algorithm, rows, units_of(algorithm))
    points = 0

    def count() -> None:
        nonlocal points
        points += 1

    list(algorithm.gradients.compute(rows, units_of(algorithm), iteration=5, check_cancelled=count))
    assert points >= min(4, 2 * len(units_of(algorithm)))
    for point in range(points):
        calls = iter(range(points))

        def abandon(point: int = point, calls: Iterator[int] = calls) -> None:
            if next(calls) == point:
                raise Cancelled

        with pytest.raises(Cancelled):
            list(
                algorithm.gradients.compute(
                    rows, units_of(algorithm), iteration=5, check_cancelled=abandon
                )
            )
    assert computed(algorithm, rows, units_of(algorithm)) == whole


@pytest.mark.parametrize("name", ["maddpg", "mfac", PARTS])
@pytest.mark.parametrize("batch", [100, 600])
def test_a_second_thread_changes_no_bit(name: str, batch: int) -> None:
    algorithm, rows = build(name, batch=batch), transitions(name, batch)
    assert isinstance(algorithm.gradients, FusedMADDPG)
    alone = computed(algorithm, rows, units_of(algorithm))
    calls = iter(range(3))

    def abandon() -> None:
        if next(calls, None) is None:
            raise Cancelled("asked to")

    with ThreadPoolExecutor(1) as executor:
        algorithm.gradients.run_beside(executor)
        with suppress(Cancelled):
            list(
                algorithm.gradients.compute(
                    rows, units_of(algorithm), iteration=5, check_cancelled=abandon
                )
            )
        assert computed(algorithm, rows, units_of(algorithm)) == alone


def test_updates_lie_on_the_grid_and_have_one_zero(name: str) -> None:
    algorithm = build(name)
    for unit, update in algorithm.gradients.compute(
        transitions(name, 100), units_of(algorithm), iteration=0
    ):
        assert update.shape == (algorithm.problem.unit_sizes[unit],)
        assert update.dtype == np.float32
        scaled = update.astype(np.float64) / GRID
        assert np.array_equal(scaled, np.rint(scaled))
        assert not np.signbit(update[update == 0]).any()
        assert np.any(update != 0)


def test_updates_are_not_overwritten_by_a_later_call(name: str) -> None:
    algorithm, rows = build(name), transitions(name, 100)
    kept = dict(algorithm.gradients.compute(rows, units_of(algorithm)[:2], iteration=0))
    digests = {unit: unit_digest(update) for unit, update in kept.items()}
    computed(algorithm, transitions(name, 100, seed=1), units_of(algorithm), iteration=1)
    assert {unit: unit_digest(update) for unit, update in kept.items()} == digests


def test_equal_updates_give_equal_states_on_any_number_of_threads(name: str) -> None:
    states = []
    for threads in (1, 2, 1):
        torch.set_num_threads(threads)
        algorithm = build(name)
        for seed in range(3):
            algorithm.optimiser.step(random_updates(algorithm, seed=seed))
        states.append({key: value.tobytes() for key, value in algorithm.optimiser.state().items()})
    assert states[0] == states[1] == states[2]


def test_a_restored_state_goes_on_as_the_original(name: str) -> None:
    original = build(name)
    original.optimiser.step(random_updates(original, seed=0))
    saved = original.optimiser.state()
    restored = build(name, seed=SEED)
    original.optimiser.step(random_updates(original, seed=1))
    restored.optimiser.load(saved)
    restored.optimiser.step(random_updates(restored, seed=1))
    for section in original.problem.sections:
        view = original.parameters.view(section.id)
        assert np.array_equal(view, restored.parameters.view(section.id))
    again = restored.optimiser.state()
    state = original.optimiser.state()
    assert all(np.array_equal(value, again[key]) for key, value in state.items())


def test_a_state_that_does_not_fit_is_refused(name: str) -> None:
    algorithm = build(name)
    state = dict(algorithm.optimiser.state())
    key = next(iter(state))
    missing = {other: value for other, value in state.items() if other != key}
    with pytest.raises(CheckpointUnusable, match=key):
        algorithm.optimiser.load(missing)
    with pytest.raises(CheckpointUnusable, match=key):
        algorithm.optimiser.load({**state, key: np.zeros(3, np.float32)})


def test_a_unit_reads_no_item_of_the_minibatch_beyond_its_own(name: str) -> None:
    algorithm, rows = build(name), transitions(name, 100)
    problem, units = algorithm.problem, units_of(algorithm)
    if problem.items is None:
        assert problem.items_of(units) is None
        return
    column, size, lengths = None, problem.data.batch_size, np.ones(len(rows), np.int64)
    if problem.episodes is not None:
        column = problem.episodes.length
        lengths = np.array([place.stop - place.start for place in episodes_in(rows, column)])
    read = sorted(item for items in problem.items for item in items)
    assert read == sorted([*range(size)] * (len(read) // size))
    assert problem.items_of(units) is None
    for unit in units:
        items = problem.items_of([unit]) or tuple(range(size))
        own = spread(rows[rows_of_items(lengths, items)], lengths, items, length_column=column)
        assert computed(algorithm, own.rows, [unit]) == computed(algorithm, rows, [unit])
