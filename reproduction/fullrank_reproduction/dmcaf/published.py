"""Statements of [DMCAF]: interfaces, collection speeds, and the settings of its systems."""

from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

ACTORS: Final = 4
"""Actors of AW, which share one worker."""
PER_WORKER: Final = 3
"""Actors of each of AWL's workers."""
WORKERS: Final = 4
"""Workers of AWL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A scenario of Tables I and III."""

    actions: int
    agents: int
    state: int
    """Entries of the state."""
    observation: int
    """Entries of an agent's observation."""
    limit: int
    """Most steps of an episode."""
    speeds: tuple[float, float, float]
    """Collection speed of Qmix, AW-Qmix and AWL-Qmix, in a unit that the paper does not name."""

    @property
    def aw_ratio(self) -> float:
        """Return the speed of AW in that of Qmix."""
        return self.speeds[1] / self.speeds[0]

    @property
    def awl_ratio(self) -> float:
        """Return the speed of AWL in that of Qmix."""
        return self.speeds[2] / self.speeds[0]

    @property
    def playing_share(self) -> float:
        """Return the share of an iteration of Qmix that is playing, p.

        Qmix plays an episode, then learns. AW plays ``ACTORS`` at once and learns from each, in
        p + ``ACTORS`` (1 - p) of that time, which its ratio gives.
        """
        return (ACTORS - ACTORS / self.aw_ratio) / (ACTORS - 1)


SCENARIOS: Final = MappingProxyType(
    {
        "3m": Scenario(
            actions=9, agents=3, state=48, observation=30, limit=60, speeds=(2.12, 3.90, 14.0)
        ),
        "8m": Scenario(
            actions=14, agents=8, state=168, observation=80, limit=120, speeds=(1.15, 1.82, 7.47)
        ),
        "2s3z": Scenario(
            actions=11, agents=5, state=120, observation=80, limit=120, speeds=(1.02, 1.80, 7.76)
        ),
        "5m_vs_6m": Scenario(
            actions=12, agents=5, state=98, observation=55, limit=70, speeds=(1.54, 3.12, 9.86)
        ),
    }
)
"""Tables I and III by scenario."""
