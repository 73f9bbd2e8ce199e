"""A process that interprets kernels: Triton decides that when it is imported."""

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest


@pytest.fixture(scope="package")
def interpreter() -> Iterator[ProcessPoolExecutor]:
    """A process in which kernels are interpreted."""
    pytest.importorskip("triton", reason="triton is made for Linux on x86-64")
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("TRITON_INTERPRET", "1")
            pool.submit(int).result()
        yield pool
