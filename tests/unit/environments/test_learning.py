"""MADDPG and MFAC train on the tasks of [DARL1N], coded as on any other task."""

from typing import Any

import numpy as np
import pytest

from fullrank.config import load
from fullrank.local import LocalRun

SMALL: dict[str, Any] = {
    "iterations": 2,
    "learners": 11,
    "collect.warmup": 64,
    "algorithm.batch_size": 16,
    "algorithm.hidden": 16,
    "environment.copies": 2,
}
TASKS = {
    "ising": 9,
    "wireless": 9,
    "food_collection": 4,
    "grassland": 6,
    "adversarial_battle": 6,
}
"""Number of agents by name."""


@pytest.mark.parametrize(
    ("algorithm", "name"), [*(("maddpg", task) for task in TASKS), ("mfac", "grassland")]
)
def test_coded_training_ends_as_the_centralised_run(algorithm: str, name: str) -> None:
    task = {"environment.name": name, "environment.agents": TASKS[name]}
    options = SMALL | task | {"algorithm.name": algorithm}
    config = load(options=options).check().config
    runs = [LocalRun(config, coded=coded) for coded in (True, False)]
    before = {key: value.copy() for key, value in runs[0].training.state(resume_at=0).items()}
    for run in runs:
        run.train()
    coded, central = (run.training.state(resume_at=2) for run in runs)
    for key, value in coded.items():
        np.testing.assert_array_equal(value, central[key])
    assert any(not np.array_equal(before[key], coded[key]) for key in before if key in coded)
