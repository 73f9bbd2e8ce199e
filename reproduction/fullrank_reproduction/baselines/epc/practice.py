"""One run of a team: collect, learn and evaluate.

The losses are those of ``fullrank.algorithms.maddpg``, with both gradients at the same parameters,
in environments without terminal states. They are differentiated automatically over all agents at
once, so an agent's bits may depend on the other agents.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import ceil
from typing import NamedTuple

import torch
from torch import Tensor

from fullrank.algorithms.actor_critic import Hyperparameters
from fullrank.algorithms.base import layout_of
from fullrank.common.errors import ConfigError
from fullrank.common.seeding import derive, stream
from fullrank.common.types import FloatArray
from fullrank.environments.base import Environment
from fullrank.networks.adam import Adam
from fullrank.replay.layout import Layout
from fullrank.replay.samplers import Sample
from fullrank.replay.storage import MemoryStorage
from fullrank.replay.table import TABLE, Table
from fullrank.training.evaluation import Greedy, evaluate
from fullrank.training.rollouts import Rollout
from fullrank_reproduction.baselines.epc.entity_observations import EntityObservations
from fullrank_reproduction.baselines.epc.networks import HIDDEN
from fullrank_reproduction.baselines.epc.team import Team

CHUNK_ENTRIES = 2**22
"""Largest number of entries, over all agents and entities, computed at a time."""


class EntityTransitions(NamedTuple):
    """Transitions of M agents, and the noise of their new actions."""

    observation: EntityObservations
    action: Tensor
    """Shape (B, M, actions)."""
    reward: Tensor
    """Shape (B, M)."""
    next_observation: EntityObservations
    noise: Tensor
    """Noise of the next and the new actions, shape (2, B, M, actions)."""

    def rows(self, span: slice) -> "EntityTransitions":
        """The transitions in ``span``."""
        return EntityTransitions(
            self.observation.rows(span),
            self.action[span],
            self.reward[span],
            self.next_observation.rows(span),
            self.noise[:, span],
        )


class Learner:
    """Optimises a team's networks.

    Args:
        team: The team, which is updated.
        layout: Layout of its transitions.
        config: Hyperparameters; ``hidden`` and ``exploration_noise`` have no effect.
        seed: Seed of the draws.
    """

    def __init__(self, team: Team, layout: Layout, config: Hyperparameters, *, seed: int) -> None:
        self._team, self._layout, self._config, self._seed = team, layout, config, seed
        self._adam = Adam(learning_rate=config.learning_rate, target_rate=config.target_rate)
        self._steps = 0

    def update(self, batch: FloatArray, *, iteration: int) -> None:
        """One step of all networks, then of their targets.

        Args:
            batch: Packed transitions, shape (B, row_size).
            iteration: Keys the draws.
        """
        networks = self._team.networks
        data = self._transitions(batch, iteration)
        leaves = {name: own.rows.online.detach().requires_grad_() for name, own in networks.items()}
        gradients = [torch.zeros_like(leaf) for leaf in leaves.values()]
        length = self._chunk_length(data.observation)
        for start in range(0, len(batch), length):
            loss = self._loss(leaves, data.rows(slice(start, start + length)))
            for total, part in zip(
                gradients, torch.autograd.grad(loss, list(leaves.values())), strict=True
            ):
                total += part / len(batch)
        self._steps += 1
        for own, gradient in zip(networks.values(), gradients, strict=True):
            own.step(gradient, self._adam, count=self._steps, clip_norm=self._config.clip_norm)

    def _transitions(self, batch: FloatArray, iteration: int) -> EntityTransitions:
        layout, parser, rows = self._layout, self._team.parser, torch.from_numpy(batch)
        observation, next_observation = (
            parser.parse(torch.from_numpy(layout.whole(batch[:, part])))
            for part in (layout.observation, layout.next_observation)
        )
        action = rows[:, layout.action].view(len(rows), layout.agents, -1)
        generator = stream(self._seed, "update", iteration)
        (noise,) = self._team.head.draw([generator], (2, *action.shape))
        return EntityTransitions(
            observation,
            action,
            rows[:, layout.reward],
            next_observation,
            torch.from_numpy(noise),
        )

    @staticmethod
    def _chunk_length(observation: EntityObservations) -> int:
        """Number of transitions computed at a time."""
        agents = observation.own.shape[1]
        entities = 1 + sum(others.present.shape[2] for others in observation.kinds)
        return max(1, CHUNK_ENTRIES // (HIDDEN * entities * agents**2))

    def _loss(self, leaves: dict[str, Tensor], data: EntityTransitions) -> Tensor:
        """Sum of all losses; each agent's depends on its own networks alone."""
        team, config = self._team, self._config
        joint = data.observation.with_actions(data.action)
        others = team.encode(leaves["encoder"], joint)
        error = self._expected(data) - team.values(leaves["critic"], joint, others)
        logits = team.logits(leaves["policy"], data.observation)
        action = torch.softmax(logits.transpose(0, 1) + data.noise[1], dim=-1)
        own = data.observation.with_actions(action)
        value = team.values(leaves["critic"].detach(), own, others.detach())
        penalty = config.logit_penalty * logits.square().mean(dim=-1)
        return error.square().sum() - value.sum() + penalty.sum()

    @torch.no_grad()
    def _expected(self, data: EntityTransitions) -> Tensor:
        """r_i + discount Q'_i(s', a'), shape (M, B)."""
        team = self._team
        target = {name: own.rows.target for name, own in team.networks.items()}
        logits = team.logits(target["policy"], data.next_observation)
        action = torch.softmax(logits.transpose(0, 1) + data.noise[0], dim=-1)
        joint = data.next_observation.with_actions(action)
        value = team.values(target["critic"], joint, team.encode(target["encoder"], joint))
        return data.reward.t() + self._config.discount * value


WARM_UP = -1
"""The iteration that keys the exploration of the warm-up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Practice:
    """Settings of collection, learning and evaluation; by default the authors'."""

    copies: int = 25
    """E, the number of environments stepped together."""
    steps: int = 4
    """Steps of each environment in an iteration, which makes one update."""
    warmup: int = 25_600
    """Transitions collected before the first iteration."""
    capacity: int = 100_000
    """Most transitions held."""
    evaluate_every: int = 100
    """Iterations between evaluations; there is also one before the first and one after the last."""
    episodes: int = 10
    """Episodes of an evaluation."""
    learning: Hyperparameters = field(default_factory=Hyperparameters)
    """Hyperparameters; ``hidden`` and ``exploration_noise`` have no effect."""

    def __post_init__(self) -> None:
        for key in ("copies", "steps", "warmup", "capacity", "evaluate_every", "episodes"):
            if getattr(self, key) < 1:
                raise ConfigError(f"practice.{key} must be at least 1: {getattr(self, key)}")


class Point(NamedTuple):
    """An evaluation without exploration."""

    iteration: int
    """Number of updates before the evaluation."""
    seconds: float
    """Seconds of the iterations before it, without evaluations."""
    mean_return: float
    """Mean return of an episode, summed over the team; in a contest, over the last agent's side."""


def practise(
    team: Team,
    world: Environment,
    court: Environment,
    practice: Practice,
    *,
    iterations: int,
    seed: int,
    evaluation_seed: int,
    clock: Callable[[], float],
) -> Iterator[Point]:
    """Train a team.

    Args:
        team: The team, which is updated.
        world: Environment for training.
        court: Environment for evaluation.
        practice: Settings.
        iterations: Number of iterations.
        seed: Seed of collection and draws.
        evaluation_seed: Seed of evaluations, combined with the iteration.
        clock: Processor clock.

    Yields:
        Every evaluation.
    """
    lesson = _Lesson(team, world, practice, iterations=iterations, seed=seed)
    begun, seconds = clock(), 0.0
    lesson.collect(ceil(practice.warmup / practice.copies), WARM_UP)
    for iteration in range(iterations + 1):
        if iteration % practice.evaluate_every == 0 or iteration == iterations:
            seconds += clock() - begun
            draw = derive(evaluation_seed, "learning_curve", iteration)
            played = evaluate(court, Greedy(team), practice.episodes, draw)
            judged = played.side_returns[court.agents[-1].side]
            yield Point(iteration, seconds, float(judged.mean()))
            begun = clock()
        if iteration < iterations:
            lesson.collect(practice.steps, iteration)
            lesson.update(iteration)


class _Lesson:
    """State of a run other than its team: episodes, transitions, optimiser."""

    def __init__(
        self, team: Team, world: Environment, practice: Practice, *, iterations: int, seed: int
    ) -> None:
        layout = layout_of(world.agents)
        self._seed, self._batch_size = seed, practice.learning.batch_size
        self._rollout = Rollout(world, team, layout, seed=seed)
        self._learner = Learner(team, layout, practice.learning, seed=seed)
        self._table = _table(layout, practice, iterations=iterations)

    def collect(self, steps: int, iteration: int) -> None:
        """Collect the transitions of ``steps`` steps."""
        self._table.append(self._table.head, self._rollout.collect(steps, iteration).rows)

    def update(self, iteration: int) -> None:
        """Update from a minibatch."""
        sample = Sample(
            table=TABLE,
            seed=self._seed,
            iteration=iteration,
            tail=self._table.tail,
            head=self._table.head,
            size=self._batch_size,
        )
        self._learner.update(self._table.minibatch(sample), iteration=iteration)


def _table(layout: Layout, practice: Practice, *, iterations: int) -> Table:
    """A table for all transitions of the run, up to the capacity."""
    warmup = ceil(practice.warmup / practice.copies) * practice.copies
    filled = warmup + iterations * practice.copies * practice.steps
    capacity = min(practice.capacity, filled)
    return Table(MemoryStorage(capacity, layout.row_size), capacity=capacity)
