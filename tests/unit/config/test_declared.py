"""Parameters that are read from the source of an algorithm are those of its class."""

from dataclasses import fields, is_dataclass
from typing import Any, get_type_hints

import pytest
from tests.registries import shipped

from fullrank.algorithms.base import algorithms
from fullrank.config.plugins import EPISODIC, PER_AGENT, declared


@pytest.mark.parametrize("name", shipped(algorithms))
def test_an_algorithm_declares_in_its_source_what_its_class_takes(name: str) -> None:
    cls = algorithms.get(name)
    assert is_dataclass(cls)
    hints, found = get_type_hints(cls), declared(name)
    assert list(found) == [field.name for field in fields(cls) if field.init]
    assert all(kind in (Any, hints[parameter]) for parameter, kind in found.items())
    assert found["discount"] is float


def test_every_algorithm_of_this_package_is_read() -> None:
    assert {*PER_AGENT, *EPISODIC} == set(shipped(algorithms))
