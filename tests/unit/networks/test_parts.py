"""Clipping, action heads, the optimiser and chunking, each against its definition."""

import numpy as np
import pytest
import torch

from fullrank.environments import AgentSpec, Continuous, Discrete, MultiDiscrete
from fullrank.environments.base import ActionSpec
from fullrank.networks import adam as adam_module
from fullrank.networks.adam import Adam, AdamState
from fullrank.networks.fused.critic_input import CriticInput, GatherIndex, MeanField, critic_inputs
from fullrank.networks.fused.kernels import DEFAULT, Kernel
from fullrank.networks.fused.minibatch import block_columns
from fullrank.networks.fused.mlp import Clipper, parts
from fullrank.networks.fused.network_group import NetworkGroup, make_groups
from fullrank.networks.fused.unit_batch import UnitBatches
from fullrank.networks.heads import SMALLEST_UNIFORM, make_head
from fullrank.networks.normalised import Normalising
from fullrank.networks.parameters import aligned
from fullrank.replay.layout import Layout

CPU = torch.device("cpu")


@pytest.mark.parametrize(("size", "hidden"), [(1, 8), (333, 50), (1024, 64), (1024, 300), (9, 999)])
def test_tiles_are_whole_cache_lines_and_long_ones_an_odd_number(size: int, hidden: int) -> None:
    columns = block_columns(size, hidden=hidden, device=CPU)
    assert columns % 16 == 0
    assert columns <= max(256, aligned(hidden))
    assert columns <= 256 or columns == aligned(columns)


@pytest.mark.parametrize("rows", [(2, 3, 4), (4, 2), (1, 1)])
def test_picked_rows_are_read_and_written_side_by_side_or_apart(rows: tuple[int, ...]) -> None:
    tensor, picked = torch.arange(12.0).view(6, 2), GatherIndex(rows, CPU)
    chosen = tensor[list(rows)]
    assert torch.equal(picked.of(tensor), chosen)
    expected = tensor.clone()
    expected[list(rows)] = -chosen
    picked.put(tensor, -chosen)
    assert torch.equal(tensor, expected)


def test_weights_and_biases_are_clipped_apart_and_short_ones_kept_to_the_bit() -> None:
    torch.manual_seed(0)
    layer = torch.randn(3, 5, 8)
    layer[0, :, :-1] *= 1e-3
    out = torch.zeros(3, 5, 8)
    Clipper([parts(layer)], [parts(out)], norm=0.3).clip()
    for unit in range(3):
        for part in (slice(None, -1), slice(-1, None)):
            variable = layer[unit, :, part]
            expected = variable * min(1.0, 0.3 / float(variable.double().norm()))
            torch.testing.assert_close(out[unit, :, part], expected)
    assert torch.equal(out[0, :, :-1], layer[0, :, :-1])
    assert float(out[1, :, :-1].norm()) == pytest.approx(0.3)


@pytest.mark.parametrize(
    "spec",
    [
        Discrete(4),
        MultiDiscrete((1, 3)),
        Continuous((-1.0, 0.0, -9.0, 1.0), (1.0, 3.0, 9.0, 1.0)),
    ],
    ids=lambda spec: spec.kind,
)
def test_head_gradients_are_those_of_autograd(spec: ActionSpec) -> None:
    head = make_head(spec, noise=0.1, device=CPU)
    torch.manual_seed(0)
    outputs, upstream = torch.randn(2, 4, 7), torch.randn(2, 4, 7)
    noise = torch.randn(2, 4, 7)
    actions = head.sample(outputs, noise.clone())
    free = outputs.double().requires_grad_(True)
    if not isinstance(spec, Continuous):
        parts = torch.split(free + noise.double(), list(spec.choices), 1)
        expected = torch.cat([torch.softmax(part, 1) for part in parts], 1)
    else:
        low = torch.tensor(spec.low).double().unsqueeze(1)
        high = torch.tensor(spec.high).double().unsqueeze(1)
        expected = low + (high - low) * (free.tanh() + 1) / 2
    torch.testing.assert_close(actions.double(), expected.detach(), atol=1e-5, rtol=1e-5)
    (wanted,) = torch.autograd.grad((expected * upstream).sum(), free)
    given = head.gradient(outputs, actions, upstream.clone())
    torch.testing.assert_close(given.double(), wanted, atol=1e-5, rtol=1e-4)


def test_noise_is_gumbels_and_finite_for_extreme_draws() -> None:
    uniform = np.array([[0.0, 2.0**-24, 0.5, 1 - 2.0**-24]], np.float32)

    class Extremes:
        def random(self, *, dtype: type, out: np.ndarray[tuple[int, ...], np.dtype]) -> None:
            assert (out.shape, dtype) == (uniform.shape, np.float32)
            out[:] = uniform

    head = make_head(Discrete(4), noise=0.0, device=CPU)
    (noise,) = head.draw([Extremes()], uniform.shape)  # type: ignore[list-item]
    expected = -np.log(-np.log(np.maximum(uniform.astype(np.float64), SMALLEST_UNIFORM)))
    np.testing.assert_allclose(noise, expected, rtol=1e-6)


def test_adam_by_blocks_is_torchs_adam(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adam_module, "BLOCK", 30)
    torch.manual_seed(0)
    start = torch.randn(3, 101)
    rows = AdamState(start.clone(), start.clone(), torch.zeros(3, 101), torch.zeros(3, 101))
    parameter = torch.nn.Parameter(start.clone())
    optimiser = torch.optim.Adam([parameter], lr=0.02, fused=True)
    target = start.clone()
    for count in range(1, 5):
        parameter.grad = torch.randn(3, 101)
        rows.step(parameter.grad, Adam(learning_rate=0.02, target_rate=0.25), count=count)
        optimiser.step()
        target.lerp_(parameter.detach(), 0.25)
    assert torch.equal(rows.online, parameter.detach())
    assert torch.equal(rows.target, target)


def groups(
    *, critic_inputs: tuple[CriticInput, ...] = (CriticInput.CENTRALISED,) * 4
) -> tuple[NetworkGroup, ...]:
    actions = [Discrete(2), Discrete(3), Discrete(2), Discrete(2)]
    specs = [AgentSpec(name=str(i), observation_size=3, action=a) for i, a in enumerate(actions)]
    layout = Layout(observation_sizes=(3,) * 4, action_sizes=(2, 3, 2, 2))
    return make_groups(
        specs, layout, critic_inputs=critic_inputs, hidden=4, noise=0.0, device=CPU, seed=0
    )


def test_agents_with_local_critics_have_a_network_group_of_their_own() -> None:
    shared, local, other = groups(
        critic_inputs=(
            CriticInput.CENTRALISED,
            CriticInput.LOCAL,
            CriticInput.LOCAL,
            CriticInput.CENTRALISED,
        )
    )
    assert [shared.agents, local.agents, other.agents] == [(0, 3), (1,), (2,)]
    assert [shared.critic.inputs, local.critic.inputs, other.critic.inputs] == [21, 6, 5]


def test_spreading_and_folding_are_the_linear_map_and_its_transpose() -> None:
    layout = Layout(observation_sizes=(3,) * 4, action_sizes=(2, 3, 2, 2))
    agents, hidden, joint = (0, 2, 3), 5, layout.action.stop
    seen = critic_inputs(CriticInput.MEAN_FIELD, layout, 0)
    field = MeanField(layout, agents, CPU)
    torch.manual_seed(0)
    first, gradient = torch.randn(3, hidden, seen + 1), torch.randn(3, hidden, joint + 1)
    spread, folded = torch.empty_like(gradient), torch.empty_like(first)
    field.spread(first, out=spread)
    field.fold(gradient, out=folded)
    x = torch.randn(joint + 1, dtype=torch.float64)
    for unit, agent in enumerate(agents):
        others = torch.zeros(3, dtype=torch.float64)
        for other in set(range(4)) - {agent}:
            action = x[layout.action][layout.action_of(other)]
            others[: len(action)] += action / 3
        own = x[layout.action][layout.action_of(agent)]
        expected = first[unit].double() @ torch.cat([x[layout.observation], own, others, x[-1:]])
        torch.testing.assert_close(spread[unit].double() @ x, expected, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(
            (spread[unit] * gradient[unit]).sum(), (first[unit] * folded[unit]).sum()
        )


def test_every_parameter_row_starts_on_sixty_four_bytes() -> None:
    for group in groups():
        for row in group.rows.online:
            assert row.data_ptr() % 64 == 0


def test_a_piece_is_never_narrower_than_the_number_of_threads() -> None:
    group = groups()[0]
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        (piece,) = UnitBatches(group, clip_norm=0.5, kernel=DEFAULT).split([1], columns=16)
    finally:
        torch.set_num_threads(threads)
    assert piece.agents == (group.agents[1],) * 2


def test_units_that_lie_apart_are_read_afresh_every_time() -> None:
    group = groups()[0]
    batches = UnitBatches(group, clip_norm=0.5, kernel=DEFAULT)
    (unit_batch,) = batches.split([0, 2], columns=16)
    for value in (7.0, 8.0):
        group.rows.online[2] = group.rows.target[2] = value
        unit_batch.prepare_targets()
        assert (unit_batch.target_policy.affine[1] == value).all()
        unit_batch.prepare()
        assert (unit_batch.policy.affine[1] == value).all()
    assert batches.split([0, 2], columns=16) == [unit_batch]


def test_second_layers_that_products_would_copy_are_copied_afresh_by_prepare() -> None:
    group = groups()[0]
    batches = UnitBatches(group, clip_norm=0.5, kernel=Kernel("onednn"))
    (unit_batch,) = batches.split([0, 1], columns=16)
    group.rows.online[:2] = 7.0
    unit_batch.prepare()
    for network in (unit_batch.critic, unit_batch.policy):
        assert network.second.weight.is_contiguous()
        for weight in (network.second.weight, network.second_back):
            assert (weight == 7.0).all()


def test_inputs_are_seen_in_units_of_their_averages_and_what_follows_them_as_it_is() -> None:
    network = Normalising(3, torch.nn.Identity())
    inputs = torch.tensor([[1.0, -3.0, 5.0, 7.0], [1.0, 1e9, 9.0, 8.0]])
    assert network(inputs).tolist() == [[1.0, -3.0, 5.0, 7.0], [1.0, 10.0, 9.0, 8.0]]
    averages = [[0.1] * 3, [1.0, -1.0, 5.0], [4.0, 16.0, 4.0], [0.0] * 3]
    network.averages.data = torch.tensor(averages)
    seen = [[0.0, -0.5, 0.0, 7.0], [0.0, 10.0, 2.0, 8.0]]
    torch.testing.assert_close(network(inputs), torch.tensor(seen))
