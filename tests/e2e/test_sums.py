"""A sum of units through `fullrank train`, with fewer learners than units, killed and resumed."""

import os
from pathlib import Path

import pytest
from tests.e2e.commands import centralised, digests, final_state, fullrank
from tests.e2e.commands import settings as networks
from tests.faultlab.simulation import toy_algorithm

from fullrank.common.failpoints import VARIABLE

assert toy_algorithm  # importing it registers the algorithm

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).resolve().parents[2]

SUM = (
    "algorithm.name=summed_toy",
    "algorithm.batch_size=8",
    "environment.agents=4",
    "code.name=fractional",
    "learners=3",
    "iterations=6",
    "checkpoint.every=100",
)


@pytest.fixture(scope="module")
def environ(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A package that makes the fault laboratory's algorithms known to every process."""
    directory = tmp_path_factory.mktemp("installed")
    facts = directory / "toys-0.1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Name: toys\nVersion: 0.1.0\n")
    points = f"[fullrank.algorithms]\nsummed_toy = {toy_algorithm.__name__}\n"
    (facts / "entry_points.txt").write_text(points)
    return {"PYTHONPATH": os.pathsep.join(map(str, (directory, ROOT)))}


def train(run_dir: Path, *words: str, env: dict[str, str]) -> int:
    tiny = [word for word in networks() if word != "--set" and not word.startswith("algorithm.")]
    options = [word for setting in (*tiny, *SUM) for word in ("--set", setting)]
    return fullrank("train", "--run-dir", str(run_dir), *options, *words, env=env).code


def test_a_sum_is_trained_killed_and_resumed_to_the_bytes_of_the_uninterrupted_run(
    environ: dict[str, str], tmp_path: Path
) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert train(whole, "--stragglers", "1", "--delay", "0.05", env=environ) == 0
    assert train(killed, env=environ | {VARIABLE: "iteration.published:3"}) != 0
    resumed = fullrank("resume", str(killed), env=environ)
    assert resumed.code == 0, resumed.error
    assert digests(killed) == digests(whole) == centralised(whole)
    assert final_state(killed) == final_state(whole)
