"""Groups of agents that share networks: the problem that they pose, and their networks.

A unit is a group and a micro-batch, a target the sum over a group's micro-batches. In MADDPG every
agent is a group of its own, in QMIX all agents are one. Groups are numbered in order; parameters,
moments and targets of a group have its number, which is the agent's where each agent is a group.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from threading import Lock
from typing import Any, Literal, TypeAlias

import torch
from torch import nn

from fullrank.algorithms.problem import Problem, Section, Unit
from fullrank.codes.targets import sums_of_groups
from fullrank.common.errors import ConfigError
from fullrank.common.seeding import derive
from fullrank.environments.base import AgentSpec
from fullrank.networks.modules import bind, flat_size, write
from fullrank.networks.parameters import EXPONENT, GroupedParameters, ParameterGroup, roles

Groups: TypeAlias = tuple[tuple[int, ...], ...]
"""The agents of each group, ascending, ordered by their first agents; every agent is in one."""

Sharing: TypeAlias = Literal["none", "side", "all"] | Mapping[str, tuple[str, ...]]
"""Agents that share networks: none, those of a side, all, or the named agents of each group."""

MakeNetworks: TypeAlias = Callable[[int], Mapping[str, nn.Module]]
"""Builds the networks of an agent, by role; those of a group are its first agent's."""

NetworksRead: TypeAlias = Callable[[int], Iterable[tuple[str, int]]]
"""Lists role and agent of the networks that an agent's losses read."""

_GENERATOR = Lock()
"""Held while modules draw from torch's generator, of which a process has one for all threads."""


def groups_of(share: Sharing, agents: Sequence[AgentSpec]) -> Groups:
    """Return the agents of each group.

    Raises:
        ConfigError: Named groups do not have every agent once.

    >>> from fullrank.environments.base import Discrete
    >>> wolf, hare, lynx = (
    ...     AgentSpec(name=name, observation_size=1, action=Discrete(2), side=side)
    ...     for name, side in (("wolf", "red"), ("hare", "blue"), ("lynx", "red"))
    ... )
    >>> groups_of("side", (wolf, hare, lynx))
    ((0, 2), (1,))
    """
    names = [agent.name for agent in agents]
    if isinstance(share, str):
        alone, sides = map(str, range(len(agents))), (agent.side for agent in agents)
        owners = [*{"none": alone, "side": sides, "all": ["all"] * len(agents)}[share]]
    else:
        named = [agent for own in share.values() for agent in own]
        if sorted(named) != sorted(names):
            raise ConfigError(
                f"the groups of algorithm.share have {', '.join(named) or 'no agent'}: name each "
                f"of {', '.join(names)} once"
            )
        group_of = {agent: group for group, own in share.items() for agent in own}
        owners = [group_of[name] for name in names]
    groups: dict[str, list[int]] = {}
    for agent, owner in enumerate(owners):
        groups.setdefault(owner, []).append(agent)
    return tuple(map(tuple, groups.values()))


def problem_of(
    groups: Groups,
    make: MakeNetworks,
    *,
    reads: NetworksRead | None = None,
    micro_batches: Sequence[range] = (),
    entries: int,
    statistics: int = 0,
    **facts: Any,
) -> Problem:
    """Describe the units, sections and targets of groups without allocating parameters.

    Args:
        groups: The agents of each group.
        make: Builds networks.
        reads: Networks that losses read; None: all.
        micro_batches: Numbers of each micro-batch's items; none: a unit is a whole update, and
            nothing is summed.
        entries: Entries that follow a gradient in an update.
        statistics: Entries of statistics that follow these, with a digest of their own.
        **facts: Further fields of the problem.
    """
    with torch.device("meta"):
        networks = [make(agents[0]) for agents in groups]
    sizes = [{role: flat_size(net) for role, net in by_role.items()} for by_role in networks]
    owners = [*zip(groups, sizes, strict=True)]
    sections = tuple(
        Section(id=id_, role=role, agents=agents, size=own[role.removeprefix("target_")])
        for id_, (role, (agents, own)) in enumerate(product(roles(networks[0]), owners))
    )
    ids = {(section.role, agent): section.id for section in sections for agent in section.agents}
    exponents = tuple(
        Section(id=len(sections) + number, role=EXPONENT, agents=agents, size=1)
        for number, agents in enumerate(groups if micro_batches else ())
    )
    with torch.device("meta"):  # ``reads`` may build networks
        needs = [
            sorted({ids[pair] for agent in agents for pair in (reads(agent) if reads else ids)})
            for agents in groups
        ]
    if micro_batches:
        needs = [[*own, exponent.id] for own, exponent in zip(needs, exponents, strict=True)]
    parts = range(len(micro_batches) or 1)
    return Problem(
        units=tuple(Unit(agents, part) for agents in groups for part in parts),
        unit_sizes=tuple(sum(own.values()) + entries + statistics for own in sizes for _ in parts),
        statistics=statistics,
        sections=sections + exponents,
        reads=tuple(tuple(own) for own in needs for _ in parts),
        items=tuple(micro_batches) * len(groups) if micro_batches else None,
        target=sums_of_groups(len(groups), len(micro_batches)) if micro_batches else None,
        **facts,
    )


def initial_parameters(
    make: MakeNetworks, groups: Groups, *, seed: int, device: torch.device
) -> GroupedParameters:
    """Make the parameters of all groups, with the initial values that their modules draw.

    Modules draw from torch's generator, seeded by (seed, "initialise", number); its state is
    restored afterwards.
    """
    made = []
    for number, agents in enumerate(groups):
        with _GENERATOR, torch.random.fork_rng(devices=[]):
            torch.manual_seed(derive(seed, "initialise", number))
            modules = make(agents[0])
        columns, start = {}, 0
        for role, module in modules.items():
            columns[role] = slice(start, start + flat_size(module))
            start = columns[role].stop
        group = ParameterGroup([number], columns, device=device)
        for role, module in modules.items():
            write(module, group.host[0][0, columns[role]])
        group.host[1].copy_(group.host[0])
        group.push()
        made.append(group)
    return GroupedParameters(made, owner=owner_of(groups))


def owner_of(groups: Groups) -> str:
    """Return what the number of a group names: an agent, if each is alone."""
    return "group" if any(len(agents) > 1 for agents in groups) else "agent"


class Networks:
    """All networks at the current parameters, by role and agent: ``nets.target_critic[k](x)``.

    Agents of a group have the same modules.

    Args:
        make: Builds networks, of which only the structure is used.
        groups: The agents of each group.
        parameters: Current parameters, read in place.
    """

    def __init__(self, make: MakeNetworks, groups: Groups, parameters: GroupedParameters) -> None:
        self.parameters = parameters
        self._number = {agent: number for number, own in enumerate(groups) for agent in own}
        self._modules: dict[str, list[nn.Module]] = {}
        for agent, number in sorted(self._number.items()):
            first = groups[number][0]
            group, row = parameters.place[number]
            for prefix, source in (("", group.rows.online), ("target_", group.rows.target)):
                with torch.device("meta"):
                    modules = make(first)
                for role, module in modules.items():
                    own = self._modules.setdefault(f"{prefix}{role}", [])
                    if agent == first:
                        bind(module, source[row, group.networks[role]])
                        module.requires_grad_(not prefix)
                    own.append(module if agent == first else own[first])

    def __getattr__(self, role: str) -> list[nn.Module]:
        if role.startswith("_") or role not in self._modules:
            raise AttributeError(f"there is no network {role!r}")
        return self._modules[role]

    def factor_of(self, agent: int) -> float:
        """Return the factor of an agent's summands; see ``GroupedParameters.factor``."""
        return self.parameters.factor(self._number[agent])

    def group_of(self, agent: int) -> ParameterGroup:
        """Return the rows that hold the parameters of an agent's group."""
        return self.parameters.place[self._number[agent]][0]
