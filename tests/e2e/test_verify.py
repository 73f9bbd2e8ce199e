"""``fullrank verify``: runs of services with stragglers, killed and resumed, are recomputed."""

from pathlib import Path

import pytest
from tests.e2e.commands import fullrank, settings

from fullrank.common.failpoints import VARIABLE

pytestmark = pytest.mark.e2e

ITERATIONS = 9
RUN = settings(
    f"iterations={ITERATIONS}",
    "checkpoint.every=4",
    "checkpoint.keep=9",
    "stragglers.name=fixed_k",
    "stragglers.k=1",
    "stragglers.delay_s=0.05",
    "environment.name=two_step_game",
    "environment.agents=0",
    "algorithm.name=qmix",
    "algorithm.micro_batches=3",
    "algorithm.batch_size=7",
    "algorithm.target_every=5",
    "code.name=fractional",
)


def test_a_run_by_services_that_were_killed_is_recomputed(run_dir: Path) -> None:
    killed = fullrank("train", "--run-dir", str(run_dir), *RUN, env={VARIABLE: "journal.synced:6"})
    assert killed.code != 0
    resumed = fullrank("run", "resume", "--attach", str(run_dir))
    assert (resumed.code, resumed.error) == (0, "")
    whole = fullrank("verify", str(run_dir))
    assert (whole.code, whole.error) == (0, "")
    assert f"{run_dir}: {ITERATIONS} committed iterations recomputed, 0 to 8: " in whole.output
