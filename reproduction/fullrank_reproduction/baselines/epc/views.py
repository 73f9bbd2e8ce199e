"""Joint observations, taken apart into what each agent sees: itself, and others by kind."""

from typing import NamedTuple

import torch
from torch import Tensor

from fullrank_reproduction.entities import Entities, Kind


class Others(NamedTuple):
    """Others of one kind, as M agents see them in B observations."""

    features: Tensor
    """Shape (B, M, n, f)."""
    present: Tensor
    """Whether somebody is in a place, shape (B, M, n) bool."""


class View(NamedTuple):
    """What M agents see in B observations."""

    own: Tensor
    """Shape (B, M, s)."""
    kinds: tuple[Others, ...]

    def rows(self, span: slice) -> "View":
        """Some of the observations."""
        kinds = tuple(Others(features[span], present[span]) for features, present in self.kinds)
        return View(self.own[span], kinds)

    def with_actions(self, actions: Tensor) -> "View":
        """What agents see and do; actions of shape (B, M, a) go with their own entries."""
        return View(torch.cat([self.own, actions], dim=-1), self.kinds)


class Eyes:
    """Takes joint observations apart.

    Args:
        entities: What stands where.
        agents: M.
    """

    def __init__(self, entities: Entities, *, agents: int) -> None:
        self._agents = agents
        self._every = torch.arange(agents)[:, None, None]
        self._own = torch.from_numpy(entities.own)
        self._kinds = [_Places(kind) for kind in entities.kinds]

    def view(self, observation: Tensor) -> View:
        """What agents see in joint observations of shape (B, sum of observation sizes)."""
        by_agent = observation.view(len(observation), self._agents, -1)
        kinds = []
        for places in self._kinds:
            features = by_agent[:, self._every, places.columns]
            present = places.placed.expand(features.shape[:-1])
            if places.blank:
                present = present & (features != 0).any(dim=-1)
            kinds.append(Others(features, present))
        return View(by_agent[..., self._own], tuple(kinds))


class _Places:
    """A kind's places as tensors."""

    def __init__(self, kind: Kind) -> None:
        self.columns = torch.tensor(kind.columns)
        self.placed = torch.tensor(kind.placed)
        self.blank = kind.blank
