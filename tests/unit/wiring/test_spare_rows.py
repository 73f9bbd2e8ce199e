"""Replay holds the rows that withdrawn iterations draw again."""

import pytest

from fullrank.audit.ledger import WINDOW
from fullrank.common.errors import ConfigError
from fullrank.config import load
from fullrank.wiring.training import SPARE_BYTES, spare_rows, training_of

SMALL = (
    "environment.copies=2",
    "environment.horizon=10",
    "collect.steps=3",
    "collect.warmup=32",
    "collect.warmup_copies=2",
    "algorithm.batch_size=4",
    "algorithm.hidden=8",
    "checkpoint.every=7",
)
EPISODES = ("algorithm.name=qmix", "algorithm.mixing=8", "algorithm.hypernet=8")
KEYED = ("collect.mode=keyed", "collect.block=1", "collectors.count=1")


@pytest.mark.parametrize(
    ("overrides", "period"),
    [
        (["audit.every=25"], 25),
        (["audit.every=0"], 14),  # two periods of checkpoints
        (["audit.every=0", "store.url=/store"], 14),
        ([*KEYED, "audit.every=25"], 25),
        ([*EPISODES, "audit.every=25"], 25),
    ],
)
def test_as_many_rows_are_spare_as_the_iterations_collect_that_may_be_withdrawn(
    overrides: list[str], period: int
) -> None:
    config = load(environ={}, overrides=[*SMALL, *overrides]).check().config
    training = training_of(config)
    collected = len(training.collector.collect(0).rows)
    training.collector.close()
    assert spare_rows(config, training) >= (1 + WINDOW + period) * collected


BATTLE = (
    *("environment.name=smac_lite", "environment.copies=2", "collect.warmup_episodes=2"),
    *("collect.warmup_copies=2", "checkpoint.every=7", "replay.capacity=40000"),
)


@pytest.mark.parametrize(
    "own",
    [
        ["algorithm.name=qmix"],
        ["algorithm.name=mappo", "algorithm.batch_size=2", "algorithm.micro_batches=1"],
    ],
)
def test_battles_of_any_length_keep_the_rows_of_their_longest(own: list[str]) -> None:
    options = [*BATTLE, *own]
    config = load(environ={}, overrides=options).check().config
    training = training_of(config)
    training.collector.close()
    collections = 1 + (WINDOW + 14) // training.trainer.updates
    assert spare_rows(config, training) >= collections * 2 * 60


def test_where_no_length_is_known_as_many_rows_are_spare_as_are_kept() -> None:
    options = ["environment.name=switch_riddle", "algorithm.name=qmix", "replay.capacity=5000"]
    config = load(environ={}, overrides=options).check().config
    training = training_of(config)
    training.collector.close()
    assert spare_rows(config, training) == 5000


def test_battles_keep_no_more_spare_rows_than_others_however_rare_checkpoints_are() -> None:
    options = [*BATTLE, "algorithm.name=qmix", "checkpoint.every=1000000"]
    config = load(environ={}, overrides=options).check().config
    training = training_of(config)
    training.collector.close()
    assert spare_rows(config, training) == max(
        40_000, SPARE_BYTES // (4 * training.problem.row_size)
    )


@pytest.mark.parametrize("key", ["checkpoint.every", "audit.every"])
def test_a_period_whose_rows_nobody_can_count_is_refused_by_its_name(key: str) -> None:
    options = [*SMALL, f"{key}={2**63 - 1}"]
    config = load(environ={}, overrides=options).check().config
    training = training_of(config)
    training.collector.close()
    with pytest.raises(ConfigError, match=f"{key} = {2**63 - 1} .*; lower them"):
        spare_rows(config, training)


@pytest.mark.parametrize("name", ["two_step_game", "switch_riddle"])
def test_a_small_table_keeps_all_rows_since_the_last_checkpoints(name: str) -> None:
    """Whether or not anybody knows how long an episode gets."""
    options = [f"environment.name={name}", "algorithm.name=qmix", "replay.capacity=48"]
    options += ["checkpoint.every=20", "environment.copies=8", "collect.warmup=48"]
    config = load(environ={}, overrides=options).check().config
    training = training_of(config)
    training.collector.close()
    assert spare_rows(config, training) >= 2 * 20 * 8
