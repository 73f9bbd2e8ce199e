"""SMAX as an environment: its laws, on a stand-in for JaxMARL, and on JaxMARL where it is there."""

import sys
from typing import Any, NamedTuple

import numpy as np
import pytest

from fullrank.common.errors import ConfigError
from fullrank.common.types import BoolArray, FloatArray, IntArray
from fullrank.conformance import EnvironmentLaws
from fullrank.conformance.environments import Made
from fullrank.environments import make_environment
from fullrank_papers import smax
from fullrank_papers.smax import SCALE, STOP, Look

ALLIES, ENEMIES, LIMIT = 2, 3, 9


class Front(NamedTuple):
    """The state of the stand-in."""

    health: IntArray
    """Allies, then enemies, shape (L, units)."""
    step: IntArray
    """Shape (L,)."""


class StandIn:
    """Battles without places: agents wound whom they shoot, and are wounded by their keys."""

    agents, units = ALLIES, ALLIES + ENEMIES

    def begin(self, keys: Any, chosen: BoolArray, state: Front | None) -> tuple[Front, Look]:
        fresh = 1 + (keys[:, :1].astype(np.int64) + keys[:, 1:] + np.arange(self.units)) % 4
        old = fresh if state is None else state.health
        step = np.zeros(len(keys), np.int64) if state is None else state.step
        health = np.where(chosen[:, None], fresh, old)
        return self.seen(Front(health, np.where(chosen, 0, step)))

    def step(
        self, keys: Any, state: Front, actions: IntArray
    ) -> tuple[Front, Look, FloatArray, BoolArray]:
        health, lanes = state.health.copy(), np.arange(len(keys))
        for agent in range(ALLIES):
            target = actions[:, agent] - STOP - 1
            shoots = (target >= 0) & (state.health[:, agent] > 0)
            np.subtract.at(health, (lanes[shoots], ALLIES + target[shoots]), 1)
        health[lanes, keys[:, 0] % ALLIES] -= (keys[:, 0] + keys[:, 1]) % 2
        front, look = self.seen(Front(np.maximum(health, 0), state.step + 1))
        lost = (state.health - front.health)[:, ALLIES:].sum(axis=1)
        beaten = ~look.alive[:, ALLIES:].any(axis=1)
        standing = look.alive[:, :ALLIES].any(axis=1)
        reward = (0.1 * lost + (standing & beaten)).astype(np.float32)
        return front, look, reward, beaten | ~standing | (front.step >= LIMIT)

    def seen(self, front: Front) -> tuple[Front, Look]:
        alive = front.health > 0
        available = np.zeros((*alive[:, :ALLIES].shape, STOP + 1 + ENEMIES), bool)
        available[..., STOP] = True
        available[..., :STOP] = alive[:, :ALLIES, None]
        available[..., STOP + 1 :] = alive[:, :ALLIES, None] & alive[:, None, ALLIES:]
        state = front.health.astype(np.float32)
        observation = np.repeat(state[:, None], ALLIES, axis=1)
        return front, Look(observation, state, available, alive)


class TestSmax(EnvironmentLaws):
    @pytest.fixture(params=["stand-in", "jaxmarl"])
    def made(self, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Made:
        if request.param == "stand-in":
            monkeypatch.setattr(smax, "battles_of", lambda name: StandIn())
        else:
            pytest.importorskip("jaxmarl", reason="needs the extra smax")
        return Made("smax", 0, {})


def test_a_battle_that_is_won_pays_its_share_and_the_dead_see_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(smax, "battles_of", lambda name: StandIn())
    environment = make_environment("smax", copies=5)
    environment.reset(range(5), range(5))
    won, dead = 0, 0
    for _ in range(LIMIT):
        available = environment.available().reshape(5, ALLIES, -1)  # type: ignore[attr-defined]
        last = available.shape[2] - 1 - available[..., ::-1].argmax(axis=2)  # shoots if it can
        step = environment.step(np.eye(available.shape[2], dtype=np.float32)[last].reshape(5, -1))
        victories = environment.won()  # type: ignore[attr-defined]
        assert (step.reward[victories] > SCALE).all()
        assert (step.reward[~victories] < SCALE).all()
        seen = step.observation.reshape(5, ALLIES, -1)
        assert not seen[~step.alive].any()
        won, dead = won + int(victories.sum()), dead + int((~step.alive).sum())
        ended = np.flatnonzero(step.ended)
        environment.reset([int(copy) + 7 for copy in ended], ended.tolist())
    assert won
    assert dead


def test_without_jaxmarl_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(
        ConfigError, match=r"^SMAX is not installed: pip install 'fullrank\[smax\]'"
    ):
        smax.battles_of.__wrapped__("3m")
