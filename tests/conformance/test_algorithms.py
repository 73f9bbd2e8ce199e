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

from fullrank.algorithms import Algorithm, AlgorithmConfig, World, algorithms, world_of
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


READABLE = "maddpg by autograd"
"""The algorithm as stated by its losses, with another depth than the hand-written kernel."""


@pytest.fixture(params=[*shipped(algorithms), READABLE])
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(autouse=True)
def restore_threads() -> Iterator[None]:
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def team(name: str) -> Sequence[AgentSpec]:
    """Agents that the algorithm can train; those of ``WORLD`` if learners collect."""
    if config(name).data_mode().kind == "shared":
        return UNEQUAL
    return make_environment(WORLD, agents=4, copies=1).agents


def world(name: str) -> World:
    return world_of(team(name), environment=WORLD, count=4, params={})


def config(name: str, *, batch: int = 100, hidden: int = 33) -> AlgorithmConfig:
    registered = "maddpg" if name == READABLE else name
    wanted: dict[str, Any] = {"batch_size": batch, "hidden": hidden, "ddpg_sides": ("lone",)}
    if name == READABLE:
        wanted["hidden_layers"] = 1
    known = {field.name for field in fields(algorithms.get(registered))}  # type: ignore[arg-type]
    params = {key: value for key, value in wanted.items() if key in known}
    return algorithms.build(registered, **params)


def build(name: str, *, batch: int = 100, hidden: int = 33, seed: int = SEED) -> Algorithm:
    return config(name, batch=batch, hidden=hidden).make(world(name), seed=seed, device="cpu")


def units_of(algorithm: Algorithm) -> range:
    return range(len(algorithm.problem.units))


def layout(name: str) -> Layout:
    return Layout(
        observation_sizes=tuple(spec.observation_size for spec in team(name)),
        action_sizes=tuple(spec.action.size for spec in team(name)),
    )


def transitions(name: str, size: int, *, seed: int = 0) -> FloatArray:
    """Random rows in which agents die or are dead; none if learners collect."""
    generator, where = np.random.default_rng(seed), layout(name)
    if not config(name).data_mode().batch_size:
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
        for unit, update in algorithm.gradients.compute(batch, units, iteration=iteration)
    }


@pytest.mark.parametrize(("batch", "hidden"), SIZES)
def test_bits_of_a_unit_do_not_depend_on_company_order_or_threads(
    name: str, batch: int, hidden: int
) -> None:
    algorithm, rows = build(name, batch=batch, hidden=hidden), transitions(name, batch)
    generator = np.random.default_rng(batch)
    for threads in (1, 2):
        torch.set_num_threads(threads)
        if threads == 1 or name == READABLE:  # autograd's bits depend on the number of threads
            alone = {unit: computed(algorithm, rows, [unit])[unit] for unit in units_of(algorithm)}
        for width in range(1, len(algorithm.problem.units) + 1):
            for _ in range(3):
                units = [
                    int(unit)
                    for unit in generator.permutation(len(algorithm.problem.units))[:width]
                ]
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
    assert products.sizes or (batch, hidden) not in LARGE or name == READABLE


def test_bits_do_not_depend_on_where_the_batch_lies_in_memory(name: str) -> None:
    algorithm, rows = build(name), transitions(name, 100)
    memory = np.empty(rows.size + 3, np.float32)
    shifted = memory[3:].reshape(rows.shape)
    shifted[:] = rows
    units = units_of(algorithm)
    assert computed(algorithm, shifted, units) == computed(algorithm, rows, units)


def test_bits_depend_on_the_iteration_and_the_seed(name: str) -> None:
    rows = transitions(name, 100)
    first = computed(build(name), rows, [0])
    other = build(name, seed=SEED + 1)
    for section in other.problem.sections:
        other.parameters.view(section.id)[:] = build(name).parameters.view(section.id)
    other.parameters.written()
    assert computed(build(name), rows, [0], iteration=6) != first
    assert computed(other, rows, [0]) != first


def test_a_unit_reads_no_section_beyond_its_needs(name: str) -> None:
    source, rows = build(name), transitions(name, 100)
    for unit in units_of(source):
        learner = build(name, seed=SEED)
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
    assert algorithm.problem.row_size == layout(name).row_size
    for section in algorithm.problem.sections:
        view = algorithm.parameters.view(section.id)
        assert view.shape == (section.size,)
        assert view.dtype == np.float32
        assert view.flags.writeable


def test_the_problem_is_known_before_anything_is_made(name: str) -> None:
    algorithm, problem = build(name), config(name).problem(world(name))
    assert problem == algorithm.problem
    assert [unit.agent for unit in problem.units] == list(range(len(team(name))))
    for unit, update in algorithm.gradients.compute(
        transitions(name, 100), range(len(team(name))), iteration=0
    ):
        assert update.shape == (problem.unit_sizes[unit],)


def test_updates_leave_the_parameters_alone(name: str) -> None:
    algorithm = build(name)
    before = {key: value.tobytes() for key, value in algorithm.optimiser.state().items()}
    computed(algorithm, transitions(name, 100), units_of(algorithm))
    assert {key: value.tobytes() for key, value in algorithm.optimiser.state().items()} == before


def test_work_can_be_abandoned_at_every_cancellation_point(name: str) -> None:
    algorithm, rows = build(name), transitions(name, 100)
    whole = computed(algorithm, rows, units_of(algorithm))
    points = 0

    def count() -> None:
        nonlocal points
        points += 1

    list(algorithm.gradients.compute(rows, units_of(algorithm), iteration=5, check_cancelled=count))
    assert points >= 4
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
    kept = dict(algorithm.gradients.compute(rows, [0, 1], iteration=0))
    digests = {unit: unit_digest(update) for unit, update in kept.items()}
    computed(algorithm, transitions(name, 100, seed=1), units_of(algorithm), iteration=1)
    assert {unit: unit_digest(update) for unit, update in kept.items()} == digests


def random_updates(algorithm: Algorithm, *, seed: int) -> FloatArray:
    generator = np.random.default_rng(seed)
    updates = np.zeros((len(algorithm.problem.units), algorithm.problem.vector_size), np.float32)
    for unit, size in enumerate(algorithm.problem.unit_sizes):
        updates[unit, :size] = np.rint(generator.standard_normal(size) * 1000) * GRID
    return updates


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


def test_actions_are_keyed_and_fit_their_specifications(name: str) -> None:
    algorithm, where = build(name), layout(name)
    generator = np.random.default_rng(0)
    shape = (4, sum(where.observation_sizes))
    observation = generator.standard_normal(shape, dtype=np.float32)
    alive = generator.random((4, len(team(name)))) < 0.7
    actor, memory = algorithm.actor, algorithm.actor.memory(4)
    action, _ = actor.act(observation, memory, iteration=3, step=2, alive=alive)
    again, _ = actor.act(observation, memory, iteration=3, step=2, alive=alive)
    other, _ = actor.act(observation, memory, iteration=3, step=3, alive=alive)
    greedy, _ = actor.act_greedily(observation, memory)
    assert np.array_equal(action, again)
    assert not np.array_equal(action, other)
    for agent, spec in enumerate(team(name)):
        own = action[:, where.action_of(agent)]
        assert not own[~alive[:, agent]].any()
        for taken in (
            own[alive[:, agent]],
            greedy[:, where.action_of(agent)],
        ):
            if isinstance(spec.action, Continuous):
                assert (taken >= spec.action.low).all()
                assert (taken <= spec.action.high).all()
            else:
                np.testing.assert_allclose(taken.sum(1), 1.0, atol=1e-6)
                assert spec.action.relaxed or set(np.unique(taken)) <= {0.0, 1.0}


def test_actions_that_are_not_available_are_never_taken(name: str) -> None:
    algorithm, where = build(name), layout(name)
    generator = np.random.default_rng(1)
    observation = generator.standard_normal((64, sum(where.observation_sizes)), dtype=np.float32)
    available = generator.random((64, sum(where.action_sizes))) < 0.5
    for agent in range(where.agents):
        available[:, where.action_of(agent).start] = True  # at least one action is available
    actor, alive = algorithm.actor, np.ones((64, where.agents), bool)
    explored, _ = actor.act(
        observation, actor.memory(64), iteration=0, step=0, alive=alive, available=available
    )
    greedy, _ = actor.act_greedily(observation, actor.memory(64), available=available)
    for agent, spec in enumerate(team(name)):
        own = where.action_of(agent)
        if isinstance(spec.action, Discrete):
            assert not explored[:, own][~available[:, own]].any()
            assert not greedy[:, own][~available[:, own]].any()


def test_the_fingerprint_names_torch_and_the_threads(name: str) -> None:
    algorithm = build(name)
    torch.set_num_threads(1)
    one = algorithm.gradients.fingerprint()
    assert torch.__version__ in one
    assert algorithm.gradients.fingerprint() == one
    torch.set_num_threads(2)
    assert algorithm.gradients.fingerprint() != one


FINGERPRINTS = f"""
import torch
from fullrank.algorithms import algorithms, world_of
from fullrank.environments import make_environment

torch.set_num_threads(1)
agents = make_environment({WORLD!r}, agents=4, copies=1).agents
world = world_of(agents, environment={WORLD!r}, count=4, params={{}})
for name in {shipped(algorithms)}:
    algorithm = algorithms.build(name).make(world, seed=0, device="cpu")
    print(name, algorithm.gradients.fingerprint())
"""


@pytest.fixture(scope="module", params=["0", "1"])
def printed_elsewhere(request: pytest.FixtureRequest) -> list[str]:
    """Names and fingerprints as printed by another process with its own hash seed."""
    environment = {**os.environ, "PYTHONHASHSEED": request.param}
    command = [sys.executable, "-c", FINGERPRINTS]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return ran.stdout.splitlines()


@pytest.mark.parametrize("registered", shipped(algorithms))
def test_the_fingerprint_is_the_same_in_another_process(
    registered: str, printed_elsewhere: list[str]
) -> None:
    torch.set_num_threads(1)
    agents = make_environment(WORLD, agents=4, copies=1).agents
    here = algorithms.build(registered).make(
        world_of(agents, environment=WORLD, count=4, params={}), seed=0, device="cpu"
    )
    assert f"{registered} {here.gradients.fingerprint()}" in printed_elsewhere


def test_a_policy_s_layers_act_as_the_algorithm_does(name: str) -> None:
    algorithm = build(name)
    sizes = [spec.observation_size for spec in team(name)]
    joint = np.random.default_rng(3).standard_normal((200, sum(sizes)), dtype=np.float32)
    seen = np.split(joint, np.cumsum(sizes)[:-1], axis=1)
    greedy, _ = algorithm.actor.act_greedily(joint, algorithm.actor.memory(200))
    taken = np.split(greedy, np.cumsum(layout(name).action_sizes)[:-1], axis=1)
    for unit, spec in enumerate(team(name)):
        outputs = Policy(agent=spec, layers=algorithm.actor.policy(unit)).outputs(seen[unit])
        if isinstance(spec.action, Discrete):
            assert (outputs.argmax(1) == taken[unit].argmax(1)).all()
        else:
            np.testing.assert_allclose(outputs, taken[unit], atol=1e-5)
