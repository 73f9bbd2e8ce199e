"""What MADDPG moves in an iteration: sections, updates and transitions, from the agents alone."""

from collections.abc import Collection, Sequence

from fullrank.algorithms.base import Section
from fullrank.environments.base import AgentSpec
from fullrank.networks.cohort import ROLES, networks
from fullrank.networks.sight import Sight
from fullrank.replay.layout import Layout
from fullrank.types import Unit


class MADDPGDimensions:
    """Sections role by role, in each the agents in order; u_i has critic and policy of agent i."""

    def __init__(self, layout: Layout, *, hidden: int, sights: Sequence[Sight]) -> None:
        self.units = layout.agents
        self.row_size = layout.row_size
        self._sights = sights
        nets = [
            networks(layout, agent, hidden=hidden, sight=sight)
            for agent, sight in enumerate(sights)
        ]
        self.unit_sizes = tuple(policy.end for _, policy in nets)
        sizes = [
            {"critic": critic.end, "policy": policy.end - policy.start} for critic, policy in nets
        ]
        self.sections = tuple(
            Section(
                id=index * self.units + unit,
                role=role,
                unit=unit,
                size=sizes[unit][role.removeprefix("target_")],
            )
            for index, role in enumerate(ROLES)
            for unit in range(self.units)
        )

    def needs(self, unit: Unit) -> Sequence[int]:
        """The unit's own policy, critic and target critic; the target policies that it asks."""
        policy, critic, target_policy, target_critic = (k * self.units for k in range(len(ROLES)))
        targets = (target_policy + agent for agent in self.asked([unit]))
        return (policy + unit, critic + unit, *targets, target_critic + unit)

    def asked(self, units: Collection[Unit]) -> Collection[Unit]:
        """Agents whose target actions the units' updates read: all, or own ones in DDPG."""
        alone = all(self._sights[unit] is Sight.OWN for unit in units)
        return units if alone else range(self.units)


def layout_of(agents: Sequence[AgentSpec]) -> Layout:
    """The layout of the agents' transitions."""
    return Layout(
        observation_sizes=tuple(agent.observation_size for agent in agents),
        action_sizes=tuple(agent.action.size for agent in agents),
    )
