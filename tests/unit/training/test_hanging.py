"""Whoever waits for an environment learns which copy, step and seed is under way."""

from collections.abc import Callable
from typing import Any, ClassVar

import pytest
from tests.conformance.faulty_game import FaultyGame

from fullrank.common.seeding import derive
from fullrank.config import load
from fullrank.wiring.training import training_of

GAME = f"{__name__}:AskingGame"


class AskingGame(FaultyGame):
    """Asks in each call what is under way, as a watchdog does from its thread."""

    ask: ClassVar[Callable[[], str]] = staticmethod(str)
    said: ClassVar[list[str]] = []

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        """Ask, and begin an episode."""
        self.said.append(type(self).ask())
        return super().reset(seed, options)

    def step(self, actions: dict[str, Any]) -> Any:
        """Ask, and pay each agent 1."""
        self.said.append(type(self).ask())
        return super().step(actions)


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    said: list[str] = []
    monkeypatch.setattr(AskingGame, "said", said)
    return said


def expected(copy: int, seed: int) -> list[str]:
    """What an episode of five steps says."""
    calls = ["the reset", *(f"step {step}" for step in range(1, 6))]
    return [f"copy {copy} is in {call} of seed {seed} of {GAME}" for call in calls]


@pytest.mark.parametrize("mode", ["inline", "keyed"])
def test_the_copy_that_is_stepped_is_known_with_its_step_and_seed(
    mode: str, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = {
        "environment.name": GAME,
        "environment.copies": 2,
        "collect.mode": mode,
        "collect.steps": 5,
        "collect.warmup": 5,
        "collect.warmup_copies": 1,
        "algorithm.hidden": 4,
        "algorithm.batch_size": 4,
    }
    collector = training_of(load(options=options).check().config).collector
    monkeypatch.setattr(AskingGame, "ask", staticmethod(collector.doing))
    collector.warm_up()
    warm_up = derive(derive(0, "warm_up"), "episode", 0, 0)
    assert said[-6:] == expected(0, warm_up)
    said.clear()
    collector.collect(0)
    copies = [expected(copy, derive(0, "episode", copy, 0)) for copy in range(2)]
    played = [call for call in said if call]  # also made, and tried, where keyed
    assert sorted(played) == sorted(copies[0] + copies[1])
    assert collector.doing() == ""
    collector.close()
