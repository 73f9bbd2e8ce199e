"""Learning in virtual time: real episodes and gradients, durations as numbers."""

from dataclasses import replace
from typing import Any

import pytest

from fullrank.common.errors import ConfigError
from fullrank.config import RunConfig, load
from fullrank.config.collection import ContainerSettings
from fullrank.local import LocalRun
from fullrank_papers.virtual import Evaluations, VirtualDurations, VirtualHistory
from fullrank_papers.virtual_learning import learn_in_virtual_time

SMALL = {
    "environment.name": "two_step_game",
    "algorithm.name": "qmix",
    "algorithm.batch_size": 8,
    "algorithm.hidden": 8,
    "algorithm.mixing": 4,
    "algorithm.hypernet": 4,
    "algorithm.target_every": 5,
    "environment.copies": 6,
    "collect.warmup": 40,
    "collect.warmup_episodes": 16,
    "iterations": 12,
    "seed": 3,
}
DURATIONS = VirtualDurations(step_s=0.02, update_s=0.05, container_update_s=0.04, scatter=0.2)
FEW = ContainerSettings(batch_size=8, low=0.0, high=8.0, every_s=0.2)


def config(**options: Any) -> RunConfig:
    keys = {key.replace("__", "."): value for key, value in options.items()}
    return load(options=SMALL | keys).check().config


def learned(
    run: RunConfig,
    *,
    durations: VirtualDurations = DURATIONS,
    containers: ContainerSettings | None = None,
    until_s: float = 100.0,
) -> VirtualHistory:
    if containers is not None:
        collectors = replace(run.collectors, containers=True)
        run = replace(run, collectors=collectors, containers=containers)
    asked = Evaluations(points=int(4 * until_s), episodes=4, until_s=until_s)
    return learn_in_virtual_time(run, durations, asked)


FREE = {
    "collect__mode": "free",
    "collect__block": 3,
    "collectors__count": 2,
    "collect__max_lag": 1000,
}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"sampling__method": "prioritised"},
        {"collect__mode": "keyed", "collect__block": 2, "collectors__count": 2},
        {"collect__mode": "keyed", "collect__block": 4, "collect__lag": 2},
    ],
    ids=["inline", "prioritised", "keyed", "ahead"],
)
def test_the_bits_are_those_of_the_run_in_one_process(options: dict[str, Any]) -> None:
    run = LocalRun(config(**options), coded=False)
    run.train()
    history = learned(config(**options))
    assert history.digest == run.parameter_digest()
    assert history.facts["iterations"] == 12


def test_several_updates_over_a_collection_have_the_bits_of_one_process() -> None:
    """COMA makes two of 8 episodes, which are played once, before the first."""
    options = {"environment.name": "two_step_game", "algorithm.name": "coma", "iterations": 6}
    run = load(options={**options, "environment.copies": 8, "algorithm.hidden": 8}).check().config
    alone = LocalRun(run, coded=False)
    alone.train()
    history = learned(run, durations=replace(DURATIONS, scatter=0.0, wire_s=0.0, acting_s=0.0))
    assert history.digest == alone.parameter_digest()
    assert history.facts["episodes"] == 3 * 8
    played_s, updated_s = 3 * 2 * 0.02, 6 * 0.05
    assert len(history.points) == int((played_s + updated_s) / 0.25)


@pytest.mark.parametrize("options", [{}, {"collect__mode": "free", "collectors__count": 2}])
def test_a_run_ends_with_the_later_of_its_evaluations_by_time_and_by_steps(
    options: dict[str, Any],
) -> None:
    endless = config(**options, iterations=10_000)
    for until_s, until_steps, by_steps in ((0.5, 400, True), (20.0, 200, False)):
        asked = Evaluations(points=4, episodes=4, until_s=until_s, until_steps=until_steps)
        history = learn_in_virtual_time(endless, DURATIONS, asked)
        assert [point.time_s for point in history.points] == [until_s * n / 4 for n in (1, 2, 3, 4)]
        marks = [until_steps * n // 4 for n in (1, 2, 3, 4)]
        reached = [point.env_steps for point in history.by_steps]
        a_turn = 2 * 8 * 2  # steps of a block of each collector
        assert all(0 <= at - mark < a_turn for at, mark in zip(reached, marks, strict=True))
        assert (history.by_steps[-1].time_s > until_s) is by_steps
        assert (history.facts["env_steps"] < until_steps + a_turn) is by_steps


def test_players_whose_process_updates_stand_still_meanwhile() -> None:
    """Two players with episodes of 2 s, and an update of 1 s after each of their episodes."""
    free = {**FREE, "collect__block": 1, "environment__copies": 1, "collect__warmup_episodes": 2}
    durations = VirtualDurations(step_s=1.0, acting_s=0.0, wire_s=0.0, update_s=1.0)
    alone, held = (
        learned(
            config(**free, iterations=10_000),
            durations=replace(durations, holds=holds),
            until_s=41.0,
        ).facts
        for holds in (False, True)
    )
    assert alone["episodes"] == 2 * 20
    assert held["episodes"] == 2 + 2 * 10  # 2 s, then 1 s, then 2 s and 2 s again and again
    assert held["iterations"] == 1 + 2 * 9  # the last two are under way


def test_durations_decide_when_and_not_what() -> None:
    slow = replace(DURATIONS, step_s=0.2, scatter=0.0)
    histories = [learned(config(), durations=each) for each in (DURATIONS, slow)]
    assert histories[0].digest == histories[1].digest
    assert len(histories[1].points) > len(histories[0].points)


@pytest.mark.integration
@pytest.mark.parametrize("containers", [None, FEW], ids=["plain", "own"])
def test_equal_seeds_give_equal_histories(containers: ContainerSettings | None) -> None:
    first, same, other = (
        learned(config(**FREE, seed=seed), containers=containers) for seed in (3, 3, 4)
    )
    assert first == same
    assert other.digest != first.digest
    assert first.facts["iterations"] == 12


@pytest.mark.integration
def test_heads_change_what_is_played_and_the_share_of_the_bytes_travels() -> None:
    own = learned(config(**FREE, iterations=40), containers=FEW)
    none = learned(config(**FREE, iterations=40), containers=replace(FEW, learn=False))
    assert own.facts["heads"] > 1
    assert none.facts["heads"] == 0
    assert own.digest != none.digest
    for history in (own, none):
        share = history.facts["travelled_bytes"] / history.facts["played_bytes"]
        assert share == pytest.approx(0.6, abs=0.02)


@pytest.mark.integration
def test_collectors_add_up_until_the_window_stops_them() -> None:
    fast = replace(DURATIONS, scatter=0.0)
    played = [
        learned(
            config(**{**FREE, "collectors__count": count}, iterations=10_000),
            durations=fast,
            containers=FEW,
            until_s=1.0,
        ).facts["episodes"]
        for count in (1, 2, 3)
    ]
    assert played[1] == 2 * played[0]
    assert played[2] == 3 * played[0]
    slow = replace(fast, update_s=10.0)
    waiting = learned(config(**FREE), durations=slow, until_s=20.0)
    assert waiting.facts["blocked"] > 0.5


def test_what_does_not_learn_from_episodes_is_refused() -> None:
    options = {"algorithm.name": "maddpg", "environment.name": "cooperative_navigation"}
    with pytest.raises(ConfigError, match="= qmix, vdn, iql or coma"):
        learned(load(options=options).check().config)
