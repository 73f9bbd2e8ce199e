"""Joint observations parsed by entity: the agent itself, and others by kind."""

from typing import NamedTuple

import torch
from torch import Tensor

from fullrank_reproduction.entities import Entities, EntityKind


class Others(NamedTuple):
    """Entities of one kind other than the agent itself, in B observations of M agents."""

    features: Tensor
    """Shape (B, M, n, f)."""
    present: Tensor
    """Mask of the filled places, shape (B, M, n) bool."""


class EntityObservations(NamedTuple):
    """B observations of M agents."""

    own: Tensor
    """Shape (B, M, s)."""
    kinds: tuple[Others, ...]

    def rows(self, span: slice) -> "EntityObservations":
        """The observations in ``span``."""
        kinds = tuple(Others(features[span], present[span]) for features, present in self.kinds)
        return EntityObservations(self.own[span], kinds)

    def with_actions(self, actions: Tensor) -> "EntityObservations":
        """The observations with actions, shape (B, M, a), appended to the agents' own entries."""
        return EntityObservations(torch.cat([self.own, actions], dim=-1), self.kinds)


class ObservationParser:
    """Parser of joint observations.

    Args:
        entities: Layout of the observations.
        agents: M.
    """

    def __init__(self, entities: Entities, *, agents: int) -> None:
        self._agents = agents
        self._every = torch.arange(agents)[:, None, None]
        self._own = torch.from_numpy(entities.own)
        self._kinds = [_Places(kind) for kind in entities.kinds]

    def parse(self, observation: Tensor) -> EntityObservations:
        """Parse joint observations of shape (B, sum of observation sizes)."""
        by_agent = observation.view(len(observation), self._agents, -1)
        kinds = []
        for places in self._kinds:
            features = by_agent[:, self._every, places.columns]
            present = places.placed.expand(features.shape[:-1])
            if places.blank:
                present = present & (features != 0).any(dim=-1)
            kinds.append(Others(features, present))
        return EntityObservations(by_agent[..., self._own], tuple(kinds))


class _Places:
    """Places for one kind of entity, as tensors."""

    def __init__(self, kind: EntityKind) -> None:
        self.columns = torch.tensor(kind.columns)
        self.placed = torch.tensor(kind.placed)
        self.blank = kind.blank
