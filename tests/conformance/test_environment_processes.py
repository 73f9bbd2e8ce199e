"""Copies in processes of their own: the bits of copies that one thread steps; faults are named."""

import re
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from tests.waiting import WAIT_S, wait_until

from fullrank.common.errors import ConfigError, EnvironmentFailed
from fullrank.common.seeding import derive
from fullrank.config import RunConfig, load
from fullrank.training.block_collection import KeyedCollection
from fullrank.training.block_player import BlockPlayer, PlayTerms
from fullrank.training.blocks import BlockKey
from fullrank.wiring.training import Training, block_player_of, training_of

pytestmark = pytest.mark.integration

FAULTY = "tests.conformance.faulty_game:FaultyGame"
COMMON: dict[str, Any] = {
    "environment.copies": 5,
    "environment.agents": 0,
    "collect.mode": "keyed",
    "collect.block": 3,
    "collect.warmup": 30,
    "collect.warmup_copies": 2,
    "collectors.count": 1,
    "collectors.processes": True,
    "algorithm.hidden": 12,
    "algorithm.batch_size": 8,
}
GAMES: dict[str, dict[str, Any]] = {
    "masks, recurrent, of unequal lengths": {
        "algorithm.name": "qmix",
        "environment.name": "pettingzoo",
        "environment.factory": "fullrank.environments.parallel:parallel_env",
        "environment.arguments": {"name": "switch_riddle", "agents": 3},
    },
    "masks, and agents that come back": {
        "algorithm.name": "vdn",
        "environment.name": "tests.unit.environments.games:Watch",
    },
    "masks, and a limit of one's own": {
        "algorithm.name": "maddpg",
        "environment.name": "tests.unit.environments.games:MaskedWatch",
        "environment.truncate": True,
    },
    "gymnasium": {
        "algorithm.name": "iql",
        "environment.name": "gymnasium",
        "environment.id": "lbforaging:Foraging-5x5-2p-1f-v3",
    },
}


def settings(**options: Any) -> RunConfig:
    keys = {key.replace("__", "."): value for key, value in options.items()}
    return load(options=COMMON | keys).check().config


def players(config: RunConfig, training: Training, *processes: bool) -> list[BlockPlayer]:
    return [
        block_player_of(
            config,
            training.environment,
            processes=each,
        )
        for each in processes
    ]


def terms(training: Training) -> PlayTerms:
    collection = training.collector.collection
    assert isinstance(collection, KeyedCollection)
    return collection.begin(0)


@pytest.mark.parametrize("game", GAMES.values(), ids=GAMES)
def test_a_block_has_the_bits_of_copies_that_one_thread_steps(game: dict[str, Any]) -> None:
    config = load(options=COMMON | game).check().config
    training = training_of(config)
    play = terms(training)
    inline, apart = players(config, training, False, True)
    for key in (BlockKey(0, 0), BlockKey(0, 1), BlockKey(3, 0)):
        one, other = inline.play(key, play), apart.play(key, play)
        assert one.outcomes.lengths.tolist() == other.outcomes.lengths.tolist()
        assert one.rows.tobytes() == other.rows.tobytes()
        assert one.digest == other.digest
    for closing in (inline, apart, training.collector):
        closing.close()


def test_a_block_that_fails_and_then_cannot_be_closed_tells_the_first_error() -> None:
    name = "tests.unit.environments.test_pettingzoo:Clinging"
    config = settings(**{"environment.name": name, "environment.stalls": True})
    training = training_of(config)
    (player,) = players(config, training, False)
    with pytest.raises(EnvironmentFailed, match=r"step 2: copy 0: .* in step 3 of seed \d+: Zero"):
        player.play(BlockKey(0, 0), terms(training))


@pytest.fixture
def training() -> Iterator[Training]:
    training = training_of(settings(**{"environment.name": FAULTY}))
    yield training
    training.collector.close()


def faulty(training: Training, **arguments: Any) -> BlockPlayer:
    """Return a player in which the fourth copy is faulty in iteration 2."""
    seed = derive(0, "episode", 4, 2)
    named = {"environment.name": FAULTY, "environment.seed": seed}
    options = {f"environment.{key}": value for key, value in arguments.items()}
    config = settings(seed=0, **(named | options))
    (player,) = players(config, training, True)
    return player


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("raises", r"copy 4: .* in step 3 of seed \d+: RuntimeError: the engine stalls"),
        ("leaks", r"copy 4: .* in step 3 of seed \d+: \w*MemoryError: Unable to allocate"),
        ("is killed", r"copy 4: its process has ended with exit code -9 in step 3 of seed \d+"),
    ],
)
def test_a_fault_costs_its_block_and_names_seed_copy_and_step(
    training: Training, fault: str, message: str
) -> None:
    player, play = faulty(training, fault=fault), terms(training)
    named = f"iteration 2, copies 3 to 4 of seed 0, step 2: {message}"
    with pytest.raises(EnvironmentFailed, match=named):
        player.play(BlockKey(2, 1), play)
    assert player.play(BlockKey(2, 0), play).outcomes.lengths.tolist() == [5, 5, 5]
    player.close()


def test_a_process_that_hangs_is_ended_from_another_thread(
    training: Training, tmp_path: Path
) -> None:
    hanging, failures = tmp_path / "hanging", []
    player, play = (
        faulty(training, fault="hangs", path=str(hanging)),
        terms(training),
    )

    def playing() -> None:
        try:
            player.play(BlockKey(2, 1), play)
        except EnvironmentFailed as error:
            failures.append(str(error))

    thread = Thread(target=playing)
    thread.start()
    wait_until(hanging.exists, what="the game hangs")
    assert player.interrupt("no answer for 9.0 s")
    thread.join(WAIT_S)
    (failure,) = failures
    assert "iteration 2, copies 3 to 4 of seed 0" in failure
    assert re.search(r": copy [34]: no answer for 9\.0 s in step \d of seed \d+$", failure)
    assert player.play(BlockKey(1, 1), play).outcomes.lengths.tolist() == [5, 5]
    player.close()


def test_what_a_game_prints_disturbs_no_block(
    training: Training, capfd: pytest.CaptureFixture[str]
) -> None:
    player = faulty(training, fault="prints")
    block = player.play(BlockKey(2, 1), terms(training))
    assert block.outcomes.lengths.tolist() == [5, 5]
    player.close()  # which flushes what its processes print
    assert "noise" in capfd.readouterr().out


def test_arrays_have_no_processes() -> None:
    with pytest.raises(ConfigError, match="the copies of switch_riddle are stepped as arrays"):
        settings(environment__name="switch_riddle")
