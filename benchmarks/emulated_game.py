"""Cooperative navigation whose steps take a given time, in place of a game process."""

import time
from dataclasses import dataclass
from typing import Any

from fullrank.environments import make_environment
from fullrank.environments.base import Environment, register


@register("emulated")
@dataclass(frozen=True, slots=True, kw_only=True)
class EmulatedGame:
    """All copies of one process step at the same time, as that many game processes would."""

    step_s: float = 0.01
    """Emulated duration of a step, seconds."""
    horizon: int = 50
    """Steps of an episode."""

    def make(self, *, agents: int, copies: int) -> Environment:
        """Build the copies."""
        game: Any = make_environment(
            "cooperative_navigation", agents=agents, copies=copies, horizon=self.horizon
        )
        step = game.step

        def slow(action: Any) -> Any:
            time.sleep(self.step_s)
            return step(action)

        game.step = slow
        return game  # type: ignore[no-any-return]
