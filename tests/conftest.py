"""Settings shared by all tests."""

import importlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from tests.games import Visit

from fullrank.environments.local_code import guard

collect_ignore = ["faultlab"]  # equipment, whose modules register names once

PHASES = ("setup", "call")
"""Phases of a test whose log counts."""

os.environ.setdefault("OMP_NUM_THREADS", "1")
# Threads that wait for work otherwise spin, and take the processor from other workers.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# A busy machine is no reason to fail, and every run of the tests tries the same examples.
whole = settings(deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("fullrank", whole)
settings.register_profile("quick", whole, max_examples=30)  # of `make test` and CI
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


@pytest.fixture(autouse=True)
def captured_on_cuda(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test marked ``gpu`` in which a capture failed: it would compare launches alone."""
    if request.node.get_closest_marker("gpu") is None:
        yield
        return
    caplog = request.getfixturevalue("caplog")
    yield
    logged = [record.getMessage() for phase in PHASES for record in caplog.get_records(phase)]
    refused = [line for line in logged if line.startswith("not_captured")]
    assert not refused, refused[0]


def lies_in(folder: Path, module: Any) -> bool:
    facts = getattr(module, "__dict__", {})  # a lazy module would be loaded by asking it
    places = [facts.get("__file__"), *(facts.get("__path__") or ())]
    return any(str(place).startswith(str(folder)) for place in places)


@pytest.fixture
def visit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Visit]:
    """Go to a folder as a process that starts there: without modules of any other folder."""
    found, loaded = list(sys.path), dict(guard().loaded)

    def forget() -> None:
        modules = list(sys.modules.items())
        for name in [name for name, module in modules if lies_in(tmp_path, module)]:
            del sys.modules[name]
        guard().loaded.clear()
        guard().policy = None
        sys.path[:] = found
        importlib.invalidate_caches()

    def go(folder: Path) -> Path:
        forget()
        folder.mkdir(exist_ok=True)
        monkeypatch.chdir(folder)
        return folder

    yield go
    forget()
    guard().loaded.update(loaded)
