"""Numbers that are not finite stop a run by name; gradients that are lost are said."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from tests.fakes.extreme import Extreme
from torch import Tensor

from fullrank.algorithms.base import register
from fullrank.algorithms.maddpg import MADDPG
from fullrank.algorithms.updates import Statistics
from fullrank.common.errors import Unsound
from fullrank.config import load
from fullrank.environments.base import environments
from fullrank.local import LocalIteration, LocalRun
from fullrank.replay.episodes import EpisodeLayout
from fullrank.replay.layout import Layout
from fullrank.training.soundness import check_rows, is_finite

environments.register("extreme")(Extreme)

TINY = (
    "iterations=3",
    "environment.name=extreme",
    "environment.copies=2",
    "collect.steps=5",
    "collect.warmup=32",
    "collect.warmup_copies=4",
    "algorithm.batch_size=8",
    "algorithm.hidden=16",
)
VALUES = tuple(word for word in TINY if "steps" not in word)
TEAMS = {
    "maddpg": TINY,
    "autograd": (*TINY, "algorithm.hidden_layers=3"),
    "mfac": (*TINY, "algorithm.name=mfac"),
    "micro-batches": (*TINY, "algorithm.micro_batches=2"),
    "qmix": (*VALUES, "algorithm.name=qmix", "algorithm.batch_size=8"),
    "vdn": (*VALUES, "algorithm.name=vdn", "algorithm.optimiser=adam"),
    "iql": (*VALUES, "algorithm.name=iql"),
    "darl1n": (*TINY[:1], *TINY[2:], "environment.name=ising", "algorithm.name=darl1n"),
}


@register("nan_loss")
@dataclass(frozen=True, slots=True, kw_only=True)
class NanLoss(MADDPG):
    """MADDPG whose second agent has a policy loss that is no number."""

    hidden_layers: int = 3

    def losses(self, agent: int, *args: Any) -> tuple[Mapping[str, Tensor], Statistics]:
        """Spoil one loss."""
        losses, statistics = MADDPG.losses(self, agent, *args)
        if agent == 1:
            losses = {**losses, "policy": losses["policy"] * float("nan")}
        return losses, statistics


def run(*overrides: str, coded: bool = True) -> LocalRun:
    return LocalRun(load(None, environ={}, overrides=overrides).check().config, coded=coded)


@pytest.mark.parametrize("coded", [True, False])
@pytest.mark.parametrize("team", TEAMS)
def test_a_learning_rate_beyond_all_bounds_stops_the_first_iteration(
    team: str, coded: bool
) -> None:
    training = run(*TEAMS[team], "algorithm.learning_rate=1e38", coded=coded)
    with pytest.raises(Unsound, match=r"^iteration 0: the \w+ network.* learning rate of 1e\+38"):
        training.train()


@pytest.mark.parametrize("coded", [True, False])
@pytest.mark.parametrize("team", ["maddpg", "autograd", "mfac", "qmix"])
def test_observations_beyond_all_bounds_stop_the_first_iteration(team: str, coded: bool) -> None:
    training = run(*TEAMS[team], "environment.observed=1e30", coded=coded)
    with pytest.raises(Unsound, match=r"^iteration 0: the update of unit .*nan, in") as stopped:
        training.train()
    assert "the largest observation is " in str(stopped.value)
    assert "1.0e+30 as observation of agent 1 in row " in str(stopped.value)


def test_micro_batches_that_are_not_finite_are_named_with_their_iteration() -> None:
    training = run(*TEAMS["micro-batches"], "environment.observed=1e30")
    with pytest.raises(Unsound, match=r"^iteration 0: the update of unit \d .*inf, in the critic"):
        training.train()


def test_a_loss_that_is_no_number_names_its_network() -> None:
    with pytest.raises(Unsound, match="unit 1 has an entry of nan, in the policy network of agent"):
        run(*TINY, "algorithm.name=nan_loss").train()


def test_continuous_actions_of_a_spoilt_policy_reach_no_row() -> None:
    words = (*TINY, "environment.continuous=true", "algorithm.learning_rate=1e18")
    with pytest.raises(Unsound, match="iteration 1: action of agent 0 in row 0 is nan"):
        run(*words).train()


@pytest.mark.parametrize("words", [TINY, TEAMS["qmix"]])
def test_rewards_beyond_float32_are_named(words: tuple[str, ...]) -> None:
    with pytest.raises(Unsound, match=r"^the warm-up: reward.* in row 0 is inf"):
        run(*words, "environment.paid=1e39").train()


@pytest.mark.parametrize("team", ["maddpg", "autograd", "mfac"])
def test_variables_that_clipping_loses_are_counted_by_network(team: str) -> None:
    def trained(coded: bool) -> list[LocalIteration]:
        return run(*TEAMS[team], "environment.paid=1e25", coded=coded).train()

    coded, centralised = trained(coded=True), trained(coded=False)
    layers = 4 if team == "autograd" else 3
    lost = float(2 * layers - 1)  # the last bias has one entry, which no mark can be told from
    for iteration in (*coded, *centralised):
        overflowed = {n: each for n, each in iteration.statistics.items() if "overflow" in n}
        assert overflowed == {"clip_overflow/critic/1": lost}
        assert iteration.statistics["clamped/critic_loss/1"] == 2.0**25
    assert [each.update_digest for each in coded] == [each.update_digest for each in centralised]


def test_what_clipping_loses_moves_no_parameter() -> None:
    training = run(*TINY, "environment.paid=1e25", coded=False)
    before = training.training.trainer.state()
    next(iter(training))
    after = training.training.trainer.state()
    moved = {
        name: np.count_nonzero(before[name] != after[name])
        for name in ("algorithm.critic/0", "algorithm.critic/1")
    }
    assert moved["algorithm.critic/0"] > 100
    assert moved["algorithm.critic/1"] <= 1  # the last bias


def test_gradients_that_are_clamped_are_counted_with_the_network_of_the_largest() -> None:
    for iteration in run(*TEAMS["qmix"], "environment.paid=1e5").train():
        assert iteration.statistics["clamped/agent"] == 4.0
        assert iteration.statistics["clamped/loss"] >= 2.0**25
        assert "td_error_abs" not in iteration.statistics


def test_moments_of_observations_that_are_clamped_move_no_average_and_are_counted() -> None:
    words = (*VALUES, "algorithm.name=mappo", "algorithm.normalise_observations=true")
    training = run(*words, "algorithm.epochs=3", "environment.copies=8", "environment.observed=1e5")
    for iteration in training.train():
        clamped = {name: each for name, each in iteration.statistics.items() if "clamped" in name}
        assert clamped == {"clamped/averages/policy": 3.0, "clamped/averages/value": 3.0}
        assert "value_loss" in iteration.statistics
    sections = training.training.problem.sections
    (policy,) = (section.id for section in sections if section.role == "policy")
    weights = training.training.algorithm.parameters.view(policy)[:3]
    assert not weights.any()


def test_moments_that_overflow_are_found_and_large_sums_are_not_taken_for_it() -> None:
    training = run(*TINY).training
    (group,) = training.algorithm.parameters.groups[:1]  # type: ignore[attr-defined]
    unsound = training.algorithm.parameters.unsound  # type: ignore[attr-defined]
    with torch.inference_mode():
        group.rows.second_moment[:] = 2.0**120  # their sum is infinite
        group.rows.online[:] = 2.0**62
        assert unsound() is None
        group.rows.second_moment[1, group.networks["policy"].start] = torch.inf
    assert unsound() == "the second moment of the policy network of agent 1 has an entry of inf"


def test_an_entry_is_named_by_its_part_and_agent() -> None:
    layout = Layout(observation_sizes=(2, 3), action_sizes=(1, 2), always_zero=((), (1,)))
    names = [layout.place_of(entry) for entry in range(layout.row_size)]
    assert names[:7] == [
        *["observation of agent 0"] * 2,
        *["observation of agent 1"] * 2,
        "action of agent 0",
        *["action of agent 1"] * 2,
    ]
    episodes = EpisodeLayout(observation_sizes=(1, 1), action_sizes=(2, 2), state_size=1)
    assert episodes.place_of(2) == "state"
    assert episodes.place_of(episodes.length) == "length"
    rows = np.ones((3, layout.row_size), np.float32)
    rows[2, layout.reward.start + 1] = np.nan
    with pytest.raises(Unsound, match="it: reward of agent 1 in row 2 is nan; the largest obs"):
        check_rows(rows, layout, what="it")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_one_entry_of_many_is_found(value: float) -> None:
    values = np.full(1000, 3e38, np.float32)  # the sum of their squares is infinite
    assert is_finite(values)
    values[-1] = value
    assert not is_finite(values)


def test_an_optimiser_that_checks_no_step_is_not_checkpointed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = LocalRun(load(overrides=TINY).check().config, coded=False)
    trainer = run.training.trainer
    optimiser = trainer.algorithm.optimiser
    state = dict(optimiser.state())
    name = next(name for name, array in state.items() if array.dtype == np.float32)
    state[name] = np.full_like(state[name], np.nan)
    monkeypatch.setattr(optimiser, "state", lambda: state)
    with pytest.raises(Unsound, match=f"'{name}' of the optimiser is not finite"):
        trainer.state()
    run.training.collector.close()
