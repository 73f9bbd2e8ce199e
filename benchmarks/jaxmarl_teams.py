"""IPPO and PQN-VDN on JaxMARL's ``simple_spread``, as JaxMARL's baselines state them.

Peers of ``learns_peers.py``. The package brings environments but no algorithms; these follow
``ippo_ff_mpe`` and ``pqn_vdn_ff`` of JaxMARL's repository: losses, networks, optimisers, schedules,
and what is jitted, the whole of a training. Two rules of the task are Fullrank's, so that policies
can be judged in Fullrank's world: velocities move before positions, and episodes have 25 steps.
Rewards are JaxMARL's; a return of Fullrank is 6 times their sum over agents, minus 225.
"""

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Literal, NamedTuple, TypeAlias

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")

import jax
import numpy as np
import optax
from flax import linen as nn
from jax import numpy as jnp
from jaxmarl.environments.mpe.simple_spread import SimpleSpreadMPE

from fullrank.common.types import FloatArray
from fullrank.training.evaluation import Act

AGENTS, STEPS, ACTIONS, SEEN = 3, 25, 5, 18
OURS = [0, 2, 1, 4, 3]
"""Fullrank's number of each of JaxMARL's actions: none, -x, +x, -y, +y."""

Look: TypeAlias = Callable[[int, int, Act], None]
Step: TypeAlias = Callable[[Any], Any]

Settings: TypeAlias = Mapping[str, Any]
SETTINGS: Mapping[str, Settings] = {
    "ippo": {"rate": 1e-3, "minibatches": 8, "epochs": 4, "hidden": 64, "discount": 0.9},
    "pqn": {"rate": 1e-3, "minibatches": 4, "epochs": 2, "hidden": 128, "discount": 0.9},
}
"""What differs from JaxMARL's own settings, beside 256 copies and 1.5 million steps."""
OWN: Mapping[str, Settings] = {
    "ippo": {"trace": 0.95, "clip": 0.2, "value_clip": 0.2, "entropy": 0.01, "steps": 1_500_000},
    "pqn": {"trace": 0.3, "steps": 1_500_000},
}
"""JaxMARL's own settings, and the steps of a training, that others than these may change."""
TUNED = ("rate", "trace", "discount")
COPIES = 256


class Spread(SimpleSpreadMPE):  # type: ignore[misc]
    """The task with Fullrank's order of motion and number of steps."""

    def __init__(self) -> None:
        super().__init__(num_agents=AGENTS, num_landmarks=AGENTS, max_steps=STEPS - 1)

    def _integrate_state(
        self, force: Any, position: Any, velocity: Any, mass: Any, moveable: Any, most: Any
    ) -> tuple[Any, Any]:
        force = force / mass[:, None] * moveable[:, None]
        velocity = velocity * (1 - self.damping) + force * self.dt
        return position + velocity * self.dt, velocity


class Policy(nn.Module):  # type: ignore[misc]
    """Perceptrons of logits and of a value."""

    hidden: int

    @nn.compact  # type: ignore[untyped-decorator]
    def __call__(self, seen: Any) -> tuple[Any, Any]:
        def perceptron(outputs: int, scale: float) -> Any:
            found = seen
            for width, gain in ((self.hidden, 2**0.5), (self.hidden, 2**0.5), (outputs, scale)):
                found = nn.Dense(width, kernel_init=nn.initializers.orthogonal(gain))(found)
                found = nn.tanh(found) if width == self.hidden else found
            return found

        return perceptron(ACTIONS, 0.01), perceptron(1, 1.0)[..., 0]


class Values(nn.Module):  # type: ignore[misc]
    """Values of actions."""

    hidden: int

    @nn.compact  # type: ignore[untyped-decorator]
    def __call__(self, seen: Any) -> Any:
        for _ in range(2):
            seen = nn.relu(nn.LayerNorm()(nn.Dense(self.hidden)(seen)))
        return nn.Dense(ACTIONS)(seen)


class Carry(NamedTuple):
    """State of a training between two collections."""

    parameters: Any
    optimiser: Any
    world: Any
    seen: Any
    """Observations, shape (copies, agents, entries)."""
    key: Any
    done: Any
    """Number of collections."""
    tuned: Any
    """Settings that are no part of what is compiled, by name."""


class Team(ABC):
    """A training by collections; subclasses state how a collection is played and learnt from."""

    steps: int
    """Steps of a collection, of each copy."""

    def __init__(self, settings: Settings, network: nn.Module, inputs: int, rule: Any) -> None:
        self.settings, self.world = settings, Spread()
        self.network, self.inputs, self.rule = network, inputs, rule

    def begin(self, seed: int, tuned: Settings) -> Carry:
        """Return the state before the first collection, with settings of ``TUNED``."""
        key, initial, reset = jax.random.split(jax.random.PRNGKey(seed), 3)
        parameters = self.network.init(initial, jnp.zeros((1, self.inputs)))
        seen, world = jax.vmap(self.world.reset)(jax.random.split(reset, COPIES))
        numbers = {name: jnp.float32(value) for name, value in tuned.items()}
        return Carry(parameters, self.rule.init(parameters), world, joint(seen), key, 0, numbers)

    def stepped(self, carry: Carry, key: Any, action: Any) -> tuple[Carry, Any, Any]:
        """Step all copies; returns rewards (copies, agents) and ends (copies,)."""
        actions = {name: action[:, i] for i, name in enumerate(self.world.agents)}
        keys = jax.random.split(key, COPIES)
        seen, world, reward, done, _ = jax.vmap(self.world.step)(keys, carry.world, actions)
        return carry._replace(world=world, seen=joint(seen)), joint(reward), done["__all__"]

    def learn(self, carry: Carry, batch: Any, loss: Callable[[Any, Any], Any]) -> Carry:
        """Pass over a batch in shuffled minibatches."""
        count, size = self.settings["minibatches"], len(jax.tree.leaves(batch)[0])

        def update(state: tuple[Any, Any], part: Any) -> tuple[Any, None]:
            parameters, optimiser = state
            gradient = jax.grad(loss)(parameters, part)
            moved, optimiser = self.rule.update(gradient, optimiser, parameters)
            moved = jax.tree.map(lambda each: -carry.tuned["rate"] * each, moved)
            return (optax.apply_updates(parameters, moved), optimiser), None

        def epoch(state: tuple[Any, Any], key: Any) -> tuple[Any, None]:
            order = jax.random.permutation(key, size)
            parts = jax.tree.map(lambda x: x[order].reshape(count, -1, *x.shape[1:]), batch)
            return jax.lax.scan(update, state, parts)[0], None

        key, own = jax.random.split(carry.key)
        keys = jax.random.split(own, self.settings["epochs"])
        state, _ = jax.lax.scan(epoch, (carry.parameters, carry.optimiser), keys)
        return carry._replace(parameters=state[0], optimiser=state[1], key=key, done=carry.done + 1)

    @abstractmethod
    def collection(self, carry: Carry) -> Carry:
        """Play a collection and learn from it."""

    @abstractmethod
    def scores(self, parameters: Any, seen: Any) -> Any:
        """Return what a greedy policy maximises, shape (copies, agents, actions)."""


class IPPO(Team):
    """``ippo_ff_mpe``: 25 steps of every copy, generalised advantages, clipped losses."""

    steps = STEPS

    def __init__(self, own: Settings) -> None:
        updates = own["steps"] // (COPIES * self.steps) * own["minibatches"] * own["epochs"]
        falling = optax.scale_by_schedule(optax.linear_schedule(1.0, 0.0, updates))
        adam = optax.scale_by_adam(eps=1e-5)
        rule = optax.chain(optax.clip_by_global_norm(0.5), adam, falling)
        super().__init__(own, Policy(own["hidden"]), SEEN, rule)

    def collection(self, carry: Carry) -> Carry:
        discount, trace = carry.tuned["discount"], carry.tuned["trace"]

        def step(carry: Carry, _: None) -> tuple[Carry, Any]:
            key, draw, move = jax.random.split(carry.key, 3)
            logits, value = self.network.apply(carry.parameters, carry.seen)
            action = jax.random.categorical(draw, logits)
            taken = log_likelihood(logits, action)
            after, reward, done = self.stepped(carry._replace(key=key), move, action)
            return after, (carry.seen, action, taken, value, reward, done[:, None])

        carry, played = jax.lax.scan(step, carry, None, self.steps)
        seen, action, taken, value, reward, done = played
        last = self.network.apply(carry.parameters, carry.seen)[1]

        def advantage(later: tuple[Any, Any], own: Any) -> tuple[Any, Any]:
            (found, following), (value, reward, done) = later, own
            goes_on = discount * (1.0 - done)
            found = reward + goes_on * following - value + goes_on * trace * found
            return (found, value), found

        zero = jnp.zeros_like(last)
        _, gained = jax.lax.scan(advantage, (zero, last), (value, reward, done), reverse=True)
        batch = seen, action, taken, value, gained, gained + value
        flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[3:]), batch)
        return self.learn(carry, flat, self.loss)

    def loss(self, parameters: Any, part: Any) -> Any:
        seen, action, before, old, gained, target = part
        logits, value = self.network.apply(parameters, seen)
        ratio = jnp.exp(log_likelihood(logits, action) - before)
        gained = (gained - gained.mean()) / (gained.std() + 1e-8)
        clip, entropy_weight = self.settings["clip"], self.settings["entropy"]
        near_by = self.settings["value_clip"]
        policy = jnp.minimum(ratio * gained, ratio.clip(1 - clip, 1 + clip) * gained).mean()
        near = old + (value - old).clip(-near_by, near_by) if near_by else value
        errors = jnp.maximum((value - target) ** 2, (near - target) ** 2).mean()
        every = jax.nn.log_softmax(logits)
        entropy = -(jnp.exp(every) * every).sum(-1).mean()
        return -policy + 0.5 * 0.5 * errors - entropy_weight * entropy

    def scores(self, parameters: Any, seen: Any) -> Any:
        return self.network.apply(parameters, seen)[0]


class PQN(Team):
    """``pqn_vdn_ff``: 4 steps of every copy, Q(lambda), the sum of the agents' values."""

    steps = 4

    def __init__(self, own: Settings) -> None:
        self.collections = own["steps"] // (COPIES * self.steps)
        rule = optax.chain(optax.clip_by_global_norm(1.0), optax.scale_by_radam())
        super().__init__(own, Values(own["hidden"]), SEEN + AGENTS, rule)

    def values(self, parameters: Any, seen: Any) -> Any:
        who = jnp.broadcast_to(jnp.eye(AGENTS), (*seen.shape[:-1], AGENTS))
        return self.network.apply(parameters, jnp.concatenate([seen, who], -1))

    def collection(self, carry: Carry) -> Carry:
        epsilon = optax.linear_schedule(1.0, 0.1, 0.08 * self.collections)(carry.done)
        discount, trace = carry.tuned["discount"], carry.tuned["trace"]

        def step(carry: Carry, _: None) -> tuple[Carry, Any]:
            key, draw, chance, move = jax.random.split(carry.key, 4)
            values = self.values(carry.parameters, carry.seen)
            best, shape = values.argmax(-1), values.shape[:-1]
            free = jax.random.randint(draw, shape, 0, ACTIONS)
            action = jnp.where(jax.random.uniform(chance, shape) < epsilon, free, best)
            after, reward, done = self.stepped(carry._replace(key=key), move, action)
            most = values.max(-1).sum(-1)
            return after, (carry.seen, action, reward.sum(-1), done, most)

        carry, (seen, action, reward, done, most) = jax.lax.scan(step, carry, None, self.steps)
        last = self.values(carry.parameters, carry.seen).max(-1).sum(-1)

        def target(later: tuple[Any, Any], own: Any) -> tuple[Any, Any]:
            (found, following), (reward, done, value) = later, own
            mixed = (1 - trace) * following + trace * found
            found = reward + discount * (1.0 - done) * mixed
            return (found, value), found

        _, targets = jax.lax.scan(target, (last, last), (reward, done, most), reverse=True)
        batch = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), (seen, action, targets))
        return self.learn(carry, batch, self.loss)

    def loss(self, parameters: Any, part: Any) -> Any:
        seen, action, targets = part
        values = self.values(parameters, seen)
        taken = jnp.take_along_axis(values, action[..., None], -1)[..., 0].sum(-1)
        return ((taken - targets) ** 2).mean()

    scores = values


def joint(by_agent: Mapping[str, Any]) -> Any:
    """Return what agents have, one after another along the second axis."""
    return jnp.stack([*by_agent.values()], 1)


def log_likelihood(logits: Any, action: Any) -> Any:
    """Return the log-probability of actions."""
    return jnp.take_along_axis(jax.nn.log_softmax(logits), action[..., None], -1)[..., 0]


@cache
def compiled_of(name: str, own: tuple[tuple[str, Any], ...]) -> tuple[Team, Step, Any]:
    """Return a team, what plays and learns from some 25,600 steps, and the scores of actions."""
    team = (IPPO if name == "ippo" else PQN)(dict(own))

    def many(carry: Carry) -> Any:
        return jax.lax.fori_loop(0, 100 // team.steps, lambda _, own: team.collection(own), carry)

    carry = team.begin(0, dict.fromkeys(TUNED, 0.0))
    return team, jax.jit(many).lower(carry).compile(), jax.jit(team.scores)


def train(
    look: Look,
    start: Callable[[float], None],
    name: Literal["ippo", "pqn"],
    *,
    seed: int,
    **settings: float,
) -> None:
    """Train a team, evaluated between calls of about 25,600 steps.

    Args:
        look: Takes environment steps, updates, and the greedy policy.
        start: Called when all is compiled, with the CPU seconds that this took.
        name: Algorithm.
        seed: Keys all draws.
        settings: In place of those of ``SETTINGS`` and ``OWN``.
    """
    before, own = time.process_time(), {**OWN[name], **SETTINGS[name], **settings}
    tuned = {key: own.pop(key) for key in TUNED}
    team, compiled, scores = compiled_of(name, tuple(own.items()))
    carry, collections = team.begin(seed, tuned), 100 // team.steps
    start(time.process_time() - before)

    def act(observation: FloatArray, available: Any = None, /) -> FloatArray:
        seen = observation.reshape(len(observation), AGENTS, SEEN)
        best = np.asarray(scores(carry.parameters, seen)).argmax(-1)
        joint_action: FloatArray = np.eye(ACTIONS, dtype=np.float32)[OURS][best]
        return joint_action.reshape(len(seen), -1)

    for call in range(1, own["steps"] // (collections * COPIES * team.steps) + 1):
        carry = jax.block_until_ready(compiled(carry))
        updates = call * collections * own["minibatches"] * own["epochs"]
        look(call * collections * COPIES * team.steps, updates, act)
