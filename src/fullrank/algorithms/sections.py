"""What actor-critics move in an iteration: sections, updates and transitions."""

from collections.abc import Sequence

from fullrank.algorithms.base import Section
from fullrank.environments.base import AgentSpec
from fullrank.networks.fused.cohort import ROLES
from fullrank.networks.fused.mlp import Mlp
from fullrank.replay.layout import Layout


class ActorCriticDimensions:
    """Sections role by role, in each the agents in order; u_i has critic and policy of agent i.

    Args:
        layout: Of a transition.
        nets: Each agent's critic and policy.
    """

    def __init__(self, layout: Layout, nets: Sequence[tuple[Mlp, Mlp]]) -> None:
        self.units = layout.agents
        self.row_size = layout.row_size
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


def layout_of(agents: Sequence[AgentSpec]) -> Layout:
    """The layout of the agents' transitions."""
    return Layout(
        observation_sizes=tuple(agent.observation_size for agent in agents),
        action_sizes=tuple(agent.action.size for agent in agents),
    )
