"""Parameters of agents as rows of flat buffers, and the sections that travel."""

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from fullrank.common.types import FloatArray
from fullrank.networks.adam import Rows

ALIGNMENT = 16
"""float32 entries in 64 bytes: every row starts on such a boundary."""


def aligned(size: int) -> int:
    """``size`` rounded up to an odd multiple of ``ALIGNMENT``.

    An odd one, because rows whose length is a power of two fall on the same cache sets: weight
    gradients over 1024 columns take 1.3 times as long as over 1040.
    """
    return (-(-size // ALIGNMENT) | 1) * ALIGNMENT


class ParameterGroup:
    """Agents with networks of equal shape; an agent's networks lie one after another in its row.

    Unit i's update has exactly the order and the length of its online row.

    Args:
        agents: Their indices, ascending; row r belongs to ``agents[r]``.
        networks: Role to the network's columns, in the order in which they lie.
        device: Where parameters lie.

    Attributes:
        agents: As given.
        networks: As given.
        size: Entries of a row without its padding.
        rows: Parameters, targets and moments on the device, each (agents, padded size).
    """

    def __init__(
        self, agents: Sequence[int], networks: Mapping[str, slice], *, device: torch.device
    ) -> None:
        self.agents, self.networks = tuple(agents), dict(networks)
        self.size = max(columns.stop for columns in self.networks.values())
        shape = (len(self.agents), aligned(self.size))
        self.rows = Rows(*(torch.zeros(shape, device=device) for _ in range(4)))
        self.host = (self.rows.online.cpu(), self.rows.target.cpu())  # the same tensors on a CPU

    def view(self, row: int, role: str) -> FloatArray:
        """One network's parameters in memory that NumPy shares, flat."""
        return self._network(self.host, row, role).numpy()

    def _network(self, sources: tuple[Tensor, Tensor], row: int, role: str) -> Tensor:
        columns = self.networks[role.removeprefix("target_")]
        return sources[role.startswith("target_")][row, columns]

    def parts(self, row: int) -> Iterator[tuple[str, Tensor]]:
        """Networks, targets and moments of one agent on the device, by name."""
        for role in roles(self.networks):
            yield role, self._network((self.rows.online, self.rows.target), row, role)
        yield "moment", self.rows.moment[row, : self.size]
        yield "second_moment", self.rows.second_moment[row, : self.size]

    def push(self) -> None:
        """Copy what was written through ``view`` to the device; nothing to do on a CPU."""
        self.rows.online.copy_(self.host[0])
        self.rows.target.copy_(self.host[1])

    def pull(self) -> None:
        """Copy the device's parameters back to where ``view`` reads them."""
        self.host[0].copy_(self.rows.online)
        self.host[1].copy_(self.rows.target)


def roles(networks: Mapping[str, object]) -> tuple[str, ...]:
    """Roles of an agent's networks as they are broadcast: online ones, then their targets."""
    return (*networks, *(f"target_{role}" for role in networks))


class GroupedParameters:
    """The parameters of all agents, by group.

    Args:
        groups: All agents.
        sections: Role and agent of each section, by ascending id.
    """

    def __init__(
        self, groups: Sequence[ParameterGroup], sections: Sequence[tuple[str, int]]
    ) -> None:
        self.groups = tuple(groups)
        self.place = {
            agent: (group, row) for group in groups for row, agent in enumerate(group.agents)
        }
        self._sections = tuple(sections)

    def view(self, section: int) -> FloatArray:
        """The section's parameters as a writable flat array on the CPU, shape (size,)."""
        role, agent = self._sections[section]
        group, row = self.place[agent]
        return group.view(row, role)

    def written(self) -> None:
        """Refresh the device's copy."""
        for group in self.groups:
            group.push()

    def parts(self) -> Iterator[tuple[str, Tensor]]:
        """All that belongs to each agent, named ``role/agent``."""
        for agent, (group, row) in self.place.items():
            for name, part in group.parts(row):
                yield f"{name}/{agent}", part
