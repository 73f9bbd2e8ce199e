"""Independent PPO: every agent's value is that of its own observation [deWitt20].

Differs from the paper: networks have a memory where asked for; a minibatch is of whole episodes.
"""

from dataclasses import dataclass

from torch import Tensor

from fullrank.algorithms.base import register
from fullrank.algorithms.on_policy import GroupMembers, Steps
from fullrank.algorithms.ppo import PPO
from fullrank.replay.episodes import EpisodeLayout


@register("ippo")
@dataclass(frozen=True, slots=True, kw_only=True)
class IPPO(PPO):
    """Independent PPO by gradient coding."""

    def value_inputs(self, layout: EpisodeLayout, own: GroupMembers) -> int:
        """Return the size of the members' observations."""
        return own.observation

    def value_sees(self, steps: Steps, own: GroupMembers) -> Tensor:
        """Return the members' observations."""
        return own.among(steps.observation)[..., : own.observation]

    @property
    def hand_written(self) -> bool:
        """Return True; subclasses, which may have other losses, learn by autograd."""
        return type(self) is IPPO
