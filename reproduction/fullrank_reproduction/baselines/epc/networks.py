"""Networks for teams of any size: others share an encoder and are pooled by attention.

[Long20], Sec. 4.1. Each module serves one agent; shapes have any leading axes. Widths are those of
[DARL1N]'s experiments: entities are encoded as e = relu(W2 relu(W1 x)) with 32 entries. Attention
pools the entities of a kind into sum_j softmax_j(e_own . e_j / sqrt(32)) e_j, followed by layer
normalisation and a rectifier.

Differs from the authors' code in that all heads have leaky rectifiers; theirs has plain ones in the
critic's encoders.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from fullrank_reproduction.baselines.epc.entity_observations import EntityObservations

HIDDEN = 64
"""Width of hidden layers."""
WIDTH = 32
"""Width of encodings."""
NEVER = -1e9
"""Score of an absent entity; its exponential is 0."""


class Pool(nn.Module):
    """Attention of one vector to those of n others that are present."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, query: Tensor, others: Tensor, present: Tensor) -> Tensor:
        """Shape (..., WIDTH), from (..., WIDTH), (..., n, WIDTH) and (..., n) bool."""
        scores = (others * query.unsqueeze(-2)).sum(-1) / WIDTH**0.5
        attention = torch.softmax(scores.masked_fill(~present, NEVER), dim=-1) * present
        return torch.relu(self.norm((attention.unsqueeze(-1) * others).sum(-2)))


class EntityNetwork(nn.Module):
    """A network over an agent's observation: the policy, and the encoders of the critic.

    Args:
        own: Entries of the agent itself, with its action for an encoder.
        kinds: Entries of an entity of each kind.
        outputs: Number of outputs.
    """

    def __init__(self, own: int, kinds: Sequence[int], outputs: int) -> None:
        super().__init__()
        self.own = _encoder(own)
        self.kinds = nn.ModuleList(_encoder(size) for size in kinds)
        self.pools = nn.ModuleList(Pool() for _ in kinds)
        self.head = _head(1 + len(kinds), outputs)

    def forward(self, observation: EntityObservations) -> Tensor:
        """Shape (..., outputs)."""
        own = self.own(observation.own)
        pooled = [
            pool(own, encode(others.features), others.present)
            for encode, pool, others in zip(self.kinds, self.pools, observation.kinds, strict=True)
        ]
        outputs: Tensor = self.head(torch.cat([own, *pooled], dim=-1))
        return outputs


class SideEncoders(nn.Module):
    """Encoders of all agents' observations and actions, by side, for one agent's critic.

    Args:
        sides: Agents of each side.
        own: As in ``EntityNetwork``.
        kinds: As in ``EntityNetwork``.
    """

    def __init__(self, sides: Sequence[slice], own: int, kinds: Sequence[int]) -> None:
        super().__init__()
        self.slices = sides
        self.encoders = nn.ModuleList(EntityNetwork(own, kinds, WIDTH) for _ in sides)

    def forward(self, observation: EntityObservations) -> Tensor:
        """Encodings of M agents, shape (B, M, WIDTH)."""
        parts = [
            encode(_of(observation, side))
            for encode, side in zip(self.encoders, self.slices, strict=True)
        ]
        return torch.cat(parts, dim=-2)


class Critic(nn.Module):
    """An agent's value of all observations and actions.

    Attention is computed once between all agents, then from the agent to each side.

    Args:
        sides: Agents of each side.
        own: As in ``EntityNetwork``.
        kinds: As in ``EntityNetwork``.
    """

    def __init__(self, sides: Sequence[slice], own: int, kinds: Sequence[int]) -> None:
        super().__init__()
        self.slices = sides
        self.own = EntityNetwork(own, kinds, WIDTH)
        self.query, self.key, self.content = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.norm = nn.LayerNorm(WIDTH)
        self.pools = nn.ModuleList(Pool() for _ in sides)
        self.head = _head(1 + len(sides), 1)

    def forward(self, observation: EntityObservations, others: Tensor, mine: Tensor) -> Tensor:
        """Values, shape (B,).

        Args:
            observation: Observation and action of the agent, without an axis of agents.
            others: Output of ``SideEncoders``, shape (B, M, WIDTH).
            mine: Mask of the agent itself, shape (M,) bool.
        """
        own = self.own(observation)
        team = torch.where(mine.unsqueeze(-1), own.unsqueeze(-2), others)
        scores = self.query(team) @ self.key(team).transpose(-1, -2)
        attended = torch.softmax(scores / WIDTH**0.5, dim=-1) @ self.content(team)
        attended = torch.relu(self.norm(attended))
        query = (attended * mine.unsqueeze(-1)).sum(-2)
        pooled = [
            pool(query, attended[..., side, :], ~mine[side])
            for pool, side in zip(self.pools, self.slices, strict=True)
        ]
        value: Tensor = self.head(torch.cat([own, *pooled], dim=-1)).squeeze(-1)
        return value


def _of(observation: EntityObservations, side: slice) -> EntityObservations:
    """The observation of one side."""
    kinds = tuple(type(others)(*(part[:, side] for part in others)) for others in observation.kinds)
    return EntityObservations(observation.own[:, side], kinds)


def _encoder(size: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(size, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, WIDTH), nn.ReLU())


def _head(vectors: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(vectors * WIDTH, HIDDEN),
        nn.LeakyReLU(),
        nn.Linear(HIDDEN, HIDDEN),
        nn.LeakyReLU(),
        nn.Linear(HIDDEN, outputs),
    )
