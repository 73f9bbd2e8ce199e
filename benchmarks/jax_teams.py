"""MADDPG, QMIX and PPO in JAX: peers of ``one_device.py``, updates and whole runs compiled.

Losses, clipping and optimisers are Fullrank's and PyMARL's, products float32. The networks of all
agents are stacked and computed together, or shared by those of PPO and QMIX; transitions lie on the
device, and ``whole`` also plays cooperative navigation there. Only draws differ, so that runs learn
alike and have no equal bits.
"""

import os
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # others use the device, too

import jax
from jax import lax
from jax import numpy as jnp

jax.config.update("jax_default_matmul_precision", "highest")

ACTIONS, SCANNED, CAPACITY = 5, 20, 10_000
"""Actions of an agent, updates of a scan, and transitions in the table of an update alone."""
HORIZON, RADIUS, CONTACT, MARGIN = 25, 0.15, 100.0, 1e-3
"""Steps of an episode; an agent's radius, and force and softness of a contact."""
EPISODES = 200
"""Episodes of an evaluation."""

Run = Callable[[], object]


class Team(NamedTuple):
    """Agents of equal shape, and the settings of their updates."""

    agents: int
    observation: int
    hidden: int
    batch: int
    rate: float = 0.003


def _perceptron(key: Any, agents: int, *sizes: int) -> list[tuple[Any, Any]]:
    """Stacked layers of all agents, with Glorot's initial weights."""
    layers = []
    for own, into, out in zip(jax.random.split(key, len(sizes)), sizes, sizes[1:], strict=False):
        bound = (6 / (into + out)) ** 0.5
        weight = jax.random.uniform(own, (agents, into, out), minval=-bound, maxval=bound)
        layers.append((weight, jnp.zeros((agents, 1, out))))
    return layers


def _first(layers: Any, seen: Any) -> Any:
    """First layer of each agent's network over what all of them see, (B, entries) to (M, B, H)."""
    return jnp.einsum("bi,mih->mbh", seen, layers[0][0]) + layers[0][1]


def _upper(layers: Any, hidden: Any) -> Any:
    for weight, bias in layers[1:]:
        hidden = jax.nn.relu(hidden) @ weight + bias
    return hidden


def _policy(layers: Any, seen: Any) -> Any:
    """Logits, shape (M, B, A), of observations, shape (B, M, O)."""
    return _upper(layers, seen.swapaxes(0, 1) @ layers[0][0] + layers[0][1])


def _drawn(key: Any, logits: Any) -> Any:
    return jax.nn.softmax(logits + jax.random.gumbel(key, logits.shape))


def _joint(*parts: Any) -> Any:
    return jnp.concatenate([part.reshape(len(part), -1) for part in parts], 1)


def _begin(team: Team, key: Any) -> dict[str, Any]:
    own, other = jax.random.split(key)
    joint, sizes = team.agents * (team.observation + ACTIONS), (team.hidden, team.hidden)
    online = {
        "policy": _perceptron(own, team.agents, team.observation, *sizes, ACTIONS),
        "critic": _perceptron(other, team.agents, joint, *sizes, 1),
    }
    moments = {name: jax.tree.map(jnp.zeros_like, online) for name in ("mean", "square")}
    return {"online": online, "target": online, "steps": jnp.zeros(()), **moments}


def _gradients(team: Team, state: Any, rows: Any, key: Any) -> Any:
    seen, acted, earned, after = (rows[name] for name in ("seen", "acted", "earned", "after"))
    online, target = state["online"], state["target"]
    keys = jax.random.split(key)
    following = _drawn(keys[0], _policy(target["policy"], after)).swapaxes(0, 1)
    view = _joint(after, following)
    expected = earned.T + 0.95 * _upper(target["critic"], _first(target["critic"], view))[..., 0]

    def critic_loss(critic: Any) -> tuple[Any, Any]:
        first = _first(critic, _joint(seen, acted))
        error = expected - _upper(critic, first)[..., 0]
        return jnp.square(error).mean(1).sum(), lax.stop_gradient(first)

    critic, first = jax.grad(critic_loss, has_aux=True)(online["critic"])
    rows_of_action = team.agents * team.observation + ACTIONS * jnp.arange(team.agents)
    own = jax.vmap(lambda weight, start: lax.dynamic_slice_in_dim(weight, start, ACTIONS))(
        online["critic"][0][0], rows_of_action
    )

    def policy_loss(policy: Any) -> Any:
        logits = _policy(policy, seen)
        moved = _drawn(keys[1], logits) - acted.swapaxes(0, 1)
        score = _upper(online["critic"], first + moved @ own)[..., 0]
        return (1e-3 * jnp.square(logits).mean((1, 2)) - score.mean(1)).sum()

    return {"policy": jax.grad(policy_loss)(online["policy"]), "critic": critic}


def _step(team: Team, state: Any, gradients: Any) -> dict[str, Any]:
    """Clip each variable of each agent, take Adam's step, and move the targets."""

    def clipped(gradient: Any) -> Any:
        norm = jnp.sqrt(jnp.square(gradient).sum((1, 2), keepdims=True))
        return gradient * (0.5 / jnp.maximum(norm, 0.5))

    def moved(parameter: Any, mean: Any, square: Any) -> Any:
        scale = jnp.sqrt(square / (1 - 0.999**steps)) + 1e-8
        return parameter - team.rate * mean / (1 - 0.9**steps) / scale

    gradients, steps, mix = jax.tree.map(clipped, gradients), state["steps"] + 1, jax.tree.map
    mean = mix(lambda old, new: 0.9 * old + 0.1 * new, state["mean"], gradients)
    square = mix(lambda old, new: 0.999 * old + 0.001 * new * new, state["square"], gradients)
    online = mix(moved, state["online"], mean, square)
    target = mix(lambda old, new: old + 0.01 * (new - old), state["target"], online)
    return {"online": online, "target": target, "mean": mean, "square": square, "steps": steps}


def _learn(team: Team, state: Any, table: Any, filled: Any, key: Any) -> Any:
    drawn, noise = jax.random.split(key)
    places = jax.random.randint(drawn, (team.batch,), 0, filled)
    return _step(
        team, state, _gradients(team, state, {k: v[places] for k, v in table.items()}, noise)
    )


def _table(team: Team, capacity: int) -> dict[str, Any]:
    sizes = {"seen": team.observation, "acted": ACTIONS, "after": team.observation}
    draw = partial(jax.random.normal, jax.random.key(1))
    rows = {name: draw((capacity, team.agents, size)) for name, size in sizes.items()}
    return {**rows, "earned": draw((capacity, team.agents))}


def _both(update: Callable[[Any, Any], Any], state: Any) -> Iterator[tuple[str, Run, int]]:
    """One update a call, then a scan of updates: name, call that waits for the device, updates.

    The key is split within what is compiled, so that a call is one dispatch.
    """

    def once(carry: Any) -> Any:
        state, key = carry
        key, own = jax.random.split(key)
        return update(state, own), key

    def scanned(carry: Any) -> Any:
        return lax.scan(lambda each, _: (once(each), None), carry, length=SCANNED)[0]

    for name, program, updates in (("JAX", once, 1), ("JAX, scanned", scanned, SCANNED)):
        compiled, held = jax.jit(program), [(state, jax.random.key(2))]

        def call(compiled: Any = compiled, held: list[Any] = held) -> None:
            held[0] = jax.block_until_ready(compiled(held[0]))

        yield name, call, updates


def maddpg(team: Team) -> Iterator[tuple[str, Run, int]]:
    """Updates of MADDPG, sample and optimiser included."""
    table = _table(team, CAPACITY)
    return _both(
        lambda state, key: _learn(team, state, table, CAPACITY, key),
        _begin(team, jax.random.key(0)),
    )


def _reset(key: Any, copies: int, agents: int) -> tuple[Any, Any, Any]:
    """Positions of agents, their velocities, positions of landmarks, (E, M, 2) each."""
    places = jax.random.uniform(key, (2, copies, agents, 2), minval=-1.0, maxval=1.0)
    return places[0], jnp.zeros_like(places[0]), places[1]


def _observe(place: Any, velocity: Any, landmarks: Any) -> Any:
    """Own velocity and position, landmarks and others relative to it, shape (E, M, O)."""
    agents = place.shape[1]
    others = jnp.array([[k for k in range(agents) if k != i] for i in range(agents)])
    marks = landmarks[:, None] - place[:, :, None]
    near = place[:, others] - place[:, :, None]
    flat = (*place.shape[:2], -1)
    return jnp.concatenate([velocity, place, marks.reshape(flat), near.reshape(flat)], 2)


def _move(world: tuple[Any, Any, Any], action: Any) -> tuple[tuple[Any, Any, Any], Any]:
    """Advance the task by a step; also return the shared reward, shape (E,)."""
    place, velocity, landmarks = world
    agents = place.shape[1]
    line = place[:, :, None] - place[:, None]
    distance = jnp.sqrt(jnp.square(line).sum(-1)) + jnp.eye(agents)
    soft = jnp.logaddexp(0.0, (2 * RADIUS - distance) / MARGIN) * MARGIN
    push = (CONTACT * line / distance[..., None] * soft[..., None]).sum(2)
    force = 5.0 * (action[..., 1::2] - action[..., 2::2]) + push
    velocity = 0.75 * velocity + 0.1 * force
    place = place + 0.1 * velocity
    apart = jnp.sqrt(jnp.square(place[:, :, None] - place[:, None]).sum(-1))
    gaps = jnp.sqrt(jnp.square(place[:, :, None] - landmarks[:, None]).sum(-1))
    touches = (apart < 2 * RADIUS).sum((1, 2))
    return (place, velocity, landmarks), -agents * gaps.min(1).sum(1) - touches


def whole(
    team: Team, *, copies: int, warmup: int, capacity: int, iterations: int
) -> tuple[Run, Callable[[], float]]:
    """Compile a whole run: a call that trains on, and one that gives the mean greedy return.

    Returns are summed over agents.
    """
    capacity = capacity // copies * copies

    def play(carry: Any, key: Any) -> tuple[Any, Any]:
        state, world, table, count = carry
        draw, begin = jax.random.split(key)
        seen = _observe(*world)
        action = _drawn(draw, _policy(state["online"]["policy"], seen)).swapaxes(0, 1)
        world, reward = _move(world, action)
        earned = jnp.broadcast_to(reward[:, None], action.shape[:2])
        rows = {"seen": seen, "acted": action, "earned": earned, "after": _observe(*world)}
        start = count * copies % capacity
        put = partial(lax.dynamic_update_slice_in_dim, start_index=start, axis=0)
        table = {name: put(table[name], rows[name]) for name in table}
        new = _reset(begin, copies, team.agents)
        over = (count + 1) % HORIZON == 0
        world = jax.tree.map(lambda fresh, old: jnp.where(over, fresh, old), new, world)
        return (state, world, table, count + 1), None

    def iterate(carry: Any, key: Any) -> tuple[Any, Any]:
        playing, learning = jax.random.split(key)
        (state, world, table, count), _ = play(carry, playing)
        filled = jnp.minimum(count * copies, capacity)
        return (_learn(team, state, table, filled, learning), world, table, count), None

    keys = jax.random.split(jax.random.key(3), 4)
    shapes = jax.eval_shape(lambda: _table(team, capacity))
    table = jax.tree.map(lambda rows: jnp.zeros(rows.shape), shapes)
    world = _reset(keys[1], copies, team.agents)
    carry = (_begin(team, keys[0]), world, table, jnp.zeros((), jnp.int32))
    carry, _ = jax.jit(partial(lax.scan, play))(
        carry, jax.random.split(keys[2], -(-warmup // copies))
    )
    held = [carry, keys[3]]
    run = jax.jit(partial(lax.scan, iterate))

    def train() -> None:
        held[1], own = jax.random.split(held[1])
        held[0], _ = jax.block_until_ready(run(held[0], jax.random.split(own, iterations)))

    return train, lambda: float(_greedy_return(team, held[0][0]["online"]["policy"]))


@partial(jax.jit, static_argnums=0)
def _greedy_return(team: Team, policy: Any) -> Any:
    def step(world: Any, _: Any) -> tuple[Any, Any]:
        best = _policy(policy, _observe(*world)).argmax(-1).T
        return _move(world, jax.nn.one_hot(best, ACTIONS))

    begun = _reset(jax.random.key(4), EPISODES, team.agents)
    _, rewards = lax.scan(step, begun, length=HORIZON)
    return team.agents * rewards.sum() / EPISODES


def _linear(key: Any, into: int, out: int) -> tuple[Any, Any]:
    bound, (own, other) = into**-0.5, jax.random.split(key)
    draw = partial(jax.random.uniform, minval=-bound, maxval=bound)
    return draw(own, (into, out)), draw(other, (out,))


def _applied(layer: Any, inputs: Any) -> Any:
    return inputs @ layer[0] + layer[1]


def _values(nets: Any, inputs: Any) -> Any:
    """Action values of a recurrent network over (steps, sequences, entries)."""
    gates = _applied(nets["inputs"], jax.nn.relu(_applied(nets["first"], inputs)))

    def cell(state: Any, given: Any) -> tuple[Any, Any]:
        new, old = (jnp.split(part, 3, -1) for part in (given, _applied(nets["state"], state)))
        reset, keep = (jax.nn.sigmoid(new[gate] + old[gate]) for gate in (0, 1))
        state = keep * state + (1 - keep) * jnp.tanh(new[2] + reset * old[2])
        return state, state

    begin = jnp.zeros((inputs.shape[1], gates.shape[-1] // 3))
    return _applied(nets["last"], lax.scan(cell, begin, gates)[1])


def _mixed(nets: Any, values: Any, state: Any) -> Any:
    """Value of the team, (steps, episodes), of the agents' own, (steps, episodes, n)."""

    def hyper(name: str) -> Any:
        return _applied(nets[name + "2"], jax.nn.relu(_applied(nets[name + "1"], state)))

    weights = jnp.abs(hyper("weights")).reshape(*values.shape, -1)
    hidden = jax.nn.elu(
        jnp.einsum("tbn,tbne->tbe", values, weights) + _applied(nets["bias"], state)
    )
    return (hidden * jnp.abs(hyper("out"))).sum(-1) + hyper("value")[..., 0]


def qmix(
    *, agents: int, inputs: int, state: int, actions: int, episodes: int, steps: int, hidden: int
) -> Iterator[tuple[str, Run, int]]:
    """Updates of QMIX with double Q-learning on random episodes of equal length."""
    sizes = {"first": (inputs, hidden), "last": (hidden, actions), "bias": (state, 32)}
    sizes |= {"inputs": (hidden, 3 * hidden), "state": (hidden, 3 * hidden)}
    sizes |= {"weights1": (state, 64), "weights2": (64, agents * 32), "out1": (state, 64)}
    sizes |= {"out2": (64, 32), "value1": (state, 32), "value2": (32, 1)}
    keys = jax.random.split(jax.random.key(0), len(sizes) + 4)
    nets = {
        name: _linear(key, *size) for key, (name, size) in zip(keys, sizes.items(), strict=False)
    }
    seen = jax.random.normal(keys[-1], (steps + 1, episodes * agents, inputs))
    states = jax.random.normal(keys[-2], (steps + 1, episodes, state))
    acted = jax.random.randint(keys[-3], (steps, episodes, agents), 0, actions)
    earned = jax.random.normal(keys[-4], (steps, episodes))

    def taken(values: Any, action: Any) -> Any:
        return jnp.take_along_axis(values, action[..., None], -1)[..., 0]

    def loss(online: Any, target: Any) -> Any:
        own, later = (
            _values(each, seen).reshape(steps + 1, episodes, agents, actions)
            for each in (online, target)
        )
        best = taken(later[1:], lax.stop_gradient(own[1:]).argmax(-1))
        expected = earned + 0.99 * _mixed(target, best, states[1:])
        return jnp.square(_mixed(online, taken(own[:-1], acted), states[:-1]) - expected).mean()

    def update(carry: Any, _: Any) -> Any:
        online, target, square, count = carry
        gradients = jax.grad(loss)(online, target)
        norm = jnp.sqrt(sum(jnp.square(each).sum() for each in jax.tree.leaves(gradients)))
        scale, mix = jnp.minimum(1.0, 10.0 / (norm + 1e-6)), jax.tree.map
        square = mix(lambda s, g: 0.99 * s + 0.01 * jnp.square(scale * g), square, gradients)
        online = mix(
            lambda p, g, s: p - 5e-4 * scale * g / (jnp.sqrt(s) + 1e-5), online, gradients, square
        )
        due = (count + 1) % 200 == 0
        target = mix(lambda old, new: jnp.where(due, new, old), target, online)
        return online, target, square, count + 1

    zeros = jax.tree.map(jnp.zeros_like, nets)
    return _both(update, (nets, nets, zeros, jnp.zeros((), jnp.int32)))


def ppo(
    *, agents: int, inputs: int, actions: int, rows: int, hidden: int
) -> Iterator[tuple[str, Run, int]]:
    """Updates of PPO with a policy and a value that all agents share, on a random minibatch."""
    sizes = {"policy1": (inputs, hidden), "policy2": (hidden, hidden), "policy3": (hidden, actions)}
    sizes |= {"value1": (inputs, hidden), "value2": (hidden, hidden), "value3": (hidden, 1)}
    keys = jax.random.split(jax.random.key(0), len(sizes) + 5)
    nets = {
        name: _linear(key, *size) for key, (name, size) in zip(keys, sizes.items(), strict=False)
    }
    seen = jax.random.normal(keys[-1], (rows, agents, inputs))
    acted = jax.random.randint(keys[-2], (rows, agents, 1), 0, actions)
    drawn = [jax.random.normal(key, (rows, agents)) for key in keys[-5:-2]]
    before, value_before, advantage = drawn[0] / 10 - jnp.log(actions), drawn[1], drawn[2]
    returns = advantage + value_before

    def output(online: Any, name: str) -> Any:
        hidden = seen
        for layer in (1, 2):
            hidden = jax.nn.relu(_applied(online[f"{name}{layer}"], hidden))
        return _applied(online[f"{name}3"], hidden)

    def loss(online: Any) -> Any:
        logs, value = jax.nn.log_softmax(output(online, "policy")), output(online, "value")[..., 0]
        ratio = jnp.exp(jnp.take_along_axis(logs, acted, -1)[..., 0] - before)
        own = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        gained = jnp.minimum(ratio * own, ratio.clip(0.8, 1.2) * own).mean()
        near = value_before + (value - value_before).clip(-0.2, 0.2)
        errors = jnp.maximum(jnp.square(value - returns), jnp.square(near - returns)).mean() / 2
        entropy = -(jnp.exp(logs) * logs).sum(-1).mean()
        return 0.5 * errors - gained - 0.01 * entropy

    def update(carry: Any, _: Any) -> Any:
        online, mean, square, count = carry
        gradients, mix, count = jax.grad(loss)(online), jax.tree.map, count + 1
        norm = jnp.sqrt(sum(jnp.square(each).sum() for each in jax.tree.leaves(gradients)))
        scale = 10.0 / jnp.maximum(norm, 10.0)
        mean = mix(lambda m, g: 0.9 * m + 0.1 * scale * g, mean, gradients)
        square = mix(lambda s, g: 0.999 * s + 0.001 * jnp.square(scale * g), square, gradients)
        steps = 5e-4 / (1 - 0.9**count), 1 - 0.999**count
        online = mix(
            lambda p, m, s: p - steps[0] * m / (jnp.sqrt(s / steps[1]) + 1e-5), online, mean, square
        )
        return online, mean, square, count

    zeros = jax.tree.map(jnp.zeros_like, nets)
    return _both(update, (nets, zeros, zeros, jnp.zeros(())))
