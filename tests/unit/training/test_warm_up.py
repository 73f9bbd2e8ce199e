"""The warm-up reports its progress, which changes no bit of it."""

from typing import Any

import numpy as np
import pytest

from fullrank.config import load
from fullrank.replay.episodes import episodes_in
from fullrank.training.collector import REPORTS
from fullrank.wiring import training_of

SMALL: dict[str, Any] = {
    "algorithm.hidden": 8,
    "algorithm.batch_size": 8,
    "collect.warmup": 200,
    "collect.warmup_copies": 2,
    "environment.copies": 1,
    "environment.agents": 2,
}


@pytest.mark.parametrize("algorithm", ["maddpg", "vdn"])
def test_it_is_told_in_parts_until_it_is_complete(algorithm: str) -> None:
    def warm_up(*report: Any) -> np.ndarray[Any, Any]:
        training = training_of(load(options=SMALL | {"algorithm.name": algorithm}).check().config)
        rows = training.collector.warm_up(*report)
        training.collector.close()
        return rows

    told: list[str] = []
    assert warm_up(told.append).tobytes() == warm_up().tobytes()
    assert 2 <= len(told) <= REPORTS
    assert told[-1] == "warm-up: 200 of 200 transitions"
    assert len({*told}) == len(told)


def test_whole_episodes_are_played_again_and_again_until_there_are_enough_rows() -> None:
    training = training_of(load(options=SMALL | {"algorithm.name": "vdn"}).check().config)
    rows, layout = training.collector.warm_up(), training.problem.episodes
    training.collector.close()
    assert layout is not None
    played = [rows[place].tobytes() for place in episodes_in(rows, layout.length)]
    assert len(rows) >= 200 > len(rows) * (len(played) - 2) / len(played)
    assert len({*played}) == len(played) > 2
