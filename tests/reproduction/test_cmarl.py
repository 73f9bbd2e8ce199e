"""A slice of the reproduction of [CMARL], through the command."""

from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fullrank_reproduction.cli import app
from fullrank_reproduction.cmarl import scales
from fullrank_reproduction.cmarl.multi_queue import measure

SLICE = replace(
    scales.SMOKE,
    learning=replace(
        scales.SMOKE.learning, maps=("3m",), seeds=1, until_s=1.0, points=1, episodes=2
    ),
)


@pytest.mark.thorough
def test_a_slice_ends_with_a_page_and_is_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(scales.SCALES, "smoke", SLICE)
    command = ["cmarl", "--output", str(tmp_path), "--only", "learning"]
    first, second = (CliRunner().invoke(app, command) for _ in range(2))
    assert (first.exit_code, second.exit_code) == (0, 0), first.output
    assert first.stdout.count(": computed") == len(list((tmp_path / "cells").glob("*.json")))
    assert second.stdout == f"claims, tables and pictures: {tmp_path}/README.md\n"
    page = (tmp_path / "README.md").read_text()
    for claim in range(1, 12):
        assert f"C{claim}: " in page


def test_a_part_that_does_not_exist_is_refused() -> None:
    outcome = CliRunner().invoke(app, ["cmarl", "--only", "football"])
    assert "the parts are queues, services, learning" in str(outcome.exception)


@pytest.mark.e2e
def test_writers_and_a_sampler_share_one_replay_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = measure(1.0)
    assert found.episodes > 0
    assert found.minibatches > 0
    assert 0 <= found.waited < 1
    assert not list(tmp_path.iterdir())
