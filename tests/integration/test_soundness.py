"""A run whose numbers are not finite ends in one line and commits none; a resumed one, too."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from tests.fakes.extreme import Extreme
from tests.integration.cluster import Cluster, resolved
from tests.waiting import WAIT_S

from fullrank.cli.verify import verify
from fullrank.common.errors import ConfigError, Unsound
from fullrank.config.layers import Resolved
from fullrank.environments.base import environments
from fullrank.host.process import Launch
from fullrank.net.status import ended_status
from fullrank.runs.identity import CHECKPOINTS, JOURNAL
from fullrank.runs.journal import read
from fullrank.runs.record import read_records
from fullrank_controller.local.server import serve

environments.register("extreme")(Extreme)

pytestmark = pytest.mark.integration

WORLD = ("environment.name=extreme", "learners=2")
FAULTS = {
    "learning rate": (
        ("algorithm.learning_rate=1e38",),
        "iteration 0: the critic network of agent 0 has an entry of inf after an update with "
        r"entries up to .* at a learning rate of 1e\+38",
    ),
    "observations": (
        ("environment.observed=1e30",),
        r"iteration 0: the update of unit \d has an entry of nan, in the critic network of agent "
        r"\d; the largest observation is -?1.0e\+30 as observation of agent 1 in row",
    ),
    "rewards": (
        ("environment.paid=1e39",),
        "the warm-up: reward of agent 1 in row 0 is inf",
    ),
}


def world(*overrides: str) -> Resolved:
    """The settings of a tiny run in the extreme environment."""
    return resolved(*WORLD, *overrides)


@pytest.mark.parametrize("fault", FAULTS)
async def test_services_end_in_one_line_again_after_resuming_and_commit_nothing(
    tmp_path: Path, fault: str
) -> None:
    overrides, said = FAULTS[fault]
    for _ in ("begun", "resumed"):
        async with Cluster(tmp_path, world(*overrides)) as cluster:
            cluster.replay()
            controller = cluster.controller()
            cluster.learners(2)
            with pytest.raises(Unsound, match=said) as ended:
                await asyncio.wait_for(controller.task, WAIT_S)
            assert "\n" not in str(ended.value)
            assert ended.value.exit_code == 15
    assert not (tmp_path / CHECKPOINTS).exists()
    assert read(tmp_path / JOURNAL, first=0) == []


async def test_what_clipping_loses_is_said_with_iteration_and_network_until_the_run_s_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = world("environment.paid=1e25")
    async with Cluster(tmp_path, settings) as cluster:
        await cluster.run_out_of_disk(2, monkeypatch)
    async with Cluster(tmp_path, settings) as cluster:
        status = await cluster.train()
    for record in cluster.records():
        lost = {name: each for name, each in record.statistics.items() if "overflow" in name}
        assert lost == {"clip_overflow/critic/1": 5.0}
    vanished, clamped = status.caveats
    assert "gradients vanished" in vanished
    assert "first in iteration 0 (critic/1)" in vanished
    assert "statistics reached the bound of exact sums, or gradients were clamped or" in clamped
    assert "first in iteration 0 (critic_loss/1)" in clamped
    assert [record.caveats for record in cluster.records()] == [(vanished, clamped)] * 4
    assert (ended := ended_status(tmp_path)) is not None
    assert ended.caveats == (vanished, clamped)
    await asyncio.to_thread(verify, str(tmp_path))
    assert capsys.readouterr().out.endswith(f"\ncaveat: {clamped}\n")


async def test_one_process_says_and_commits_the_same(tmp_path: Path) -> None:
    launch = Launch(
        resolved=world("environment.paid=1e25"), run_dir=tmp_path / "run", until_finished=True
    )
    assert await serve(launch, tmp_path / "run", asyncio.Event())
    records = read_records(tmp_path / "run" / "metrics.jsonl")
    async with Cluster(tmp_path / "services", world("environment.paid=1e25")) as cluster:
        await cluster.train()
    assert cluster.digests() == [record.update_digest for record in records]
    assert [record.statistics for record in records] == [
        record.statistics for record in cluster.records()
    ]


async def test_committed_iterations_stay_those_before_the_fault(tmp_path: Path) -> None:
    launch = Launch(
        resolved=world("algorithm.learning_rate=1e15", "checkpoint.every=100"),
        run_dir=tmp_path,
        until_finished=True,
    )
    said = []
    for _ in ("begun", "resumed"):
        with pytest.raises(Unsound, match="iteration 1: the update of unit 0") as ended:
            await serve(launch, tmp_path, asyncio.Event())
        said.append(str(ended.value))
    assert said[0] == said[1]
    assert [entry.iteration for entry in read(tmp_path / JOURNAL, first=0)] == [0]


def test_a_process_that_flushes_denormal_numbers_does_not_resume_a_run(tmp_path: Path) -> None:
    def resume(iterations: int, *, flush: bool) -> None:
        torch.set_flush_denormal(flush)  # of this thread, and of those that it starts
        launch = Launch(
            resolved=resolved(f"iterations={iterations}"), run_dir=tmp_path, until_finished=True
        )
        asyncio.run(serve(launch, tmp_path, asyncio.Event()))

    with ThreadPoolExecutor(1) as thread:
        thread.submit(resume, 2, flush=False).result()
        with pytest.raises(ConfigError, match=r"denormals flushed by .*moments, targets"):
            thread.submit(resume, 4, flush=True).result()
        thread.submit(resume, 4, flush=False).result()
    assert len(read_records(tmp_path / "metrics.jsonl")) == 4
