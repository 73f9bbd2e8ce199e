"""Losses and gradients of QMIX, VDN and IQL against recordings of PyMARL's learner."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fullrank.algorithms import Algorithm, EnvironmentSpec
from fullrank.algorithms.coma import COMA
from fullrank.algorithms.groups import Networks
from fullrank.algorithms.ippo import IPPO
from fullrank.algorithms.iql import IQL
from fullrank.algorithms.pqn import PQN
from fullrank.algorithms.problem import Unit
from fullrank.algorithms.qmix import QMIX
from fullrank.algorithms.trajectories import (
    ENTRIES,
    SCALE,
    Trajectories,
    best_values,
)
from fullrank.algorithms.updates import Entries, Statistics
from fullrank.algorithms.values import LEAST_DEVIATION, ValueLearner
from fullrank.algorithms.vdn import VDN
from fullrank.common.errors import ConfigError
from fullrank.common.types import FloatArray
from fullrank.environments import AgentSpec, Continuous, Discrete
from fullrank.networks.modules import views
from fullrank.networks.value_networks import MonotonicMixer
from fullrank.replay.episodes import EpisodeLayout, episodes_in

AGENTS = tuple(
    AgentSpec(name=f"agent_{i}", observation_size=7, action=Discrete(5)) for i in range(3)
)
ENVIRONMENT = EnvironmentSpec(agents=AGENTS, state_size=11)
RECORDING = Path(__file__).parents[2] / "golden" / "qmix" / "pymarl.npz"
SMALL: dict[str, dict[str, Any]] = {
    "qmix": {"hidden": 16, "mixing": 8, "hypernet": 12},
    "vdn": {"hidden": 16},
    "iql": {"hidden": 16},
}


@pytest.fixture(scope="module")
def recorded() -> dict[str, Any]:
    with np.load(RECORDING) as arrays:
        return dict(arrays)


def config(name: str, **params: Any) -> ValueLearner:
    kinds: dict[str, Callable[..., ValueLearner]] = {"qmix": QMIX, "vdn": VDN, "iql": IQL}
    return kinds[name](**{"batch_size": 6, "micro_batches": 3, **SMALL[name], **params})


def packed(recorded: dict[str, Any], layout: EpisodeLayout) -> FloatArray:
    """The recorded episodes, one after the other, without their padding."""
    episodes = []
    for number, length in enumerate(recorded["length"].tolist()):
        rows = np.zeros((length + 1, layout.row_size), np.float32)
        for part, array in (
            (layout.observation, "obs"),
            (layout.state, "state"),
            (layout.available, "available"),
            (layout.action, "action"),
        ):
            rows[:, part] = recorded[array][number, : length + 1].reshape(length + 1, -1)
        rows[:, layout.reward] = recorded["reward"][number, : length + 1]
        rows[:, layout.terminated] = recorded["terminated"][number, : length + 1]
        rows[-1, layout.length] = length
        episodes.append(rows)
    return np.concatenate(episodes)


def set_weights(algorithm: Algorithm, recorded: dict[str, Any], nets: Networks, name: str) -> None:
    for section in algorithm.problem.sections[:-1]:  # the last one is the exponent
        module = getattr(nets, section.role)[0]
        with torch.no_grad():
            for key, parameter in module.named_parameters():
                wanted = recorded[f"{name}.{section.role}.{key.removesuffix('_l0')}"]
                parameter.copy_(torch.from_numpy(wanted))


def nets_of(algorithm: Algorithm) -> Networks:
    nets: Networks = algorithm.gradients._nets  # type: ignore[attr-defined]
    return nets


def gradients(algorithm: Algorithm, update: FloatArray) -> Iterator[tuple[str, FloatArray]]:
    """The gradient of each parameter by name, from a flat update."""
    nets = nets_of(algorithm)
    start = 0
    for role in ("agent", "mixer")[: len(algorithm.problem.sections) // 2]:
        module = getattr(nets, role)[0]
        size = sum(parameter.numel() for parameter in module.parameters())
        by_parameter = {
            id(parameter): view
            for parameter, view in views(module, torch.from_numpy(update[start : start + size]))
        }
        for key, parameter in module.named_parameters():
            yield f"{role}.{key.removesuffix('_l0')}", by_parameter[id(parameter)].numpy()
        start += size


@pytest.mark.parametrize("double", [True, False])
@pytest.mark.parametrize("micro_batches", [1, 3, 4])
@pytest.mark.parametrize("name", SMALL)
def test_the_summed_gradient_is_that_of_pymarl(
    name: str, micro_batches: int, double: bool, recorded: dict[str, Any]
) -> None:
    algorithm = config(name, micro_batches=micro_batches, double=double).make(
        ENVIRONMENT, seed=0, device="cpu"
    )
    set_weights(algorithm, recorded, nets_of(algorithm), name)
    assert algorithm.problem.episodes is not None
    rows = packed(recorded, algorithm.problem.episodes)
    units = range(micro_batches)
    updates = [update for _, update in algorithm.gradients.compute(rows, units, iteration=0)]
    total = np.sum(np.asarray(updates, np.float64), axis=0) / SCALE
    expected = {
        key.split(".gradient.")[1]: value
        for key, value in recorded.items()
        if key.startswith(f"{name}.{'double' if double else 'single'}.gradient.")
    }
    computed = dict(gradients(algorithm, total))
    assert set(computed) == set(expected)
    longest = np.sqrt(sum(float(np.square(value).sum()) for value in expected.values()))
    apart = np.sqrt(sum(float(np.square(computed[key] - expected[key]).sum()) for key in expected))
    assert longest > 0.1
    assert apart / longest < 1e-6


@pytest.mark.parametrize("double", [True, False])
@pytest.mark.parametrize("recurrent_passes", [True, False])
@pytest.mark.parametrize("name", SMALL)
def test_the_step_returns_the_statistics_that_pymarl_logs(
    name: str, recurrent_passes: bool, double: bool, recorded: dict[str, Any]
) -> None:
    """Units' shares are summed with their gradients, by hand-written passes and by autograd."""
    built = config(name, double=double, clip_norm=0.1)
    algorithm = built.make(ENVIRONMENT, seed=0, device="cpu")
    set_weights(algorithm, recorded, nets_of(algorithm), name)
    layout = algorithm.problem.episodes
    assert layout is not None
    stated = built.readable(ENVIRONMENT, nets_of(algorithm), torch.device("cpu"))
    computing = algorithm.gradients if recurrent_passes else stated
    units = computing.compute(packed(recorded, layout), range(3), iteration=0)
    total = np.sum([update.astype(np.float64) for _, update in units], axis=0)
    statistics = algorithm.optimiser.step(total.astype(np.float32)[None])
    prefix = f"{name}.{'double' if double else 'single'}.statistic."
    expected = {
        key.removeprefix(prefix): float(value)
        for key, value in recorded.items()
        if key.startswith(prefix)
    }
    assert set(expected) == {"loss", "grad_norm", "td_error_abs", "q_taken_mean", "target_mean"}
    rate = {"learning_rate": built.learning_rate}
    assert statistics == pytest.approx(expected | rate, rel=1e-5)


FEWER = Entries(("spread", "error"), marking="spread")
MORE = Entries(tuple(f"part_{number}" for number in range(6)), marking="part_4")


def own_losses(
    entries: Entries, losses: Mapping[str, torch.Tensor]
) -> tuple[Mapping[str, torch.Tensor], Statistics]:
    """The losses of a learner, and statistics of other names: 0, 1, ... of each unit."""
    return losses, {name: float(place) for place, name in enumerate(entries.names)}


class FewerOfVDN(VDN):
    entries = FEWER

    def losses(
        self, nets: Networks, batch: Trajectories
    ) -> tuple[Mapping[str, torch.Tensor], Statistics]:
        return own_losses(self.entries, VDN.losses(self, nets, batch)[0])


class MoreOfVDN(FewerOfVDN):
    entries = MORE


class FewerOfPQN(PQN):
    entries = FEWER

    def losses(
        self, nets: Networks, batch: Trajectories
    ) -> tuple[Mapping[str, torch.Tensor], Statistics]:
        return own_losses(self.entries, PQN.losses(self, nets, batch)[0])


class MoreOfPQN(FewerOfPQN):
    entries = MORE


@pytest.mark.parametrize("paid", [1.0, 1e6])
@pytest.mark.parametrize("kind", [FewerOfVDN, MoreOfVDN, FewerOfPQN, MoreOfPQN])
def test_a_subclass_has_statistics_of_its_own_and_marks_its_clamped_units(
    kind: type[VDN | PQN], paid: float
) -> None:
    built = kind(batch_size=6, micro_batches=3, hidden=8)
    algorithm = built.make(ENVIRONMENT, seed=0, device="cpu")
    layout = algorithm.problem.episodes
    assert layout is not None
    rows = layout.synthetic(np.random.default_rng(0), 6)
    rows[:, layout.reward] *= paid
    if algorithm.prepare is not None:
        algorithm.prepare(rows)
    units = algorithm.gradients.compute(rows, range(3), iteration=0)
    total = np.sum([update.astype(np.float64) for _, update in units], axis=0)
    told = dict(algorithm.optimiser.step(total.astype(np.float32)[None]))
    clamped = told.pop("clamped/agent", 0.0)
    assert clamped == (3.0 if paid > 1.0 else 0.0)
    expected = {name: 3.0 * place for place, name in enumerate(built.entries.names)}
    if clamped:
        del expected[built.entries.marking]
    assert {name: told[name] for name in told if name in built.entries.names} == expected
    assert told.keys() - expected.keys() == {"grad_norm", "learning_rate"}


def test_returns_equal_a_loop_over_steps() -> None:
    generator = torch.Generator().manual_seed(0)
    built = config("vdn", trace=0.6, discount=0.9)
    layout = EpisodeLayout(observation_sizes=(2,), action_sizes=(3,))
    rows = layout.synthetic(np.random.default_rng(3), 5)
    episodes = [rows[place] for place in episodes_in(rows, layout.length)]
    batch = Trajectories.of(episodes, layout, device=torch.device("cpu"))
    next_value = torch.randn((*batch.reward.shape, 1), generator=generator)
    returns = built.returns(next_value, batch)
    for number, episode in enumerate(episodes):
        later = float(next_value[len(episode) - 2, number])
        for step in reversed(range(len(episode) - 1)):
            ahead = 0.4 * float(next_value[step, number]) + 0.6 * later
            goes_on = 1.0 - episode[step, layout.terminated]
            later = float(episode[step, layout.reward]) + 0.9 * goes_on * ahead
            assert returns[step, number].item() == pytest.approx(later, abs=1e-5)


@pytest.mark.parametrize("recurrent", [True, False])
@pytest.mark.parametrize("name", SMALL)
def test_rewards_of_the_whole_minibatch_are_standardised(name: str, recurrent: bool) -> None:
    """All units have the updates of rewards that had mean 0 and deviation 1 before, to the bit."""
    asked, plain = (
        config(name, recurrent=recurrent, standardise_rewards=to) for to in (True, False)
    )
    rows = asked.layout(ENVIRONMENT).synthetic(np.random.default_rng(4), 6)
    reward, last = asked.layout(ENVIRONMENT).reward, asked.layout(ENVIRONMENT).length
    rows[:, reward] = np.where(rows[:, last] > 0, 0.0, 5.0 * rows[:, reward] - 20.0)
    before, standard = rows.copy(), rows.copy()
    paid = rows[rows[:, last] == 0, reward].astype(np.float64)
    standard[rows[:, last] == 0, reward] = (paid - paid.mean()) / (paid.std() + LEAST_DEVIATION)

    def updates(learner: ValueLearner, sample: FloatArray) -> dict[int, FloatArray]:
        algorithm = learner.make(ENVIRONMENT, seed=0, device="cpu")
        return dict(algorithm.gradients.compute(sample, range(3), iteration=0))

    found, expected = updates(asked, rows), updates(plain, standard)
    for unit in range(3):
        np.testing.assert_array_equal(found[unit], expected[unit])
    np.testing.assert_array_equal(rows, before)
    assert not np.array_equal(updates(plain, rows)[0], found[0])


def test_actions_that_are_not_available_are_never_the_best() -> None:
    values = torch.tensor([[1.0, 5.0, 3.0], [2.0, 9.0, 4.0]])
    available = torch.tensor([[True, False, True], [False, False, False]])
    assert best_values(values, values, available).tolist() == [3.0, 0.0]


def test_the_mixer_is_its_formula_and_rises_with_every_value() -> None:
    torch.manual_seed(0)
    mixer = MonotonicMixer(3, 5, embed=4, hypernet=6, hypernet_layers=2).double()
    values = torch.randn(7, 3, dtype=torch.float64, requires_grad=True)
    state = torch.randn(7, 5, dtype=torch.float64)
    joint = mixer(values, state)
    weights = {key: value.detach().numpy() for key, value in mixer.named_parameters()}

    def layer(name: str, x: FloatArray) -> FloatArray:
        out: FloatArray = x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]
        return out

    def two(name: str, x: FloatArray) -> FloatArray:
        return layer(f"{name}.2", np.maximum(layer(f"{name}.0", x), 0.0))

    for row, (own, s) in enumerate(zip(values.detach().numpy(), state.numpy(), strict=True)):
        first = np.abs(two("hyper_w_1", s)).reshape(3, 4)
        z = own @ first + layer("hyper_b_1", s)
        hidden = np.where(z > 0, z, np.expm1(z))
        expected = hidden @ np.abs(two("hyper_w_final", s)) + two("V", s)[0]
        assert joint[row].item() == pytest.approx(expected, rel=1e-12)
    (slopes,) = torch.autograd.grad(joint.sum(), values)
    assert (slopes >= 0).all()


def test_agents_of_unequal_sizes_share_a_network_and_learn_like_padded_ones() -> None:
    """Zeros in place of missing entries and masked actions change nothing."""
    unequal = (
        AgentSpec(name="small", observation_size=4, action=Discrete(2)),
        AgentSpec(name="large", observation_size=7, action=Discrete(5)),
    )
    layout = EpisodeLayout(observation_sizes=(4, 7), action_sizes=(2, 5), state_size=3)
    wide = EpisodeLayout(observation_sizes=(7, 7), action_sizes=(5, 5), state_size=3)
    rows = layout.synthetic(np.random.default_rng(0), 6)
    padded = np.zeros((len(rows), wide.row_size), np.float32)
    padded[:, [*range(4), *range(7, 14)]] = rows[:, layout.observation]
    available = np.zeros((len(rows), 10), np.float32)
    available[:, [0, 1, 5, 6, 7, 8, 9]] = rows[:, layout.available]
    padded[:, wide.available] = available
    padded[:, wide.state], padded[:, wide.action] = rows[:, layout.state], rows[:, layout.action]
    padded[:, wide.reward :] = rows[:, layout.reward :]
    alike = tuple(AgentSpec(name=n, observation_size=7, action=Discrete(5)) for n in ("a", "b"))
    built = config("qmix", micro_batches=2)
    computed = [
        [
            update.tobytes()
            for _, update in built.make(
                EnvironmentSpec(agents=agents, state_size=3), seed=1, device="cpu"
            ).gradients.compute(batch, range(2), iteration=0)
        ]
        for agents, batch in ((unequal, rows), (alike, padded))
    ]
    assert computed[0] == computed[1]


def test_units_split_the_episodes_and_surplus_units_are_zero(recorded: dict[str, Any]) -> None:
    algorithm = config("vdn", micro_batches=4).make(ENVIRONMENT, seed=0, device="cpu")
    assert algorithm.problem.episodes is not None
    rows = packed(recorded, algorithm.problem.episodes)
    updates = dict(algorithm.gradients.compute(rows, range(4), iteration=0))
    assert [bool(updates[unit].any()) for unit in range(4)] == [True, True, True, False]
    assert algorithm.problem.units == tuple(Unit((0, 1, 2), part) for part in range(4))


def test_padding_by_longer_episodes_of_other_units_changes_no_bit(
    recorded: dict[str, Any],
) -> None:
    algorithm = config("qmix", micro_batches=3).make(ENVIRONMENT, seed=0, device="cpu")
    layout = algorithm.problem.episodes
    assert layout is not None
    rows = packed(recorded, layout)
    first = rows[: episodes_in(rows, layout.length)[1].stop]
    others = np.zeros((26, layout.row_size), np.float32)  # as many steps, of other lengths
    others[[19, 21, 23, 25], layout.length] = [19, 1, 1, 1]
    (_, whole), *_ = algorithm.gradients.compute(rows, [0], iteration=0)
    batch = np.concatenate([first, others])
    (_, again), *_ = algorithm.gradients.compute(batch, [0], iteration=0)
    assert whole.tobytes() == again.tobytes()


def test_entries_beyond_the_bound_of_encoding_are_clamped(recorded: dict[str, Any]) -> None:
    algorithm = config("vdn").make(ENVIRONMENT, seed=0, device="cpu")
    layout = algorithm.problem.episodes
    assert layout is not None
    rows = packed(recorded, layout)
    rows[:, layout.reward] *= 1e6
    updates = [update for _, update in algorithm.gradients.compute(rows, range(3), iteration=0)]
    assert max(np.abs(update).max() for update in updates) == 0.5


def test_the_exponent_rises_until_no_entry_is_clamped_and_scales_the_step_back(
    recorded: dict[str, Any],
) -> None:
    built = config("qmix", micro_batches=1)
    algorithm, exact = (built.make(ENVIRONMENT, seed=0, device="cpu") for _ in range(2))
    layout = algorithm.problem.episodes
    assert layout is not None
    rows = packed(recorded, layout)
    rows[:, layout.reward] *= 1e3

    def update(algorithm: Algorithm) -> FloatArray:
        return next(algorithm.gradients.compute(rows, [0], iteration=0))[1]

    size = nets_of(algorithm).parameters.groups[0].size
    steps = 0
    while np.abs(update(algorithm)[:size]).max() >= 0.5:
        assert "clamped/agent" in algorithm.optimiser.step(update(algorithm)[None])
        steps += 1
    exponent = algorithm.parameters.view(len(algorithm.problem.sections) - 1)
    assert exponent.tolist() == [4.0 * steps] != [0.0]
    exact.optimiser.load(algorithm.optimiser.state())
    gradient = update(exact)[None]
    halved = gradient.copy()
    halved[:, :size] /= 2.0
    algorithm.parameters.view(len(algorithm.problem.sections) - 1)[:] += 1.0
    assert exact.optimiser.step(gradient) == algorithm.optimiser.step(halved)


@pytest.mark.parametrize("rule", ["rmsprop", "adam"])
def test_the_optimiser_is_torch_s_with_a_clipped_global_norm(rule: str) -> None:
    built = config("qmix", optimiser=rule, clip_norm=2.0, target_every=3)
    algorithm = built.make(ENVIRONMENT, seed=0, device="cpu")
    (group,) = nets_of(algorithm).parameters.groups
    online, target = group.host[0][0, : group.size], group.host[1][0, : group.size]
    parameter = torch.nn.Parameter(online.clone())
    optimiser: torch.optim.Optimizer = torch.optim.Adam([parameter], lr=5e-4)
    if rule == "rmsprop":
        optimiser = torch.optim.RMSprop([parameter], lr=5e-4, alpha=0.99, eps=1e-5)
    generator = np.random.default_rng(0)
    for step in range(1, 7):
        before = target.clone()
        gradient = (10.0 ** (step - 4) * generator.standard_normal(group.size)).astype(np.float32)
        parameter.grad = torch.from_numpy(gradient)
        torch.nn.utils.clip_grad_norm_([parameter], 2.0)
        optimiser.step()
        target_sum = np.append(gradient * np.float32(SCALE), np.zeros(ENTRIES.size, np.float32))
        norm = algorithm.optimiser.step(target_sum[None])["grad_norm"]
        assert norm == pytest.approx(np.linalg.norm(gradient.astype(float)))
        torch.testing.assert_close(online, parameter.detach(), rtol=1e-6, atol=1e-7)
        assert torch.equal(target, online if step % 3 == 0 else before)


def test_continuous_actions_are_refused() -> None:
    agents = (AgentSpec(name="arm", observation_size=3, action=Continuous((-1.0,), (1.0,))),)
    with pytest.raises(ConfigError, match="arm has continuous actions"):
        config("vdn").problem(EnvironmentSpec(agents=agents))


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"micro_batches": 7}, "micro_batches = 7 must lie between 1 and algorithm.batch_size = 6"),
        ({"batch_size": 0}, "batch_size"),
        ({"clip_norm": 0.0}, "clip_norm"),
        ({"optimiser": "adam", "epsilon": 1e-3}, "smoothing and epsilon are RMSprop's"),
        ({"hypernet_layers": 3}, "hypernet_layers"),
    ],
)
def test_impossible_settings_are_refused(params: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        config("qmix", **params)


@pytest.mark.parametrize("kind", [VDN, PQN, IPPO, COMA])
def test_gru_names_the_network_with_a_recurrent_state(kind: Callable[..., Any]) -> None:
    named = kind(model="gru")
    assert named.recurrent
    networks = {each.role: each.size for each in named.problem(ENVIRONMENT).sections}
    plain = kind(model="mlp", recurrent=True).problem(ENVIRONMENT)
    assert networks == {each.role: each.size for each in plain.sections}


def test_gru_without_a_recurrent_state_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"recurrent = false has none: leave out one of them"):
        VDN(model="gru", recurrent=False)
