"""Multi-agent PPO: the value is that of the global state, the policy sees observations [Yu22].

The state is the environment's, or the joint observation where it has none; where agents observe
images, it is the features of all of these.

Differs from the paper: networks have a memory where asked for, errors of values are squared, and
their scale is an average over the last thousand updates.
"""

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from torch import Tensor

from fullrank.algorithms.base import EnvironmentSpec, register
from fullrank.algorithms.on_policy import GroupMembers, Steps
from fullrank.algorithms.ppo import PPO
from fullrank.common.errors import ConfigError
from fullrank.replay.episodes import EpisodeLayout


@register("mappo")
@dataclass(frozen=True, slots=True, kw_only=True)
class MAPPO(PPO):
    """Multi-agent PPO by gradient coding."""

    reward: Literal["own", "team"] = "team"
    """Reward from which an agent learns: ``team``, that of all agents together, who are one side
    then; ``own``, that of the agent."""
    clock: int = 0
    """Number of steps, for example those of the longest episode, whose share that has gone by the
    value sees beside the state; 0: it sees the state alone."""

    joint: ClassVar[bool] = True

    def layout(self, environment: EnvironmentSpec) -> EpisodeLayout:
        """Return the layout of a step, with its clock.

        Raises:
            ConfigError: A clock is asked for beside images.
        """
        layout = PPO.layout(self, environment)
        if self.clock and layout.image_sizes:
            raise ConfigError(
                "algorithm.clock is an entry of the state, and features of images have no place "
                "for it; set it to 0, or algorithm.model to 'mlp'"
            )
        return replace(layout, clock=self.clock)

    def value_inputs(self, layout: EpisodeLayout, own: GroupMembers) -> int:
        """Return the size of the global state, or of the features of all agents' images."""
        if own.image is not None:
            return layout.agents * own.observation
        return layout.state_entries

    def value_sees(self, steps: Steps, own: GroupMembers) -> Tensor:
        """Return the global state for every member."""
        return steps.state[:, None].expand(-1, len(own.agents), -1)

    @property
    def hand_written(self) -> bool:
        """Return True; subclasses, which may have other losses, learn by autograd."""
        return type(self) is MAPPO
