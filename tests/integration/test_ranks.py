"""A run in one process whose updates several ranks divide, over gloo."""

import asyncio
import os
import signal
from collections.abc import Iterator
from multiprocessing import active_children
from pathlib import Path

import pytest
import torch
from tests.integration.cluster import Cluster, centralised, resolved
from tests.integration.test_local import run
from tests.waiting import eventually

from fullrank.algorithms import Problem
from fullrank.common.errors import ConfigError, DeadlinePassed, FullrankError, ServiceLost
from fullrank.config import Resolved, RunConfig
from fullrank.config.plugins import problem_of
from fullrank.host.process import Launch
from fullrank.runs.checkpoint import saved
from fullrank.runs.journal import read as read_journal
from fullrank.runs.record import read_records
from fullrank_controller.local import server
from fullrank_controller.local.ranks import backend_of, devices_of, seated
from fullrank_controller.local.server import serve

pytestmark = pytest.mark.integration

PARTS = ("algorithm.micro_batches=4", "compute.device=cpu")
FORESEEN = (
    *("algorithm.micro_batches=1", "iterations=12"),
    *("collect.warmup=600", "environment.copies=4"),
)
"""Some minibatches hold no row of their own iteration, which is then played beside."""
ONE_CARD = ("compute.device=cuda:0", "controller.device=cuda:0")
"""Ranks share a CUDA device, over gloo."""
CARD_EACH = ("compute.device=cuda", "controller.device=cuda")
"""Each rank has a CUDA device, and they use nccl."""
TWO_CARDS = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")


def ranks(count: int, split: str, *overrides: str) -> Resolved:
    """The tiny configuration with a group of ranks, of which all but one are processes started."""
    return resolved(*PARTS, f"ranks.count={count}", f"ranks.split={split}", *overrides)


def described(*overrides: str) -> tuple[RunConfig, Problem]:
    """The tiny configuration with two ranks that divide agents, and its problem."""
    config = ranks(2, "agents", *overrides).config
    return config, problem_of(config)


def state(run_dir: Path) -> bytes:
    """The final checkpoint."""
    return (saved(run_dir / "checkpoints")[0] / "state.safetensors").read_bytes()


@pytest.fixture(autouse=True)
def no_rank_is_left() -> Iterator[None]:
    yield
    assert active_children() == []


@pytest.mark.parametrize(
    ("count", "split", "overrides"),
    [
        (2, "agents", FORESEEN),
        (2, "transitions", ("collect.lag=1",)),
        pytest.param(2, "agents", ONE_CARD, marks=pytest.mark.gpu),
        pytest.param(2, "transitions", ONE_CARD, marks=pytest.mark.gpu),
        pytest.param(2, "agents", CARD_EACH, marks=[pytest.mark.gpu, TWO_CARDS]),
        pytest.param(2, "transitions", CARD_EACH, marks=[pytest.mark.gpu, TWO_CARDS]),
    ],
)
async def test_ranks_commit_the_bits_of_one_process(
    tmp_path: Path,
    count: int,
    split: str,
    overrides: tuple[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server, "usable_cores", lambda: count + 1)  # play beside the ranks
    settings = ranks(count, split, *overrides)
    records = await run(tmp_path, settings)
    digests, _ = centralised(settings.config)
    assert [record.update_digest for record in records] == digests
    assert all(record.exact for record in records)
    alone = await run(tmp_path / "alone", resolved(*PARTS, *overrides))
    assert [record.update_digest for record in alone] == digests
    assert [record.statistics for record in alone] == [record.statistics for record in records]
    assert state(tmp_path) == state(tmp_path / "alone")


async def test_an_interrupted_run_goes_on_with_other_ranks_and_then_with_services(
    tmp_path: Path,
) -> None:
    code = ("code.name=uncoded", "learners=3")
    begun = ("iterations=1", "checkpoint.every=3", *code)  # the journal alone has the update
    await run(tmp_path, ranks(2, "agents", *begun))
    await run(tmp_path, ranks(2, "transitions", "iterations=2", *code))
    async with Cluster(tmp_path, resolved(*PARTS, *code)) as cluster:
        await cluster.train()
    assert cluster.outcome() == centralised(cluster.config)


async def test_updates_too_large_for_the_journal_stay_with_their_ranks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An update that is not stored is computed again."""
    for module in ("fullrank_controller.local.ranks", "fullrank.runs.journal"):
        monkeypatch.setattr(f"{module}.UPDATE_BYTES", 0)
    settings = ranks(2, "agents", "checkpoint.every=3")
    await run(tmp_path, resolved(*PARTS, "checkpoint.every=3", "iterations=1"))
    records = await run(tmp_path, settings)
    assert [record.update_digest for record in records] == centralised(settings.config)[0]
    assert all(entry.updates is None for entry in read_journal(tmp_path / "journal", first=0))


@pytest.mark.parametrize(
    ("sign", "error", "message", "timeout_s"),
    [
        (signal.SIGKILL, ServiceLost, r"rank 1 of 2 died \(exit code -9\)", 600),
        pytest.param(
            signal.SIGSTOP,
            DeadlinePassed,
            r"rank 1 of 2 has not answered within 30 s \(controller.deadline_s\)",
            30,
            marks=pytest.mark.thorough,
        ),
    ],
    ids=["dies", "hangs"],
)
async def test_a_rank_that_dies_or_hangs_ends_the_run_with_one_line_and_it_is_resumed(
    tmp_path: Path, sign: signal.Signals, error: type[FullrankError], message: str, timeout_s: int
) -> None:
    settings = ranks(2, "agents", "iterations=100000", f"controller.deadline_s={timeout_s}")
    launch = Launch(resolved=settings, run_dir=tmp_path, until_finished=True)
    running = asyncio.create_task(serve(launch, tmp_path, asyncio.Event()))
    metrics = tmp_path / "metrics.jsonl"
    await eventually(
        lambda: running.done() or (metrics.exists() and metrics.stat().st_size > 0),
        what="an iteration was committed",
    )
    (rank,) = active_children()
    assert rank.pid is not None
    os.kill(rank.pid, sign)
    with pytest.raises(error, match=message) as raised:
        await running
    assert "\n" not in str(raised.value)
    committed = len(read_records(metrics))
    longer = resolved(*PARTS, f"iterations={committed + 2}")  # by one process, which starts none
    records = await run(tmp_path, longer)
    digests, _ = centralised(longer.config)
    assert [record.update_digest for record in records] == digests


@pytest.mark.parametrize(
    ("device", "devices", "line"),
    [
        (
            "cuda:0,cuda:2",
            2,
            "compute.device = 'cuda:0,cuda:2' needs cuda:2, and this host has cuda:0 to cuda:1: "
            "use one of them, 'cuda' or 'cpu'",
        ),
        *(
            (
                name,
                devices,
                "ranks.count = 2 needs a CUDA device for each rank, and this host has "
                f"{devices}: use fewer ranks, or compute.device = 'cpu'",
            )
            for name, devices in (("cuda", 0), ("auto", 1))
        ),
    ],
)
def test_ranks_without_their_devices_are_one_line(
    device: str, devices: int, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fullrank_controller.local.ranks.visible", lambda: devices)
    monkeypatch.setattr("fullrank.algorithms.devices.lack_of_kernels", str)
    with pytest.raises(ConfigError) as raised:
        backend_of(*described(f"compute.device={device}"))
    assert str(raised.value) == line


@pytest.mark.parametrize(
    ("device", "devices", "backend", "own"),
    [
        ("auto", 2, "nccl", ["cuda:0", "cuda:1"]),
        ("cuda:0", 1, "gloo", ["cuda:0", "cuda:0"]),
        ("cuda:3,cuda:1", 4, "nccl", ["cuda:3", "cuda:1"]),
        ("auto", 0, "gloo", ["cpu", "cpu"]),
    ],
)
def test_ranks_with_a_device_each_use_nccl_and_others_gloo(
    device: str, devices: int, backend: str, own: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fullrank_controller.local.ranks.visible", lambda: devices)
    monkeypatch.setattr("fullrank.algorithms.devices.lack_of_kernels", str)
    run = described(f"compute.device={device}")
    assert (backend_of(*run), devices_of(*run)) == (backend, own)


def test_ranks_with_auto_compute_on_the_cpu_where_no_kernel_can_be_compiled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fullrank_controller.local.ranks.visible", lambda: 1)
    monkeypatch.setattr("fullrank.algorithms.devices.lack_of_kernels", lambda: "no compiler")
    run = described("compute.device=auto")
    assert (backend_of(*run), devices_of(*run)) == ("gloo", ["cpu", "cpu"])


def test_ranks_with_auto_compute_on_the_cpu_where_no_device_was_measured_to_be_quicker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fullrank_controller.local.ranks.visible", lambda: 1)
    run = described("compute.device=auto", "algorithm.hidden_layers=3")
    assert (backend_of(*run), devices_of(*run)) == ("gloo", ["cpu", "cpu"])


@pytest.mark.parametrize(("stepping", "steps_on"), [("cuda:3,cuda:1", "cuda:1"), ("cpu", "cpu")])
def test_a_rank_steps_where_it_computes_unless_the_run_steps_elsewhere(
    stepping: str, steps_on: str
) -> None:
    named = ("compute.device=cuda:3,cuda:1", f"controller.device={stepping}")
    own = seated(ranks(2, "agents", *named).config, "cuda:1")
    assert (own.compute.device, own.controller.device) == ("cuda:1", steps_on)


async def test_more_ranks_than_agents_end_before_anything_is_computed(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"ranks.count = 4 exceeds the 3 agents"):
        await run(tmp_path, ranks(4, "agents"))
