"""Run directories that are cleaned of processes whatever the test did."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.commands import kill_all


@pytest.fixture
def run_dir(tmp_path: Path) -> Iterator[Path]:
    """Where a run may go."""
    path = tmp_path / "run"
    yield path
    kill_all(path)
