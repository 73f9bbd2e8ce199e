"""Parameters of agents as rows of flat buffers, and their broadcast sections."""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import product

import numpy as np
import torch
from torch import Tensor

from fullrank.common.types import FloatArray
from fullrank.networks.adam import AdamState

ALIGNMENT = 16
"""Number of float32 entries in 64 bytes; every row starts on such a boundary."""

EXPONENT = "exponent"
"""Role of the sections that hold one number instead of a network: the exponent of a group's sums,
by which learners scale its updates down."""

BOUND = 2.0**63
"""Magnitude of a parameter from which on the product of two overflows float32."""


def aligned(size: int) -> int:
    """Round ``size`` up to an odd multiple of ``ALIGNMENT``.

    The multiple is odd because rows whose length is a power of two map to the same cache sets:
    weight gradients over 1024 columns take 1.3 times as long as over 1040.
    """
    return (-(-size // ALIGNMENT) | 1) * ALIGNMENT


class ParameterGroup:
    """Agents with networks of equal shape; an agent's networks lie one after another in its row.

    The update of an agent's networks has exactly the order and the length of its online row.

    Args:
        agents: Indices of the agents, ascending; row r belongs to ``agents[r]``.
        networks: Columns of each network by role, in storage order.
        device: Device of the parameters.

    Attributes:
        agents: Indices of the agents.
        networks: Columns of each network by role.
        size: Entries of a row without its padding.
        rows: Parameters, targets and moments on the device, each (agents, padded size).
    """

    def __init__(
        self, agents: Sequence[int], networks: Mapping[str, slice], *, device: torch.device
    ) -> None:
        self.agents, self.networks = tuple(agents), dict(networks)
        self.size = max(columns.stop for columns in self.networks.values())
        shape = (len(self.agents), aligned(self.size))
        self.rows = AdamState(*(torch.zeros(shape, device=device) for _ in range(4)))
        self._host = (self.rows.online.cpu(), self.rows.target.cpu())  # the same tensors on a CPU
        self._behind = False

    @property
    def host(self) -> tuple[Tensor, Tensor]:
        """Return parameters and targets in host memory, copied from the device if they changed."""
        if self._behind:
            self._host[0].copy_(self.rows.online)
            self._host[1].copy_(self.rows.target)
            self._behind = False
        return self._host

    def view(self, row: int, role: str) -> FloatArray:
        """Return one network's parameters as a flat array in host memory; see ``host``."""
        return self._network(self.host, row, role).numpy()

    def _network(self, sources: tuple[Tensor, Tensor], row: int, role: str) -> Tensor:
        columns = self.networks[role.removeprefix("target_")]
        return sources[role.startswith("target_")][row, columns]

    def parts(self, row: int) -> Iterator[tuple[str, Tensor]]:
        """Yield the networks, targets and moments of one agent on the device, by name."""
        for role in roles(self.networks):
            yield role, self._network((self.rows.online, self.rows.target), row, role)
        yield "moment", self.rows.moment[row, : self.size]
        yield "second_moment", self.rows.second_moment[row, : self.size]

    def role_at(self, column: int) -> str:
        """Return the role of the network that has a column of the rows."""
        return next(role for role, own in self.networks.items() if own.start <= column < own.stop)

    def push(self) -> None:
        """Copy values written through ``view`` to the device; a no-op on a CPU."""
        online, target = self.host
        self.rows.online.copy_(online)
        self.rows.target.copy_(target)

    def changed(self) -> None:
        """Note that the device's parameters changed; they stay there until ``host`` is read."""
        self._behind = True


def roles(networks: Mapping[str, object]) -> tuple[str, ...]:
    """Return the roles of an agent's networks in broadcast order: online ones, then targets."""
    return (*networks, *(f"target_{role}" for role in networks))


class GroupedParameters:
    """Parameters of all agents; sections are ordered by role and then by agent, exponents last.

    Args:
        groups: Groups that together hold all agents.
        owner: What an index names in messages: an agent, or a group of agents that share.

    Attributes:
        exponents: Exponent e of each agent's sums, a whole number; see ``factor``.
    """

    def __init__(self, groups: Sequence[ParameterGroup], *, owner: str = "agent") -> None:
        self.groups = tuple(groups)
        self.place = {
            agent: (group, row) for group in groups for row, agent in enumerate(group.agents)
        }
        self.owner = owner
        networks = roles(groups[0].networks)
        self._sections = [*product((*networks, EXPONENT), sorted(self.place))]
        self.exponents = np.zeros(len(self.place), np.float32)

    def factor(self, agent: int) -> float:
        """Return 2^-e, by which an agent's updates are scaled so that its sums are exact."""
        return float(np.ldexp(1.0, -self.exponents[agent].astype(np.int32)))

    def view(self, section: int) -> FloatArray:
        """Return the section's numbers as a writable flat CPU array, shape (size,)."""
        role, agent = self._sections[section]
        if role == EXPONENT:
            return self.exponents[agent : agent + 1]
        group, row = self.place[agent]
        return group.view(row, role)

    def written(self) -> None:
        """Refresh the device's copy after writes through ``view``."""
        for group in self.groups:
            group.push()

    def rows_of(self, agents: range) -> Iterator[tuple[ParameterGroup, slice]]:
        """Yield each group with some of these agents, and their rows in it, one after another."""
        for group in self.groups:
            rows = [row for row, agent in enumerate(group.agents) if agent in agents]
            if rows:
                yield group, slice(rows[0], rows[-1] + 1)

    def online(self, agents: range, roles: Sequence[str]) -> Iterator[Tensor]:
        """Yield these agents' networks of each role on the device, group by group."""
        for group, rows in self.rows_of(agents):
            for role in roles:
                yield group.rows.online[rows, group.networks[role]]

    def unsound(self) -> str | None:
        """Find an entry that is not finite or, in a network, out of ``BOUND``.

        The first test is one pass over memory, with one number as its result.

        Returns:
            The first such entry and its place; None if there is none.
        """
        if math.isfinite(torch.stack([group.rows.norms() for group in self.groups]).sum().item()):
            return None
        for agent, (group, row) in self.place.items():
            for name, part in group.parts(row):
                moment = name not in roles(group.networks)
                wrong = ~(part.abs() < (math.inf if moment else BOUND))
                if wrong.any():
                    column = int(wrong.nonzero()[0])
                    network = f"{name} of the {group.role_at(column)}" if moment else name
                    owner = f" of {self.owner} {agent}" if len(self.place) > 1 else ""
                    what = f"the {network.replace('_', ' ')} network{owner}"
                    return f"{what} has an entry of {part[column]:g}"
        return None

    def parts(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the networks, targets and moments of each agent, named ``role/agent``."""
        for agent, (group, row) in self.place.items():
            for name, part in group.parts(row):
                yield f"{name}/{agent}", part
