"""The learner of a team: MADDPG with the networks of EPC.

The losses are those of ``fullrank.algorithms.maddpg``, with both gradients at the same parameters,
in environments without terminal states. They are differentiated automatically over all agents at
once, so an agent's bits may depend on the other agents.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from fullrank.algorithms.actor_critic import Hyperparameters
from fullrank.common.seeding import stream
from fullrank.common.types import FloatArray
from fullrank.networks.adam import Adam
from fullrank.replay.layout import Layout
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
        data = self._transitions(torch.from_numpy(batch), iteration)
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

    def _transitions(self, rows: Tensor, iteration: int) -> EntityTransitions:
        layout, parser = self._layout, self._team.parser
        action = rows[:, layout.action].view(len(rows), layout.agents, -1)
        generator = stream(self._seed, "update", iteration)
        (noise,) = self._team.head.draw([generator], (2, *action.shape))
        return EntityTransitions(
            parser.parse(rows[:, layout.observation]),
            action,
            rows[:, layout.reward],
            parser.parse(rows[:, layout.next_observation]),
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
