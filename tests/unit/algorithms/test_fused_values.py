"""Hand-written passes of value-based teams against the stated loss, and the rules of their bits."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.conformance.paths import take_paths
from tests.conformance.recorded_graphs import record_graphs

from fullrank.algorithms import Algorithm, EnvironmentSpec, fused_values
from fullrank.algorithms.autograd import AutogradGradients
from fullrank.algorithms.fused_values import FusedValueGradients
from fullrank.algorithms.iql import IQL
from fullrank.algorithms.qmix import QMIX
from fullrank.algorithms.trajectories import (
    ENTRIES,
    Trajectories,
    padded,
    shares_by_unit,
    shares_of,
)
from fullrank.algorithms.values import ValueLearner
from fullrank.algorithms.vdn import VDN
from fullrank.common.types import FloatArray
from fullrank.common.updates import snap
from fullrank.environments import AgentSpec, Discrete
from fullrank.networks.fused import products, recurrent
from fullrank.networks.fused.products import PackedArray, Packing, places_of, widen
from fullrank.networks.modules import perceptron
from fullrank.replay.episodes import NO_ACTION, EpisodeLayout

ENVIRONMENT = EnvironmentSpec(
    agents=tuple(
        AgentSpec(name=f"agent_{i}", observation_size=7, action=Discrete(5)) for i in range(3)
    ),
    state_size=11,
)
LENGTHS = [3, 40, 16, 17, 31, 5]
"""Steps of the episodes: within a chunk, a whole one, one more, and several."""
LERP = lambda x: torch.lerp(x, 0.7 * x, 0.3 * x)  # noqa: E731
SLOPE = lambda x: torch.ops.aten.sigmoid_backward(x, 0.3 * x)  # noqa: E731
KINDS: dict[str, Callable[..., ValueLearner]] = {"qmix": QMIX, "vdn": VDN, "iql": IQL}


def config(name: str, **params: Any) -> ValueLearner:
    return KINDS[name](**{"batch_size": 6, "micro_batches": 3, "hidden": 20, **params})


def make(built: ValueLearner) -> Algorithm:
    """An algorithm whose biases are not zero and whose target networks differ."""
    algorithm, generator = built.make(ENVIRONMENT, seed=0, device="cpu"), np.random.default_rng(1)
    for section in algorithm.problem.sections:
        view = algorithm.parameters.view(section.id)
        view += generator.normal(scale=0.1, size=view.shape).astype(np.float32)
    algorithm.parameters.written()
    return algorithm


def rows_of(algorithm: Algorithm, lengths: list[int]) -> FloatArray:
    """Episodes in which agents may not choose every action, and one cannot act at times."""
    layout, generator = algorithm.problem.episodes, np.random.default_rng(0)
    assert isinstance(layout, EpisodeLayout)
    ends = np.cumsum(np.array(lengths) + 1) - 1
    rows = generator.standard_normal((int(ends[-1]) + 1, layout.row_size), dtype=np.float32)
    rows[:, layout.available] = generator.random((len(rows), 15)) < 0.7
    rows[:, layout.action] = generator.integers(0, 5, (len(rows), 3))
    rows[1::3, layout.action.start] = NO_ACTION
    rows[:, layout.terminated] = rows[:, layout.length] = 0.0
    rows[ends, layout.length] = lengths
    rows[ends[:3] - 1, layout.terminated] = 1.0
    return rows


def updates(algorithm: Algorithm, rows: FloatArray, units: list[int]) -> Mapping[int, FloatArray]:
    return dict(algorithm.gradients.compute(rows, units, iteration=0))


@pytest.mark.parametrize(
    ("name", "params"),
    [
        *((name, {}) for name in KINDS),
        *((name, {"double": False, "trace": 0.6, "micro_batches": 4}) for name in KINDS),
        ("qmix", {"hypernet_layers": 1, "mixing": 5, "micro_batches": 1}),
        ("qmix", {"last_action": False, "hypernet": 9, "hidden": 1}),
        ("iql", {"last_action": False, "identity": False, "batch_size": 5}),
    ],
)
def test_the_hand_written_passes_compute_the_loss_that_the_algorithm_states(
    name: str, params: dict[str, Any]
) -> None:
    built = config(name, **params)
    algorithm = make(built)
    assert isinstance(algorithm.gradients, FusedValueGradients)
    rows = rows_of(algorithm, LENGTHS[: built.batch_size])
    units = list(range(built.micro_batches))
    stated = built.readable(ENVIRONMENT, algorithm.gradients._nets, torch.device("cpu"))
    fused = updates(algorithm, rows, units)
    for unit, expected in stated.compute(rows, units, iteration=0):
        gradient, statistics = np.split(expected, [-ENTRIES.size])
        scale = np.abs(gradient).max()
        np.testing.assert_allclose(
            fused[unit][: -ENTRIES.size], gradient, rtol=0, atol=2e-6 * scale
        )
        assert ENTRIES.sums(fused[unit][-ENTRIES.size :]) == pytest.approx(
            ENTRIES.sums(statistics), rel=1e-4, abs=1e-6
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Mean(VDN):
    """A team of one's own, which mixes otherwise."""

    def mix(self, nets: Any, values: torch.Tensor, state: Any, *, target: bool) -> torch.Tensor:
        return values.mean(2, keepdim=True)


def test_teams_that_mix_otherwise_and_other_networks_learn_by_autograd() -> None:
    for built in (Mean(), VDN(recurrent=False), QMIX(layer_norm=True)):
        gradients = built.make(ENVIRONMENT, seed=0, device="cpu").gradients
        assert isinstance(gradients, AutogradGradients)


@given(
    scale=st.floats(-12.0, 4.0),
    units=st.integers(1, 8),
    seed=st.integers(0, 2**32 - 1),
)
def test_statistics_of_any_size_survive_the_grid_and_the_sum_of_units(
    scale: float, units: int, seed: int
) -> None:
    value = torch.randn((5, 2, 1), generator=torch.Generator().manual_seed(seed)) * 2.0**scale
    expected, valid = value.square() - 0.5, torch.ones(5, 2)
    parts = (value.numpy(), expected.numpy(), valid.numpy())
    share = snap(ENTRIES.of(shares_of(*parts, steps=10 * units, agents=3)))
    assert np.abs(share).max() <= 0.5
    statistics = ENTRIES.sums((share.astype(float) * units).astype(np.float32))
    own, aim = value.double(), expected.double()
    assert statistics == pytest.approx(
        {
            "loss": float((aim - own).square().mean()),
            "td_error_abs": float((aim - own).abs().mean()),
            "q_taken_mean": float(own.mean()) / 3,
            "target_mean": float(aim.mean()) / 3,
        },
        rel=1e-6,
        abs=units * 2.0**-46,
    )


def test_units_computed_in_several_calls_for_lack_of_memory_keep_their_bits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    algorithm = make(config("qmix", micro_batches=6))
    rows = rows_of(algorithm, LENGTHS)
    whole = updates(algorithm, rows, [*range(6)])
    monkeypatch.setattr(fused_values, "MOST_ENTRIES", 1)
    split = updates(make(config("qmix", micro_batches=6)), rows, [*range(6)])
    assert all(whole[unit].tobytes() == split[unit].tobytes() for unit in range(6))


def test_one_product_of_all_rows_is_used_only_where_it_gives_the_bits_of_separate_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    algorithm = make(config("qmix"))
    rows = rows_of(algorithm, LENGTHS)
    chosen = updates(algorithm, rows, [0, 1, 2])
    monkeypatch.setattr(products, "is_steady", lambda *_, **__: False)
    apart = updates(algorithm, rows, [0, 1, 2])
    assert all(chosen[unit].tobytes() == apart[unit].tobytes() for unit in range(3))


@pytest.mark.parametrize("beta", [0.0, 1.0])
@pytest.mark.parametrize("steps", [1, 4])
@pytest.mark.parametrize(("rows", "depth", "outputs"), [(12, 64, 192), (3, 49, 144), (1, 16, 16)])
def test_products_of_rows_do_not_depend_on_the_number_of_units(
    rows: int, depth: int, outputs: int, steps: int, beta: float
) -> None:
    generator = torch.Generator().manual_seed(0)
    blocks = products.Blocks(rows, steps, 8)
    inputs = torch.randn(2, 8 * steps * rows, depth, generator=generator)
    weights = torch.randn(2, depth, outputs, generator=generator)
    first = torch.randn(2, 8 * steps * rows, outputs, generator=generator)
    results = []
    for units in range(torch.get_num_threads(), 9):
        own = units * steps * rows
        out = first[:, :own].clone()
        products.multiply(inputs[:, :own], weights, out, blocks=blocks, beta=beta)
        results.append(out)
    assert all(torch.equal(result, results[-1][:, : result.shape[1]]) for result in results)
    exact = (beta * first + torch.matmul(inputs, weights)).double()
    torch.testing.assert_close(results[-1].double(), exact, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("function", [torch.exp, LERP, SLOPE])
def test_functions_have_the_same_bits_in_every_place_of_a_vector(
    function: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    values = 4 * torch.randn(200, generator=torch.Generator().manual_seed(0))
    whole = function(values)
    for start in range(20):
        for stop in range(start + 1, start + 40):
            assert torch.equal(function(values[start:stop]), whole[start:stop])


def test_gates_have_the_same_bits_for_every_number_of_rows_and_threads() -> None:
    values = 4 * torch.randn(2, 500, 192, generator=torch.Generator().manual_seed(0))
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        whole = values[..., 64:].sigmoid()
        for threads in (1, 2, 3, 5):
            torch.set_num_threads(threads)
            for rows in (1, 7, 96, 129, 300, 500):
                own = values[:, :rows].clone()
                recurrent.sigmoid_(own[..., 64:])
                assert torch.equal(own[..., 64:], whole[:, :rows])
    finally:
        torch.set_num_threads(before)


def test_blocks_are_padded_scaled_and_give_back_every_entry() -> None:
    network = perceptron(3, 5, 2, layers=1)
    places = places_of(network, 0)
    blocks = [
        PackedArray.of(places["0.weight"].t(), 16, 16, factor=-2.0),
        PackedArray.of(places["0.bias"], 16),
        PackedArray.of(places["2.weight"], 16, 16),
        PackedArray.of(places["2.bias"], 16),
    ]
    packing = Packing(blocks, units=2, device=torch.device("cpu"))
    flat = torch.arange(1.0, packing.size + 1).expand(2, -1)
    packed = packing.pack(flat)
    assert [tuple(block.shape) for block in packed] == [(2, 16, 16), (2, 16), (2, 16, 16), (2, 16)]
    assert packed[0][0, :4, 0].tolist() == [-2.0, -4.0, -6.0, 0.0]
    factor = packing.unpack([torch.ones_like(block) for block in packed]).clone()
    assert torch.equal(packing.unpack(packed), flat * factor * factor)
    assert widen(places["2.bias"], 4).tolist()[2:] == [-1, -1]


@pytest.mark.parametrize("lengths", [LENGTHS, [16] * 6, [15, 4, 3, 2, 1, 9]])
@pytest.mark.parametrize("name", KINDS)
def test_episodes_padded_to_whole_chunks_as_on_a_card_have_the_same_bits(
    name: str, lengths: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes = []
    for of_cuda in (False, True):
        take_paths(monkeypatch, of_cuda=of_cuda)
        algorithm = make(config(name, trace=0.6, batch_size=6, micro_batches=4))
        computed = updates(algorithm, rows_of(algorithm, lengths), [0, 1, 2, 3])
        outcomes.append({unit: update.tobytes() for unit, update in computed.items()})
    assert outcomes[0] == outcomes[1]


def test_a_graph_serves_episodes_of_all_lengths_with_as_many_chunks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    take_paths(monkeypatch, of_cuda=True)
    minibatches = []
    for seed, lengths in enumerate(([20] * 6, [3, 2, 5, 4, 3, 1], [31, 5, 17, 16, 2, 9])):
        algorithm = make(config("qmix"))
        rows = rows_of(algorithm, lengths)
        rows[:, :7] += np.float32(seed)
        minibatches.append((rows, updates(algorithm, rows, [0, 1, 2])))
    graphs = record_graphs(monkeypatch)
    replays = make(config("qmix"))
    for rows, expected in minibatches:
        for unit, update in updates(replays, rows, [0, 1, 2]).items():
            assert update.tobytes() == expected[unit].tobytes()
    assert len(graphs) == 2  # of two chunks, and of one


def test_statistics_added_on_a_device_are_those_of_the_host_whatever_the_padding() -> None:
    algorithm = make(config("qmix"))
    layout = algorithm.problem.episodes
    assert isinstance(layout, EpisodeLayout)
    rows = rows_of(algorithm, LENGTHS)
    ends = np.cumsum(np.array(LENGTHS) + 1)
    episodes = [rows[end - length - 1 : end] for end, length in zip(ends, LENGTHS, strict=True)]
    found = []
    for steps in (40, 47, 63):
        batch = Trajectories(
            padded(episodes, layout, steps=steps), layout, steps=torch.tensor(99.0)
        )
        value = torch.randn(63, 6, 3, generator=torch.Generator().manual_seed(0))[:steps]
        expected = value.square() - 0.5
        found.append(shares_by_unit(value, expected, batch, units=3))
        parts = [part.numpy() for part in (value, expected, batch.valid)]
        for unit, shares in enumerate(found[-1].tolist()):
            own = (part[:, 2 * unit :][:, :2] for part in parts)
            stated = shares_of(*own, steps=99, agents=3)
            assert shares == pytest.approx([stated[name] for name in ENTRIES.names], rel=1e-13)
    assert all(torch.equal(each, found[0]) for each in found)


def test_what_an_earlier_call_computed_changes_no_bit() -> None:
    algorithm, fresh = make(config("qmix")), make(config("qmix"))
    rows = rows_of(algorithm, LENGTHS)
    poison = rows_of(algorithm, [50] * 6)
    poison[:, :30] = np.inf
    updates(algorithm, poison, [0, 1, 2])
    for unit, update in updates(algorithm, rows, [0, 1, 2]).items():
        assert update.tobytes() == updates(fresh, rows, [unit])[unit].tobytes()
