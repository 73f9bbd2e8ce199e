"""Fixtures of the conformance tests of algorithms."""

from collections.abc import Iterator

import pytest
import torch
from tests.registries import shipped

from fullrank.algorithms import (
    algorithms,
)

from .algorithm_cases import COSTLY, VARIANTS

CASES = [
    pytest.param(name, marks=pytest.mark.thorough) if name in COSTLY else name
    for name in (*shipped(algorithms), *VARIANTS)
]


@pytest.fixture(params=CASES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(autouse=True)
def restore_threads() -> Iterator[None]:
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)
