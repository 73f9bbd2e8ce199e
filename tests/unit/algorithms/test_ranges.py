"""Numbers of algorithms beyond their ranges are refused in one line, before anything is made."""

from dataclasses import fields
from typing import Any

import pytest
from tests.registries import shipped

from fullrank.algorithms import algorithms
from fullrank.common.errors import ConfigError
from fullrank.config import load

NUMBERS = [
    (name, field.name)
    for name in shipped(algorithms)
    for field in fields(algorithms.get(name))  # type: ignore[arg-type]
    if field.init and isinstance(field.default, int | float) and not isinstance(field.default, bool)
]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize(("name", "number"), NUMBERS)
def test_no_number_of_any_algorithm_takes_what_is_not_finite(
    name: str, number: str, value: float
) -> None:
    """The limit on the variance of DARL1N's updates alone is lifted by infinity."""
    if (number, value) == ("max_variance", float("inf")):
        algorithms.build(name, max_variance=value)
        return
    with pytest.raises(ConfigError, match=f"algorithm.*{number} must be") as refused:
        algorithms.build(name, **{number: value})
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "number", "value", "told"),
    [
        ("qmix", "exploration_steps", -1, "must not be below 0: -1"),
        ("iql", "exploration_start", 5.0, "must lie between 0 and 1: 5.0"),
        ("pqn", "exploration_end", -0.1, "must lie between 0 and 1: -0.1"),
        ("maddpg", "discount", 5.0, "must lie between 0 and 1: 5.0"),
        ("maddpg", "learning_rate", -0.1, "must not be below 0: -0.1"),
        ("darl1n", "target_rate", 1.5, "must lie between 0 and 1: 1.5"),
        ("masac", "temperature", 0.0, "must be above 0: 0.0"),
        ("mappo", "trace", -1.0, "must lie between 0 and 1: -1.0"),
        ("ippo", "clip_norm", 0.0, "must be above 0: 0.0"),
        ("ippo", "value_clip", -0.1, "must not be below 0: -0.1"),
    ],
)
def test_a_number_beyond_its_range_is_refused_with_the_configuration(
    name: str, number: str, value: Any, told: str
) -> None:
    with pytest.raises(ConfigError, match=f"^algorithm.{number} {told}$"):
        load(options={"algorithm.name": name, f"algorithm.{number}": value}).check()
