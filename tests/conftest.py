"""Settings shared by all tests."""

import os
from collections.abc import Iterator
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, settings

from fullrank.environments.local_code import guard

os.environ.setdefault("OMP_NUM_THREADS", "1")
# Threads that wait for work otherwise spin, and take the processor from other workers.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# A busy machine is no reason to fail, and every run of the tests tries the same examples.
whole = settings(deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("fullrank", whole)
settings.register_profile("quick", whole, max_examples=30)  # of `make test`
settings.load_profile("fullrank")


@pytest.fixture(scope="session", autouse=True)
def state_home() -> Iterator[None]:
    """Keep what the tests' user has trained apart from what the user of the machine has."""
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", folder)
        yield


@pytest.fixture(autouse=True)
def own_imports() -> Iterator[None]:
    """Let no test decide which modules the next one may import."""
    yield
    guard().policy = None
