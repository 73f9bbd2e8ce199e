"""What a process pays for at start: torch takes seconds and hundreds of megabytes."""

import subprocess
import sys

import pytest

TORCH_FREE = [
    "fullrank.codes",
    "fullrank.config",
    "fullrank.replay",
    "fullrank.rounds.round",
    "fullrank.planning.simulation",
    "fullrank.stragglers",
    "fullrank.planning.traffic",
    "fullrank.common.updates",
    "fullrank.cli",
    "fullrank_replay.server",
    "fullrank_straggler.server",
]


def _run(program: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", program]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("module", TORCH_FREE)
def test_importing_it_never_imports_torch(module: str) -> None:
    run = _run(f"import sys, {module}; sys.exit('torch' in sys.modules)")
    assert run.returncode == 0, run.stderr or f"{module} imports torch"


@pytest.mark.parametrize("module", ["fullrank_learner.server", "fullrank_dashboard.server"])
def test_importing_it_never_imports_scipy_which_its_image_lacks(module: str) -> None:
    run = _run(f"import sys, {module}; sys.exit('scipy' in sys.modules)")
    assert run.returncode == 0, run.stderr or f"{module} imports scipy"


def test_every_code_is_found_without_torch() -> None:
    run = _run("import sys; from fullrank.codes import codes; list(codes); print(*sys.modules)")
    assert "fullrank.codes.families.mds" in run.stdout.split()
    assert "torch" not in run.stdout.split()


def test_reading_a_configuration_never_imports_torch() -> None:
    run = _run("import sys; from fullrank.config import load; load(); print(*sys.modules)")
    assert "fullrank.config.tree" in run.stdout.split()
    assert "torch" not in run.stdout.split()
