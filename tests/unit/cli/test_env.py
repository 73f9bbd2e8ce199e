"""``fullrank env check``: what it prints, each silent fault, and codes."""

import json
import re
from typing import Any

import pytest
from tests.unit.environments.games import Game

from .conftest import Command

GAMES = Game.__module__


def checked(fullrank: Command, game: str, *settings: str) -> Any:
    words = [word for setting in settings for word in ("--set", f"environment.{setting}")]
    code, output, error = fullrank("env", "check", f"{GAMES}:{game}", "--json", *words)
    assert code == 0, error
    return json.loads(output)


def test_masks_and_the_actions_that_they_forbid_are_counted(fullrank: Command) -> None:
    facts = checked(fullrank, "Ledge", "mask=[0, 1, 0]")
    assert facts["masks"] is True
    assert [agent["permitted"] for agent in facts["agents"]] == pytest.approx([1 / 3] * 2)
    assert facts["forbidden"] == {"actions": 24, "of": 36}
    assert facts["agents"][0]["observation_size"] == 3
    ignored = checked(fullrank, "Ledge", "form='by another name'")
    assert ignored["masks"] is False
    assert "climber_0 is told legal_moves, which looks like a mask" in ignored["warnings"][0]


def test_agents_that_leave_and_come_back_are_counted(fullrank: Command) -> None:
    facts = checked(fullrank, "Watch", "paid_asleep=true")
    asleep, awake, _ = facts["agents"]
    assert (asleep["terminated"], asleep["came_back"], asleep["acted"]) == (3, 3, 12)
    assert (awake["terminated"], awake["came_back"], awake["acted"]) == (0, 0, 18)
    assert any("guard_0 is paid in steps in which it does not" in w for w in facts["warnings"])
    assert checked(fullrank, "Watch", "truncate=true")["agents"][0]["left"] == 3


@pytest.mark.parametrize(
    ("game", "rewards", "reason"),
    [("Hunt", "by agent", "wolf and sheep are sides"), ("Pennies", "zero-sum", "player_1 cancel")],
)
def test_opponents_do_not_suit_value_based_algorithms(
    fullrank: Command, game: str, rewards: str, reason: str
) -> None:
    facts = checked(fullrank, game)
    assert facts["rewards"] == rewards
    assert facts["algorithms"]["maddpg"] == ""
    assert all(reason in facts["algorithms"][name] for name in ("qmix", "vdn", "iql"))
    assert "no neighbour interaction" in facts["algorithms"]["darl1n"]


@pytest.mark.parametrize(
    ("fault", "warning"),
    [
        ("unseeded", "one seed gives different episodes: left_0 observes something else after ste"),
        ("stateful", "one seed gives different episodes: the state differs after step 0"),
        ("large", r"left_0: observations from 0 to 1e\+08; scale them"),
        ("endless", "3 episodes had not ended after 2,000 steps"),
        ("unpaid", "no reward was paid in random play"),
        ("hints", "left_0 is told avail_actions, which looks like a mask of actions"),
    ],
)
def test_a_silent_fault_is_a_warning(fullrank: Command, fault: str, warning: str) -> None:
    code, output, _ = fullrank(
        "env", "check", f"{GAMES}:Odd", "--set", f"environment.fault={fault}"
    )
    assert code == 0
    assert any(re.search(f"^warning: {warning}", line) for line in output.splitlines())


def test_seeds_that_change_nothing_are_said(fullrank: Command) -> None:
    assert checked(fullrank, "Odd", "fault=seeded")["seeds_differ"] is True
    assert checked(fullrank, "Hunt")["seeds_differ"] is False


def test_size_and_time_are_those_of_the_settings(fullrank: Command) -> None:
    facts = checked(fullrank, "Hunt")
    joint, actions, agents = 2 * 2, 2 * 3, 2
    assert facts["row_bytes"] == 4 * (2 * joint + actions + 3 * agents)
    warm_up = facts["warmup"]
    assert warm_up["transitions"] == 2_000
    assert warm_up["minutes"] == pytest.approx(2_000 * facts["step_ms"] / 60e3)


def test_it_reads_in_a_few_lines(fullrank: Command) -> None:
    code, output, _ = fullrank("env", "check", "cooperative_navigation", "--agents", "2")
    title, *agents, masks, sides, determinism, cost, suits, _ = output.splitlines()
    assert (code, title) == (0, "cooperative_navigation: 3 random episodes of 25 to 25 steps")
    assert [line.split()[0] for line in agents] == ["agent_0", "agent_1"]
    assert "acts by one of 5, is paid [" in agents[0]
    assert masks == "masks: none, every action is permitted"
    assert sides.startswith("sides: team; rewards: ")
    assert determinism.startswith("determinism: the same seed gives the same episode")
    assert " bytes a transition in replay, " in cost
    named = "maddpg, mfac, masac, isac, qmix, vdn, iql, qplex, ippo, mappo, coma, pqn"
    assert suits == f"suits: {named}"


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ((f"{GAMES}:turns",), 3, "it is turn-based (AEC), and Fullrank steps all agents together"),
        ((f"{GAMES}:env",), 3, "it is turn-based (AEC)"),
        ((f"{GAMES}:Ledge", "--set", "environment.size=4"), 3, "climber_0: action_mask has 4"),
        ((f"{GAMES}:Watch", "--set", "environment.stranger=true"), 3, "guard_9 is not one of its"),
        ((GAMES,), 2, f"it is a module: add the factory in it, for example {GAMES}:parallel_env"),
        (("Ant-v5",), 2, "runs by --env gymnasium --set environment.id=Ant-v5"),
        (("gymnasium",), 2, "needs the parameter 'id'; give it by --set environment.id=VALUE"),
        (("lbforaging:Foraging-v3",), 2, "--env gymnasium --set environment.id=lbforaging:Forag"),
        (
            ("gymnasium", "--set", "environment.id=DictPair-v0"),
            3,
            "its spaces are Dicts by agent, ['a', 'b'], and this adapter takes Tuples",
        ),
    ],
)
def test_what_cannot_be_used_is_named_in_one_line(
    fullrank: Command, words: tuple[str, ...], code: int, message: str
) -> None:
    ended = fullrank("env", "check", *words)
    assert (ended.code, ended.output) == (code, "")
    assert message in ended.error
    assert len(ended.error.splitlines()) == 1


def test_an_agent_that_observes_nothing_is_surveyed_and_refused_by_name_where_it_must(
    fullrank: Command,
) -> None:
    facts = checked(fullrank, "Blind")
    assert facts["agents"][0]["observation_size"] == 0
    assert facts["agents"][0]["observed"] == [0.0, 0.0]
    refused = {name: reason for name, reason in facts["algorithms"].items() if reason}
    named = {name for name, reason in refused.items() if "left_0 observes nothing" in reason}
    assert named == {"maddpg", "mfac", "darl1n", "masac", "isac"}
