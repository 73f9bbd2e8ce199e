"""Learning in virtual time: real episodes and gradients, durations as numbers."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fullrank.common.errors import ConfigError
from fullrank.config import RunConfig, load
from fullrank.config.collection import ContainerSettings
from fullrank.local import LocalRun
from fullrank_cmarl.virtual import VirtualDurations, VirtualHistory
from fullrank_cmarl.virtual_learning import learn_in_virtual_time

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
    return learn_in_virtual_time(run, durations, until_s=until_s, every_s=0.25, episodes=4)


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


def test_durations_decide_when_and_not_what() -> None:
    slow = replace(DURATIONS, step_s=0.2, scatter=0.0)
    histories = [learned(config(), durations=each) for each in (DURATIONS, slow)]
    assert histories[0].digest == histories[1].digest
    assert len(histories[1].points) > len(histories[0].points)


@pytest.mark.parametrize("containers", [None, FEW], ids=["plain", "own"])
def test_equal_seeds_give_equal_histories(containers: ContainerSettings | None) -> None:
    first, same, other = (
        learned(config(**FREE, seed=seed), containers=containers) for seed in (3, 3, 4)
    )
    assert first == same
    assert other.digest != first.digest
    assert first.facts["iterations"] == 12


def test_heads_change_what_is_played_and_the_share_of_the_bytes_travels() -> None:
    own = learned(config(**FREE, iterations=40), containers=FEW)
    none = learned(config(**FREE, iterations=40), containers=replace(FEW, learn=False))
    assert own.facts["heads"] > 1
    assert none.facts["heads"] == 0
    assert own.digest != none.digest
    for history in (own, none):
        share = history.facts["travelled_bytes"] / history.facts["played_bytes"]
        assert share == pytest.approx(0.6, abs=0.02)


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


def test_actors_beyond_the_cores_share_them() -> None:
    durations = VirtualDurations(step_s=1.0, acting_s=0.0, cores=4)
    lengths = np.array([3, 2])
    assert durations.block_s(lengths, actors=4, key=(0, 0, 0)) == 3.0
    assert durations.block_s(lengths, actors=10, key=(0, 0, 0)) == 7.5


def test_what_does_not_learn_from_episodes_is_refused() -> None:
    options = {"algorithm.name": "maddpg", "environment.name": "cooperative_navigation"}
    with pytest.raises(ConfigError, match="= qmix, vdn or iql"):
        learned(load(options=options).check().config)
