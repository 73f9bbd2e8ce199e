"""Fixtures of the conformance tests of algorithms."""

from collections.abc import Iterator

import pytest
import torch

from .algorithm_cases import parameters


@pytest.fixture(params=parameters())
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(autouse=True)
def restore_threads() -> Iterator[None]:
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)
