"""Masks of other packages' environments are obeyed wherever they are, or refused by name."""

from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box

from fullrank.common.errors import EnvironmentFailed
from fullrank.config import load
from fullrank.environments import make_environment
from fullrank.environments.capabilities import offers_masks
from fullrank.local import LocalRun

from .games import Ledge

LEDGE = f"{Ledge.__module__}:Ledge"
SMALL: dict[str, Any] = {
    "iterations": 2,
    "algorithm.hidden": 8,
    "algorithm.batch_size": 8,
    "collect.warmup": 48,
    "collect.warmup_copies": 2,
    "environment.copies": 2,
}


def still(environment: Any) -> np.ndarray[Any, Any]:
    """Both stay, which every mask permits."""
    return np.tile(np.array([[0, 1, 0]], np.float32), (environment.copies, 2))


@pytest.mark.parametrize("algorithm", ["maddpg", "qmix"])
@pytest.mark.parametrize("form", ["and a goal", "of RLlib", "in infos"])
def test_no_forbidden_action_is_played(algorithm: str, form: str) -> None:
    options = SMALL | {"environment.name": LEDGE, "environment.form": form}
    Ledge.illegal = 0
    LocalRun(load(options={**options, "algorithm.name": algorithm}).check().config).train()
    assert Ledge.illegal == 0


@pytest.mark.parametrize(
    ("form", "seen"),
    [("and a goal", [4, 0, 0]), ("of RLlib", [0, 0]), ("in infos", [0, 0])],
)
def test_the_other_entries_are_the_observation_by_ascending_key(
    form: str, seen: list[float]
) -> None:
    environment = make_environment(LEDGE, copies=1, form=form)
    assert environment.agents[0].observation_size == len(seen)
    assert environment.reset([0], [0])[0, : len(seen)].tolist() == seen
    assert offers_masks(environment)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"size": 4}, "climber_0: action_mask has 4 entries, and there are 3 actions"),
        ({"form": "alone"}, "climber_0: the observation has no entry but action_mask"),
        ({"form": "too deep"}, r"climber_0: the mask board\.action_mask lies too deep"),
        ({"mask": [0, 1]}, r"reset with seed 7: .*climber_0: an action mask has shape \(2,\)"),
        (
            {"mask": [0, 0, 0], "at_step": 2},
            "step 2 of seed 7: .*climber_0: an action mask permits",
        ),
        (
            {"mask": [0, 1, 0.5], "at_step": 1},
            "step 1 .*climber_0: an action mask has an entry othe",
        ),
        (
            {"form": "in infos", "mask": [0, 1, 1], "at_step": 2},
            "step 2 of seed 7: .*climber_0: its info forbids actions, but no info of a reset",
        ),
    ],
)
def test_a_mask_that_cannot_be_obeyed_is_refused_with_agent_and_step(
    arguments: dict[str, Any], message: str
) -> None:
    def play() -> None:
        environment = make_environment(LEDGE, copies=1, **arguments)
        environment.reset([7], [0])
        for _ in range(3):
            environment.step(still(environment))

    with pytest.raises(EnvironmentFailed, match=message):
        play()


class Sliding(Ledge):
    """The ledge with real moves, whose masks therefore forbid parts of a box."""

    def action_space(self, agent: str) -> Box:
        return Box(-1, 1, (3,), np.float32)


def test_a_mask_of_a_box_may_forbid_nothing() -> None:
    name = f"{__name__}:Sliding"
    environment = make_environment(name, copies=1, mask=[1, 1, 1])
    environment.reset([0], [0])
    refused = make_environment(name, copies=1, mask=[1, 0, 1])
    with pytest.raises(
        EnvironmentFailed, match="climber_0: an action mask forbids a part of a box"
    ):
        refused.reset([0], [0])


def test_an_entry_that_looks_like_a_mask_is_reported() -> None:
    environment: Any = make_environment(LEDGE, copies=1, form="by another name")
    assert environment.ignored() == [
        f"climber_{i} is told legal_moves, which looks like a mask of actions; call it action_mask"
        for i in range(2)
    ]


def test_gymnasium_teams_have_masks_in_their_observations() -> None:
    environment: Any = make_environment("gymnasium", copies=1, id="MaskedPair-v0")
    assert offers_masks(environment)
    assert environment.reset([0], [0]).tolist() == [[0, 0]]
    assert environment.available().tolist() == [[False, True] * 2]
    with pytest.raises(EnvironmentFailed, match="agent_0 of copy 0 chose action 0, which is not"):
        environment.step(np.array([[1, 0, 0, 1]], np.float32))


def test_a_mask_in_the_info_of_a_gymnasium_team_is_refused() -> None:
    told = {"told": True}
    with pytest.raises(EnvironmentFailed, match="the info has an action_mask, which is not read"):
        make_environment("gymnasium", copies=1, id="MaskedPair-v0", arguments=told)
