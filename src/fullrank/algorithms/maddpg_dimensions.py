"""Which sections MADDPG's updates read."""

from collections.abc import Collection, Sequence

from fullrank.algorithms.sections import ActorCriticDimensions
from fullrank.common.types import UnitIndex
from fullrank.networks.fused.cohort import ROLES, networks
from fullrank.networks.fused.sight import Sight
from fullrank.replay.layout import Layout


class MADDPGDimensions(ActorCriticDimensions):
    """Those of critics that see everything, or what ``sights`` says."""

    def __init__(self, layout: Layout, *, hidden: int, sights: Sequence[Sight]) -> None:
        nets = [
            networks(layout, agent, hidden=hidden, sight=sight)
            for agent, sight in enumerate(sights)
        ]
        super().__init__(layout, nets)
        self._sights = sights

    def needs(self, unit: UnitIndex) -> Sequence[int]:
        """The unit's own policy, critic and target critic; the target policies that it asks."""
        policy, critic, target_policy, target_critic = (k * self.units for k in range(len(ROLES)))
        targets = (target_policy + agent for agent in self.asked([unit]))
        return (policy + unit, critic + unit, *targets, target_critic + unit)

    def asked(self, units: Collection[UnitIndex]) -> Collection[UnitIndex]:
        """Agents whose target actions the units' updates read: all, or own ones in DDPG."""
        alone = all(self._sights[unit] is Sight.OWN for unit in units)
        return units if alone else range(self.units)
