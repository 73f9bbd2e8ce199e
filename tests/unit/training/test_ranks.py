"""Ranks that divide an update commit the bits of one process; their wire is in memory here."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from multiprocessing.pool import ThreadPool
from threading import Barrier
from typing import Any, TypeVar

import numpy as np
import pytest
from tests.conformance.paths import take_paths
from torch import Tensor

from fullrank.algorithms import Algorithm, EnvironmentSpec, Problem, algorithms
from fullrank.common.errors import ConfigError
from fullrank.common.types import FloatArray
from fullrank.environments import AgentSpec, Discrete
from fullrank.networks import adam
from fullrank.training.centralised import Centralised
from fullrank.training.ranks import Rank, Split, divide, received_bytes

SEED, ITERATIONS, BATCH = 3, 3, 22
AGENTS = tuple(
    AgentSpec(
        name=f"agent_{agent}",
        observation_size=6 + 3 * (agent == 2),
        action=Discrete(5, relaxed=True),
        side="lone" if agent == 3 else "team",
    )
    for agent in range(5)
)
ENVIRONMENT = EnvironmentSpec(agents=AGENTS)
Result = TypeVar("Result")


class Memory:
    """Messages that the ranks of one process leave for one another."""

    def __init__(self, ranks: int) -> None:
        self.barrier, self.values = Barrier(ranks), dict[int, Tensor]()


class MemoryWire:
    """A rank's wire to the others over shared memory; adds in the order given."""

    def __init__(self, rank: int, memory: Memory, order: list[int]) -> None:
        self.rank, self._memory, self._order, self.received_bytes = rank, memory, order, 0.0

    def add(self, values: Tensor) -> None:
        ranks = len(self._order)
        self._memory.values[self.rank] = values.clone()
        self._memory.barrier.wait()
        values.zero_()
        for rank in self._order:
            values += self._memory.values[rank]
        self._memory.barrier.wait()
        self.received_bytes += 2 * (ranks - 1) / ranks * values.nbytes

    def send(self, values: Tensor, *, source: int) -> None:
        if source == self.rank:
            self._memory.values[source] = values.clone()
        self._memory.barrier.wait()
        values.copy_(self._memory.values[source])
        self._memory.barrier.wait()
        self.received_bytes += values.nbytes * (source != self.rank)


def built(name: str = "maddpg", *, parts: int = 4, layers: int = 2) -> Algorithm:
    config = algorithms.build(
        name,
        batch_size=BATCH,
        hidden=17,
        micro_batches=parts,
        hidden_layers=layers,
        ddpg_sides=("lone",),
    )
    return config.make(ENVIRONMENT, seed=SEED, device="cpu")


def minibatch(iteration: int) -> FloatArray:
    layout, generator = ENVIRONMENT.layout, np.random.default_rng(iteration)
    rows = generator.standard_normal((BATCH, layout.row_size), dtype=np.float32)
    rows[:, layout.terminated] = generator.random((BATCH, layout.agents)) < 0.2
    rows[:, layout.alive] = generator.random((BATCH, layout.agents)) < 0.8
    return rows


def alone(make: Callable[[], Algorithm]) -> tuple[list[dict[int, bytes]], dict[str, bytes]]:
    """Digests of the targets of each iteration, and the final state, of one process."""
    algorithm = make()
    compute = Centralised(algorithm.problem, algorithm.gradients, seed=SEED).compute
    digests = []
    for iteration in range(ITERATIONS):
        targets = compute(minibatch(iteration), iteration=iteration)
        algorithm.optimiser.step(targets.updates)
        digests.append(dict(enumerate(targets.digests)))
    return digests, {name: part.tobytes() for name, part in algorithm.optimiser.state().items()}


def together(
    make: Callable[[], Algorithm],
    ranks: int,
    split: Split,
    *,
    work: Callable[[Rank], Result],
) -> tuple[list[Result], list[MemoryWire], Problem]:
    """Let every rank of a group do some work, on a thread each."""
    members, memory = [make() for _ in range(ranks)], Memory(ranks)
    division = divide(members[0].problem, ranks, split)
    orders = [list(range(ranks))[rank:] + list(range(rank)) for rank in range(ranks)]
    wires = [MemoryWire(rank, memory, order) for rank, order in enumerate(orders)]
    group = [
        Rank(algorithm, division, wire, seed=SEED)
        for algorithm, wire in zip(members, wires, strict=True)
    ]
    with ThreadPool(ranks) as pool:
        return pool.map(work, group, chunksize=1), wires, members[0].problem


def train(rank: Rank) -> tuple[list[dict[int, bytes]], dict[str, bytes]]:
    digests = []
    for iteration in range(ITERATIONS):
        digests.append(dict(rank.compute(minibatch(iteration), iteration=iteration).digests))
        rank.step()
    return digests, {name: part.tobytes() for name, part in rank.state().items()}


def check_commits(
    outcomes: list[tuple[list[dict[int, bytes]], dict[str, bytes]]],
    digests: list[dict[int, bytes]],
    state: dict[str, bytes],
) -> None:
    """Check that ranks together have the digests and the final state of one process."""
    for iteration, expected in enumerate(digests):
        found = [shares[iteration] for shares, _ in outcomes]
        assert {target: each for share in found for target, each in share.items()} == expected
    assert {name: part for _, parts in outcomes for name, part in parts.items()} == state


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("split", ["agents", "transitions"])
@pytest.mark.parametrize(
    ("name", "parts", "layers"),
    [
        ("maddpg", 4, 2),
        pytest.param("mfac", 5, 2, marks=pytest.mark.thorough),
        pytest.param("maddpg", 4, 1, marks=pytest.mark.thorough),
    ],
)
def test_ranks_commit_the_bits_of_one_process_in_any_order_of_addition(
    name: str, parts: int, layers: int, split: Split, ranks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The targets of other agents' networks are moved in the same blocks."""
    monkeypatch.setattr(adam, "BLOCK", 301)
    make = partial(built, name, parts=parts, layers=layers)
    digests, state = alone(make)
    outcomes, _, _ = together(make, ranks, split, work=train)
    check_commits(outcomes, digests, state)


@pytest.mark.parametrize("split", ["agents", "transitions"])
def test_ranks_whose_units_stay_on_their_device_commit_the_bits_of_those_in_host_memory(
    split: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    digests, state = alone(built)
    take_paths(monkeypatch, of_cuda=True)
    outcomes, _, _ = together(built, 2, split, work=train)
    check_commits(outcomes, digests, state)


def test_whole_minibatches_are_divided_by_agents() -> None:
    make = partial(built, parts=1)
    outcomes, _, problem = together(make, 2, "agents", work=train)
    digests, state = alone(make)
    assert problem.target is None
    assert [one | other for one, other in zip(*(d for d, _ in outcomes), strict=True)] == digests
    assert {name: part for _, parts in outcomes for name, part in parts.items()} == state


@pytest.mark.parametrize("split", ["agents", "transitions"])
def test_a_group_goes_on_from_its_state_and_from_updates_that_were_stored(split: Split) -> None:
    digests, state = alone(built)
    stored = built()
    compute = Centralised(stored.problem, stored.gradients, seed=SEED).compute
    updates = compute(minibatch(0), iteration=0).updates
    stored.optimiser.step(updates)
    begun: dict[str, Any] = dict(stored.optimiser.state())

    def resume(rank: Rank, *, loads: bool) -> tuple[list[dict[int, bytes]], dict[str, bytes]]:
        if loads:
            rank.load(begun)
        else:
            rank.step(np.asarray(updates))
        later = []
        for iteration in range(1, ITERATIONS):
            later.append(dict(rank.compute(minibatch(iteration), iteration=iteration).digests))
            rank.step()
        return later, {name: part.tobytes() for name, part in rank.state().items()}

    for loads in (True, False):
        outcomes, _, _ = together(built, 2, split, work=partial(resume, loads=loads))
        assert {name: part for _, parts in outcomes for name, part in parts.items()} == state
        last = {target: each for later, _ in outcomes for target, each in later[-1].items()}
        assert last == digests[-1]


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("split", ["agents", "transitions"])
def test_the_ranks_receive_the_bytes_of_the_formula(split: Split, ranks: int) -> None:
    _, wires, problem = together(built, ranks, split, work=train)
    moved = sum(wire.received_bytes for wire in wires) / ranks / ITERATIONS
    assert moved == received_bytes(problem, ranks, split)


def test_the_split_by_agents_moves_five_times_less_at_32_agents_and_width_1024() -> None:
    """Rover Tower's sizes of multi-GPU MADDPG: 880 entries of joint input."""
    agents = tuple(
        AgentSpec(name=f"{agent}", observation_size=22, action=Discrete(5)) for agent in range(32)
    )
    config = algorithms.build("maddpg", hidden=1024, micro_batches=2)
    problem = config.problem(replace(ENVIRONMENT, agents=agents))
    ours, theirs = (received_bytes(problem, 2, split) for split in ("agents", "transitions"))
    assert theirs / ours > 10
    assert received_bytes(problem, 2, "transitions", exact=False) / ours > 5


@pytest.mark.parametrize(
    ("ranks", "split", "parts", "line"),
    [
        (
            6,
            "agents",
            4,
            "ranks.count = 6 exceeds the 5 agents, which the ranks divide: use fewer ranks",
        ),
        *(
            (
                parts + 1,
                "transitions",
                parts,
                f"ranks.count = {parts + 1} exceeds algorithm.micro_batches = {parts}, which the "
                "ranks divide; raise it, or use ranks.split = 'agents'",
            )
            for parts in (1, 2)
        ),
    ],
)
def test_more_ranks_than_there_is_to_divide_are_refused_in_one_line(
    ranks: int, split: Split, parts: int, line: str
) -> None:
    with pytest.raises(ConfigError) as error:
        divide(built(parts=parts).problem, ranks, split)
    assert str(error.value) == line


def test_samples_of_learners_own_are_not_divided() -> None:
    problem = built().problem
    independent = replace(problem, data=replace(problem.data, kind="independent"))
    with pytest.raises(ConfigError, match="ranks divide exact updates"):
        divide(independent, 2, "agents")


def test_agents_that_share_their_networks_are_not_divided() -> None:
    problem = algorithms.build("qmix").problem(ENVIRONMENT)
    with pytest.raises(ConfigError, match="agents share networks; use 'transitions'"):
        divide(problem, 2, "agents")
    assert divide(problem, 2, "transitions").summed
