"""Laws that every algorithm of the library keeps."""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
import torch
from tests.registries import shipped
from torch.utils._python_dispatch import TorchDispatchMode

from fullrank.algorithms import (
    Algorithm,
    AlgorithmConfig,
    LocalAlgorithmConfig,
    algorithms,
    recipe_in,
)
from fullrank.common.errors import Cancelled, CheckpointUnusable
from fullrank.common.types import FloatArray, UnitIndex
from fullrank.common.updates import GRID, unit_digest
from fullrank.environments import AgentSpec, Continuous, Discrete, make_environment
from fullrank.export.policy import Policy
from fullrank.networks.fused import kernels
from fullrank.replay import Layout

UNEQUAL = (  # of two sides, so that both kinds of critics are computed
    AgentSpec(name="scout", observation_size=7, action=Discrete(5, relaxed=True)),
    AgentSpec(name="gripper", observation_size=13, action=Continuous((-1.0, 0.0), (1.0, 3.0))),
    AgentSpec(name="scout_2", observation_size=7, action=Discrete(5, relaxed=True), side="lone"),
    AgentSpec(name="guard", observation_size=7, action=Discrete(3), side="lone"),
    AgentSpec(name="scout_3", observation_size=7, action=Discrete(5, relaxed=True)),
    AgentSpec(name="scout_4", observation_size=7, action=Discrete(5, relaxed=True), side="lone"),
)
WORLD = "food_collection"
SIZES = [
    (333, 50),
    (16, 16),
    (1024, 64),
    *(pytest.param(*size, marks=pytest.mark.thorough) for size in [(100, 33), (48, 64), (64, 64)]),
    pytest.param(1024, 16, marks=pytest.mark.thorough),
]
LARGE = [(333, 50), (1024, 64)]
PRODUCTS = {"mm", "bmm", "addmm", "baddbmm"}
SEED = 11


@pytest.fixture(params=shipped(algorithms))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(autouse=True)
def restore_threads() -> Iterator[None]:
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def team(name: str) -> Sequence[AgentSpec]:
    """Agents whom the algorithm can train: where it wants a world, those of ``WORLD``."""
    if isinstance(algorithms.build(name), LocalAlgorithmConfig):
        return make_environment(WORLD, agents=4, copies=1).agents
    return UNEQUAL


def config(name: str, *, batch: int = 100, hidden: int = 33) -> AlgorithmConfig:
    wanted = {"batch_size": batch, "hidden": hidden, "ddpg_sides": ("lone",)}
    known = {field.name for field in fields(algorithms.get(name))}  # type: ignore[arg-type]
    params = {key: value for key, value in wanted.items() if key in known}
    return recipe_in(algorithms.build(name, **params), environment=WORLD, agents=4, params={})


def build(name: str, *, batch: int = 100, hidden: int = 33, seed: int = SEED) -> Algorithm:
    return config(name, batch=batch, hidden=hidden).make(team(name), seed=seed, device="cpu")


def layout(name: str) -> Layout:
    return Layout(
        observation_sizes=tuple(spec.observation_size for spec in team(name)),
        action_sizes=tuple(spec.action.size for spec in team(name)),
    )


def transitions(name: str, size: int, *, seed: int = 0) -> FloatArray:
    """Random rows in which agents die and are dead; none for who makes its own samples."""
    generator, where = np.random.default_rng(seed), layout(name)
    if not config(name).batch_size:
        return np.empty((0, where.row_size), np.float32)
    rows = generator.standard_normal((size, where.row_size), dtype=np.float32)
    rows[:, where.terminated] = generator.random((size, where.agents)) < 0.2
    rows[:, where.alive] = generator.random((size, where.agents)) < 0.8
    return rows


def computed(
    algorithm: Algorithm, batch: FloatArray, units: Sequence[UnitIndex], *, iteration: int = 5
) -> dict[UnitIndex, bytes]:
    return {
        unit: update.tobytes()
        for unit, update in algorithm.updates(batch, units, iteration=iteration)
    }


@pytest.mark.parametrize(("batch", "hidden"), SIZES)
def test_bits_of_a_unit_do_not_depend_on_company_order_or_threads(
    name: str, batch: int, hidden: int
) -> None:
    algorithm, rows = build(name, batch=batch, hidden=hidden), transitions(name, batch)
    torch.set_num_threads(1)
    alone = {unit: computed(algorithm, rows, [unit])[unit] for unit in range(algorithm.units)}
    generator = np.random.default_rng(batch)
    for threads in (1, 2):
        torch.set_num_threads(threads)
        for width in range(1, algorithm.units + 1):
            for _ in range(3):
                units = [int(unit) for unit in generator.permutation(algorithm.units)[:width]]
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


@pytest.mark.parametrize(("batch", "hidden"), SIZES)
def test_where_onednn_is_wanted_it_gets_every_product_of_a_unit_alone(
    name: str, batch: int, hidden: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for probe in ("_prefers_onednn", "is_float32", "is_steady"):
        monkeypatch.setattr(kernels, probe, lambda *_: True)
    algorithm, rows = build(name, batch=batch, hidden=hidden), transitions(name, batch)
    with Products() as products:
        computed(algorithm, rows, [0])
    assert all(size > 4096 for size in products.sizes)
    assert products.sizes or (batch, hidden) not in LARGE


def test_bits_do_not_depend_on_where_the_batch_lies_in_memory(name: str) -> None:
    algorithm, rows = build(name), transitions(name, 100)
    memory = np.empty(rows.size + 3, np.float32)
    shifted = memory[3:].reshape(rows.shape)
    shifted[:] = rows
    units = range(algorithm.units)
    assert computed(algorithm, shifted, units) == computed(algorithm, rows, units)


def test_bits_depend_on_the_iteration_and_the_seed(name: str) -> None:
    rows = transitions(name, 100)
    first = computed(build(name), rows, [0])
    other = build(name, seed=SEED + 1)
    for section, source in zip(other.sections, build(name).sections, strict=True):
        other.view(section.id)[:] = build(name).view(source.id)
    other.written()
    assert computed(build(name), rows, [0], iteration=6) != first
    assert computed(other, rows, [0]) != first


def test_a_unit_reads_no_section_beyond_its_needs(name: str) -> None:
    source, rows = build(name), transitions(name, 100)
    for unit in range(source.units):
        learner = build(name, seed=SEED)
        for section in learner.sections:
            needed = section.id in source.needs(unit)
            learner.view(section.id)[:] = source.view(section.id) if needed else np.nan
        learner.written()
        assert computed(learner, rows, [unit]) == computed(source, rows, [unit])


def test_sections_are_numbered_and_sized_as_their_views(name: str) -> None:
    algorithm = build(name)
    assert [section.id for section in algorithm.sections] == list(range(len(algorithm.sections)))
    assert algorithm.row_size == layout(name).row_size
    for section in algorithm.sections:
        view = algorithm.view(section.id)
        assert view.shape == (section.size,)
        assert view.dtype == np.float32
        assert view.flags.writeable


def test_dimensions_are_those_of_what_is_made(name: str) -> None:
    algorithm, dimensions = build(name), config(name).dimensions(team(name))
    assert dimensions.units == algorithm.units == len(team(name))
    assert dimensions.sections == algorithm.sections
    assert dimensions.row_size == algorithm.row_size
    assert dimensions.unit_sizes == algorithm.unit_sizes
    for unit, update in algorithm.updates(
        transitions(name, 100), range(len(team(name))), iteration=0
    ):
        assert update.shape == (dimensions.unit_sizes[unit],)
        assert dimensions.needs(unit) == algorithm.needs(unit)


def test_updates_leave_the_parameters_alone(name: str) -> None:
    algorithm = build(name)
    before = {key: value.tobytes() for key, value in algorithm.state().items()}
    computed(algorithm, transitions(name, 100), range(algorithm.units))
    assert {key: value.tobytes() for key, value in algorithm.state().items()} == before


def test_work_can_be_abandoned_at_every_cancellation_point(name: str) -> None:
    algorithm, rows = build(name), transitions(name, 100)
    whole = computed(algorithm, rows, range(algorithm.units))
    points = 0

    def count() -> None:
        nonlocal points
        points += 1

    list(algorithm.updates(rows, range(algorithm.units), iteration=5, check_cancelled=count))
    assert points >= 4
    for point in range(points):
        calls = iter(range(points))

        def abandon(point: int = point, calls: Iterator[int] = calls) -> None:
            if next(calls) == point:
                raise Cancelled

        with pytest.raises(Cancelled):
            list(
                algorithm.updates(
                    rows, range(algorithm.units), iteration=5, check_cancelled=abandon
                )
            )
    assert computed(algorithm, rows, range(algorithm.units)) == whole


def test_updates_lie_on_the_grid_and_have_one_zero(name: str) -> None:
    algorithm = build(name)
    for unit, update in algorithm.updates(
        transitions(name, 100), range(algorithm.units), iteration=0
    ):
        assert update.shape == (algorithm.unit_sizes[unit],)
        assert update.dtype == np.float32
        scaled = update.astype(np.float64) / GRID
        assert np.array_equal(scaled, np.rint(scaled))
        assert not np.signbit(update[update == 0]).any()
        assert np.any(update != 0)


def test_updates_are_not_overwritten_by_a_later_call(name: str) -> None:
    algorithm, rows = build(name), transitions(name, 100)
    kept = dict(algorithm.updates(rows, [0, 1], iteration=0))
    digests = {unit: unit_digest(update) for unit, update in kept.items()}
    computed(algorithm, transitions(name, 100, seed=1), range(algorithm.units), iteration=1)
    assert {unit: unit_digest(update) for unit, update in kept.items()} == digests


def random_updates(algorithm: Algorithm, *, seed: int) -> FloatArray:
    generator = np.random.default_rng(seed)
    updates = np.zeros((algorithm.units, max(algorithm.unit_sizes)), np.float32)
    for unit, size in enumerate(algorithm.unit_sizes):
        updates[unit, :size] = np.rint(generator.standard_normal(size) * 1000) * GRID
    return updates


def test_equal_updates_give_equal_states_on_any_number_of_threads(name: str) -> None:
    states = []
    for threads in (1, 2, 1):
        torch.set_num_threads(threads)
        algorithm = build(name)
        for seed in range(3):
            algorithm.apply(random_updates(algorithm, seed=seed))
        states.append({key: value.tobytes() for key, value in algorithm.state().items()})
    assert states[0] == states[1] == states[2]


def test_a_restored_state_goes_on_as_the_original(name: str) -> None:
    original = build(name)
    original.apply(random_updates(original, seed=0))
    saved = original.state()
    restored = build(name, seed=SEED)
    original.apply(random_updates(original, seed=1))
    restored.load(saved)
    restored.apply(random_updates(restored, seed=1))
    for section in original.sections:
        assert np.array_equal(original.view(section.id), restored.view(section.id))
    again = restored.state()
    assert all(np.array_equal(value, again[key]) for key, value in original.state().items())


def test_a_state_that_does_not_fit_is_refused(name: str) -> None:
    algorithm = build(name)
    state = dict(algorithm.state())
    key = next(iter(state))
    missing = {other: value for other, value in state.items() if other != key}
    with pytest.raises(CheckpointUnusable, match=key):
        algorithm.load(missing)
    with pytest.raises(CheckpointUnusable, match=key):
        algorithm.load({**state, key: np.zeros(3, np.float32)})


def test_actions_are_keyed_and_fit_their_specifications(name: str) -> None:
    algorithm, where = build(name), layout(name)
    generator = np.random.default_rng(0)
    shape = (4, sum(where.observation_sizes))
    observation = generator.standard_normal(shape, dtype=np.float32)
    alive = generator.random((4, len(team(name)))) < 0.7
    action = algorithm.act(observation, iteration=3, step=2, alive=alive)
    again = algorithm.act(observation, iteration=3, step=2, alive=alive)
    other = algorithm.act(observation, iteration=3, step=3, alive=alive)
    assert np.array_equal(action, again)
    assert not np.array_equal(action, other)
    for agent, spec in enumerate(team(name)):
        own = action[:, where.action_of(agent)]
        assert not own[~alive[:, agent]].any()
        for taken in (
            own[alive[:, agent]],
            algorithm.act_greedily(observation)[:, where.action_of(agent)],
        ):
            if isinstance(spec.action, Continuous):
                assert (taken >= spec.action.low).all()
                assert (taken <= spec.action.high).all()
            else:
                np.testing.assert_allclose(taken.sum(1), 1.0, atol=1e-6)
                assert spec.action.relaxed or set(np.unique(taken)) <= {0.0, 1.0}


def test_the_fingerprint_names_torch_and_the_threads(name: str) -> None:
    algorithm = build(name)
    torch.set_num_threads(1)
    one = algorithm.fingerprint()
    assert torch.__version__ in one
    assert algorithm.fingerprint() == one
    torch.set_num_threads(2)
    assert algorithm.fingerprint() != one


FINGERPRINTS = f"""
import torch
from fullrank.algorithms import algorithms, recipe_in
from fullrank.environments import make_environment

torch.set_num_threads(1)
for name in {shipped(algorithms)}:
    recipe = recipe_in(algorithms.build(name), environment={WORLD!r}, agents=4, params={{}})
    agents = make_environment({WORLD!r}, agents=4, copies=1).agents
    print(name, recipe.make(agents, seed=0, device="cpu").fingerprint())
"""


@pytest.fixture(scope="module", params=["0", "1"])
def printed_elsewhere(request: pytest.FixtureRequest) -> list[str]:
    """Names and fingerprints as another process prints them, with a hash seed of its own."""
    environment = {**os.environ, "PYTHONHASHSEED": request.param}
    command = [sys.executable, "-c", FINGERPRINTS]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return ran.stdout.splitlines()


def test_the_fingerprint_is_the_same_in_another_process(
    name: str, printed_elsewhere: list[str]
) -> None:
    torch.set_num_threads(1)
    recipe = recipe_in(algorithms.build(name), environment=WORLD, agents=4, params={})
    agents = make_environment(WORLD, agents=4, copies=1).agents
    here = recipe.make(agents, seed=0, device="cpu").fingerprint()
    assert f"{name} {here}" in printed_elsewhere


def test_a_policy_s_layers_act_as_the_algorithm_does(name: str) -> None:
    algorithm = build(name)
    sizes = [spec.observation_size for spec in team(name)]
    joint = np.random.default_rng(3).standard_normal((200, sum(sizes)), dtype=np.float32)
    seen = np.split(joint, np.cumsum(sizes)[:-1], axis=1)
    taken = np.split(
        algorithm.act_greedily(joint), np.cumsum(layout(name).action_sizes)[:-1], axis=1
    )
    for unit, spec in enumerate(team(name)):
        outputs = Policy(agent=spec, layers=algorithm.policy(unit)).outputs(seen[unit])
        if isinstance(spec.action, Discrete):
            assert (outputs.argmax(1) == taken[unit].argmax(1)).all()
        else:
            np.testing.assert_allclose(outputs, taken[unit], atol=1e-5)
