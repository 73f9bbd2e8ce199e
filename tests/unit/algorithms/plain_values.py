"""Action values and their mixtures stated step by step in float64, from parameters by name."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from fullrank.algorithms import EnvironmentSpec
from fullrank.algorithms.action_values import ActionValues
from fullrank.algorithms.groups import Networks
from fullrank.common.types import Array, FloatArray
from fullrank.environments import AgentSpec, Discrete
from fullrank.networks.modules import views
from fullrank.replay.episodes import NO_ACTION, EpisodeLayout, episodes_in

Named: TypeAlias = Mapping[str, Tensor]

ENVIRONMENT = EnvironmentSpec(
    agents=tuple(
        AgentSpec(name=f"agent_{number}", observation_size=seen, action=Discrete(actions))
        for number, (seen, actions) in enumerate(((7, 5), (4, 3), (7, 4)))
    ),
    state_size=6,
)


def played(layout: EpisodeLayout, episodes: int, *, seed: int = 3) -> FloatArray:
    """Random episodes of agents that sometimes cannot act or choose."""
    generator = np.random.default_rng(seed)
    rows = layout.synthetic(generator, episodes)
    starts = np.cumsum((0, *layout.action_sizes[:-1])) + layout.available.start
    rows[:, layout.available] = generator.random((len(rows), sum(layout.action_sizes))) < 0.6
    actions = rows[:, layout.action].astype(int)
    for agent, start in enumerate(starts):
        rows[np.arange(len(rows)), start + actions[:, agent]] = 1.0
    idle = generator.random((len(rows), layout.agents)) < 0.2
    rows[:, layout.action][idle] = NO_ACTION
    for agent, (start, size) in enumerate(zip(starts, layout.action_sizes, strict=True)):
        rows[idle[:, agent], start : start + size] = 0.0
    rows[:, layout.entries.stop :] = 0.0
    return rows


def moved(nets: Networks, *, seed: int = 0) -> Networks:
    """The networks at other parameters, of which no bias and no difference is zero."""
    generator = np.random.default_rng(seed)
    (group,) = nets.parameters.groups
    for array in (part.numpy() for part in group.host):
        array += generator.normal(scale=0.2, size=array.shape).astype(np.float32)
    return nets


def parameters(nets: Networks, role: str) -> dict[str, Tensor]:
    """A network's parameters in float64, of which gradients can be taken."""
    named = getattr(nets, role)[0].named_parameters()
    return {name: each.detach().double().requires_grad_() for name, each in named}


def assert_gradient(nets: Networks, found: Array, loss: Tensor, named: Mapping[str, Named]) -> None:
    """Compare a flat gradient with that of a loss at parameters by role and name."""
    every = [each for own in named.values() for each in own.values()]
    computed = torch.autograd.grad(loss, every, materialize_grads=True)
    expected = {id(each): part.numpy() for each, part in zip(every, computed, strict=True)}
    largest = max(float(np.abs(part).max()) for part in expected.values())
    (group,) = nets.parameters.groups
    for role, columns in group.networks.items():
        module = getattr(nets, role)[0]
        flat = torch.from_numpy(np.ascontiguousarray(found[columns]))
        parts = {id(parameter): view.numpy() for parameter, view in views(module, flat)}
        for name, parameter in module.named_parameters():
            np.testing.assert_allclose(
                parts[id(parameter)], expected[id(named[role][name])], rtol=0, atol=1e-5 * largest
            )


def layer(named: Named, name: str, inputs: Tensor) -> Tensor:
    return named[f"{name}.weight"] @ inputs + named[f"{name}.bias"]


def two(named: Named, name: str, inputs: Tensor) -> Tensor:
    """Two layers with ReLU between them."""
    return layer(named, f"{name}.2", layer(named, f"{name}.0", inputs).relu())


def values(
    learner: ActionValues, named: Named, episode: FloatArray, layout: EpisodeLayout
) -> list[list[Tensor]]:
    """The values of each agent's actions at each step of an episode."""
    normalised = learner.layer_norm

    def active(signal: Tensor) -> Tensor:
        if normalised:
            signal = (signal - signal.mean()) / (signal.var(correction=0) + 1e-5).sqrt()
        return signal.relu()

    agents, wide, most = layout.agents, max(layout.observation_sizes), max(layout.action_sizes)
    seen = np.cumsum((0, *layout.observation_sizes))
    states = [torch.zeros(learner.hidden, dtype=torch.float64) for _ in range(agents)]
    steps = []
    for number, row in enumerate(episode.astype(np.float64)):
        step = []
        for agent in range(agents):
            parts = np.zeros(wide + most * learner.last_action + agents)
            parts[: layout.observation_sizes[agent]] = row[seen[agent] : seen[agent + 1]]
            last = int(episode[number - 1, layout.action][agent]) if number else -1
            if learner.last_action and last >= 0:
                parts[wide + last] = 1.0
            parts[agent - agents] = 1.0
            prefix = f"networks.{agent}." if learner.share == "none" else ""
            own = {name.removeprefix(prefix): each for name, each in named.items()}
            hidden = active(layer(own, "fc1", torch.from_numpy(parts)))
            if learner.recurrent:
                reset, update, new = (
                    own["rnn.weight_ih_l0"] @ hidden + own["rnn.bias_ih_l0"]
                ).chunk(3)
                of_state = own["rnn.weight_hh_l0"] @ states[agent] + own["rnn.bias_hh_l0"]
                reset_h, update_h, new_h = of_state.chunk(3)
                keep = (update + update_h).sigmoid()
                fresh = (new + (reset + reset_h).sigmoid() * new_h).tanh()
                hidden = states[agent] = (1 - keep) * fresh + keep * states[agent]
            else:
                hidden = active(layer(own, "rnn", hidden))
            step.append(layer(own, "fc2", hidden)[: layout.action_sizes[agent]])
        steps.append(step)
    return steps


def offered(row: FloatArray, layout: EpisodeLayout) -> list[Tensor]:
    """Which actions each agent may choose."""
    parts = np.split(row[layout.available] > 0, np.cumsum(layout.action_sizes)[:-1])
    return [torch.from_numpy(part) for part in parts]


def best_of(
    own: Sequence[Tensor], judge: Sequence[Tensor], row: FloatArray, layout: EpisodeLayout
) -> tuple[list[Tensor], list[int]]:
    """Values of each agent's best available action, and the action; 0 and -1 without any."""
    found, actions = [], []
    for value, ranks, mask in zip(own, judge, offered(row, layout), strict=True):
        choice = int(ranks.masked_fill(~mask, -torch.inf).argmax()) if mask.any() else -1
        found.append(value[choice] if choice >= 0 else value.new_zeros(()))
        actions.append(choice)
    return found, actions


def chosen_of(own: Sequence[Tensor], actions: Sequence[int]) -> list[Tensor]:
    """Values of the chosen actions, 0 where an agent could not act."""
    return [
        value[action] if action >= 0 else value.new_zeros(())
        for value, action in zip(own, actions, strict=True)
    ]


def monotonic(named: Named, own: Tensor, state: Tensor) -> Tensor:
    """QMIX's mixture of the agents' values."""
    first = two(named, "hyper_w_1", state).abs().view(len(own), -1)
    hidden = torch.nn.functional.elu(own @ first + layer(named, "hyper_b_1", state))
    return hidden @ two(named, "hyper_w_final", state).abs() + two(named, "V", state)[0]


def returns(
    learner: ActionValues, following: Sequence[Tensor], episode: FloatArray, layout: EpisodeLayout
) -> list[Tensor]:
    """G of each step, from the values after each step."""
    later, found = following[-1], []
    for number in reversed(range(len(episode) - 1)):
        ahead = (1 - learner.trace) * following[number] + learner.trace * later
        goes_on = 1.0 - float(episode[number, layout.terminated])
        if number == len(episode) - 2 and not learner.time_limit_bootstrap:
            goes_on = 0.0
        later = float(episode[number, layout.reward]) + learner.discount * goes_on * ahead
        found.append(later)
    return found[::-1]


def episodes_of(rows: FloatArray, layout: EpisodeLayout) -> list[FloatArray]:
    return [rows[place] for place in episodes_in(rows, layout.length)]


def assert_alone(
    prepare: Callable[[FloatArray, Networks, EpisodeLayout], None],
    rows: FloatArray,
    nets: Networks,
    layout: EpisodeLayout,
) -> None:
    """Prepared episodes have the derived columns that each has without the others."""
    for episode in episodes_of(rows, layout):
        alone = episode.copy()
        alone[:, layout.entries.stop :] = 0.0
        prepare(alone, nets, layout)
        assert alone.tobytes() == episode.tobytes()
