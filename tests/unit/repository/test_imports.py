"""Services start without torch, which takes seconds and hundreds of megabytes."""

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
    "fullrank.planning.planner",
    "fullrank.common.updates",
    "fullrank.cli",
    "fullrank_replay.server",
    "fullrank_straggler.server",
]


def _run(program: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", program]
    return subprocess.run(command, capture_output=True, text=True, check=False)


SCIPY_FREE = ["fullrank_learner.server", "fullrank_dashboard.server"]
"""Services whose images hold no SciPy."""
IMPORT = """
import importlib, sys

for module in {modules}:
    importlib.import_module(module)
    if {unwanted!r} in sys.modules:
        sys.exit(module + " imports {unwanted}")
"""


@pytest.mark.parametrize(
    ("modules", "unwanted"), [(TORCH_FREE, "torch"), (SCIPY_FREE, "scipy")], ids=["torch", "scipy"]
)
def test_importing_them_never_imports(modules: list[str], unwanted: str) -> None:
    """One process imports them all: it starts without the module and ends without it."""
    run = _run(IMPORT.format(modules=modules, unwanted=unwanted))
    assert run.returncode == 0, run.stderr


def test_every_code_is_found_without_torch() -> None:
    run = _run("import sys; from fullrank.codes import codes; list(codes); print(*sys.modules)")
    assert "fullrank.codes.families.mds" in run.stdout.split()
    assert "torch" not in run.stdout.split()


def test_reading_a_configuration_never_imports_torch() -> None:
    run = _run("import sys; from fullrank.config import load; load(); print(*sys.modules)")
    assert "fullrank.config.tree" in run.stdout.split()
    assert "torch" not in run.stdout.split()
