"""Laws of all algorithms, and what those with hand-written kernels keep beyond them."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
import torch

from fullrank.algorithms.action_values import ActionValues
from fullrank.algorithms.optimiser import row_norms
from fullrank.algorithms.problem import Unit
from fullrank.codes import codes
from fullrank.common.errors import Cancelled
from fullrank.conformance import AlgorithmLaws
from fullrank.conformance.algorithms import check_company
from fullrank.conformance.subjects import SEED, Subject, computed, random_updates, units_of
from fullrank.environments import AgentSpec
from fullrank.networks.fused import kernels
from fullrank.networks.fused.maddpg import FusedMADDPG

from .algorithm_cases import (
    FEW_CODES,
    PARTS,
    build,
    by_autograd,
    cases,
    class_of,
    collects,
    config,
    draws,
    narrow_team,
    parameters,
    plays_episodes,
    spec_of,
    subject,
    team,
    transitions,
)
from .paths import Watched

PRODUCTS = {"mm", "bmm", "addmm", "baddbmm"}


class TestAlgorithms(AlgorithmLaws):
    """The laws of all cases; each is trained with a code of single units and with one of sums.

    More codes show no more: a round knows an algorithm by its number of units, their sizes and the
    target alone (``Problem``), and by updates on the grid, which is a law of algorithms. Of such
    updates each code has the law that any decodable set gives the bits of the target, and trains
    one algorithm of single units (``test_exactness.py``) and one of sums (``test_value_runs.py``).
    All codes with all algorithms are thorough.
    """

    @pytest.fixture(params=parameters())
    def subject(self, request: pytest.FixtureRequest) -> Subject:
        return subject(request.param)

    @pytest.fixture(
        params=[FEW_CODES, pytest.param((*codes,), marks=pytest.mark.thorough)],
        ids=["two codes", "all codes"],
    )
    def tried(self, request: pytest.FixtureRequest) -> Sequence[str]:
        return tuple(request.param)


def written_by_hand(name: str) -> bool:
    """Return whether kernels are written by hand, whose bits no number of threads changes."""
    return not (by_autograd(name) or plays_episodes(name))


@pytest.mark.parametrize("name", cases(written_by_hand))
@pytest.mark.parametrize(("batch", "hidden"), [(16, 16), (333, 50)])
def test_bits_of_a_hand_written_unit_do_not_depend_on_threads(
    name: str, batch: int, hidden: int
) -> None:
    algorithm, rows = build(name, batch=batch, hidden=hidden), transitions(name, batch)
    found = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        found.append(computed(algorithm, rows, units_of(algorithm)))
    assert found[0] == found[1]


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
    one, two = check_company(algorithm, transitions(name, 100, agents=agents))
    assert one == two or not written_by_hand(name)


class Products(Watched):  # type: ignore[no-untyped-call]
    """Multiplications of one matrix in each product that may go to oneDNN."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []

    def compute(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        kind = func._schema.name.removeprefix("aten::").removesuffix("_")
        if kind in PRODUCTS and torch.get_float32_matmul_precision() != "highest":
            left, right = args[-2:]
            self.sizes.append(left.shape[-2] * left.shape[-1] * right.shape[-1])
        return func(*args, **kwargs)


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


def test_units_are_parts_of_the_minibatch_of_groups_or_of_the_team(name: str) -> None:
    algorithm, problem = build(name), config(name).problem(spec_of(name))
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


def test_every_step_tells_the_learning_rate_and_the_norm_of_each_gradient(name: str) -> None:
    algorithm = build(name)
    updates = random_updates(algorithm, seed=0)
    statistics = algorithm.optimiser.step(updates)
    assert statistics["learning_rate"] == getattr(config(name), "learning_rate")  # noqa: B009
    several = [f"grad_norm/{group}" for group in range(len(updates))]
    named = several if several[0] in statistics else ["grad_norm"]
    assert len(named) == len(updates)
    told, problem = [statistics[norm] for norm in named], algorithm.problem
    if not plays_episodes(name) and problem.target is None:
        ends = [size - problem.statistics for size in problem.unit_sizes]
        gradients = [update[:end] for update, end in zip(updates, ends, strict=True)]
        assert told == pytest.approx([*map(np.linalg.norm, gradients)], rel=1e-5)
    assert min(told) > 0.0


def test_a_norm_depends_neither_on_other_rows_nor_on_threads() -> None:
    rows = torch.randn((3, 100_001), generator=torch.Generator().manual_seed(0))
    found = set[tuple[float, ...]]()
    for threads in (1, 2):
        torch.set_num_threads(threads)
        found.add(tuple(row_norms(rows).tolist()))
        found.add(tuple(row_norms(row[None]).item() for row in rows))
    assert len(found) == 1


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
