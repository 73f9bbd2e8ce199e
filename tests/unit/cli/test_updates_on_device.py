"""Runs in one process whose updates stay on their device, forced on the CPU."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.conformance.paths import take_paths, without_passes_of_ppo
from tests.unit.cli.verified import ITERATIONS, TEAMS, entries_of, train
from torch import Tensor

from fullrank.algorithms.captured import CapturedGradients
from fullrank.algorithms.fused_values import FusedValueGradients
from fullrank.common.errors import EnvironmentFailed, Unsound
from fullrank.common.rows import Rows
from fullrank.common.types import IntArray
from fullrank.networks.fused.cuda import DeviceRows
from fullrank.networks.fused.gradients import HostDraw
from fullrank.networks.fused.maddpg import FusedMADDPG
from fullrank.networks.fused.unit_batch import UnitBatch
from fullrank.runs import checkpoint
from fullrank.runs.identity import CHECKPOINTS
from fullrank.runs.record import read_records
from fullrank.training.mirror import Mirror
from fullrank.training.trainer import Trainer
from fullrank_controller.local import computation

PLAYED = (
    "environment.name=two_step_game",
    "environment.agents=0",
    "environment.copies=4",
    "collect.warmup=0",
    "algorithm.batch_size=2",
    "algorithm.micro_batches=2",
    "algorithm.epochs=2",
)
ON_POLICY = {name: (*PLAYED, f"algorithm.name={name}") for name in ("ippo", "mappo", "pqn")}
"""Teams that learn from what they have just played."""


def committed(run: Path) -> list[object]:
    """What a run has committed: digests, statistics, updates in its journal, and its end."""
    records = read_records(run / "metrics.jsonl")
    journalled = [None if e.updates is None else e.updates.tobytes() for e in entries_of(run)]
    newest = checkpoint.newest(run / CHECKPOINTS)
    arrays = {name: array.tobytes() for name, array in newest.arrays.items()}
    return [[(each.update_digest, each.statistics) for each in records], journalled, arrays]


@pytest.mark.parametrize("team", ["maddpg", "darl1n", "micro-batches", "qmix"])
def test_a_run_whose_updates_stay_is_that_in_host_memory_and_is_verified(
    team: str, tmp_path: Path, fullrank: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = train(tmp_path / "here", *TEAMS[team])
    take_paths(monkeypatch, of_cuda=True)
    there = train(tmp_path / "there", *TEAMS[team])
    assert committed(here) == committed(there)
    outcome = fullrank("verify", str(there))
    assert outcome.code == 0, outcome.error


@pytest.mark.parametrize("team", ON_POLICY)
def test_an_on_policy_run_whose_updates_stay_is_that_in_host_memory_and_is_verified(
    team: str, tmp_path: Path, fullrank: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_passes_of_ppo(monkeypatch)
    here = train(tmp_path / "here", *ON_POLICY[team])
    take_paths(monkeypatch, of_cuda=True)
    rows, captured = CapturedGradients.rows, list[int]()

    def counting(self: CapturedGradients, *words: Any, **named: Any) -> Any:
        captured.append(named["iteration"])
        return rows(self, *words, **named)

    monkeypatch.setattr(CapturedGradients, "rows", counting)
    there = train(tmp_path / "there", *ON_POLICY[team])
    assert {*captured} == {*range(ITERATIONS)}
    assert committed(here) == committed(there)
    outcome = fullrank("verify", str(there))
    assert outcome.code == 0, outcome.error


def test_a_run_whose_updates_stay_resumes_from_its_journal_to_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = train(tmp_path / "here", *TEAMS["maddpg"])
    take_paths(monkeypatch, of_cuda=True)
    apply, steps = Trainer.apply, list[bool]()

    def failing(self: Trainer, targets: Rows, *, iteration: int) -> Any:
        steps.append(isinstance(targets, DeviceRows))
        if len(steps) == 6:
            raise EnvironmentFailed("environment: out of memory")
        return apply(self, targets, iteration=iteration)

    gather, gathered = Mirror.gather, list[int]()

    def counting(self: Mirror, positions: IntArray) -> DeviceRows:
        gathered.append(len(positions))
        return gather(self, positions)

    monkeypatch.setattr(Mirror, "gather", counting)
    monkeypatch.setattr(Trainer, "apply", failing)
    with pytest.raises(EnvironmentFailed):
        train(tmp_path / "there", *TEAMS["maddpg"])
    assert committed(here) == committed(train(tmp_path / "there", *TEAMS["maddpg"]))
    assert steps[:6] == [True] * 6
    assert {*steps[6:]} == {False, True}  # of the journal, and computed
    assert gathered == [16] * sum(steps)


def test_a_table_for_which_the_device_has_no_room_is_gathered_in_host_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    here = train(tmp_path / "here", *TEAMS["maddpg"])
    take_paths(monkeypatch, of_cuda=True)
    monkeypatch.setattr(computation, "fits", lambda table, device: False)
    monkeypatch.setattr(Mirror, "gather", None)
    with caplog.at_level("INFO"):
        there = train(tmp_path / "there", *TEAMS["maddpg"])
    assert committed(here) == committed(there)
    said = [line for line in caplog.messages if "mirror=none" in line]
    assert said == ["mirror=none reason=the table exceeds what cpu has free"]


def test_an_update_that_is_not_finite_is_refused_on_its_device_before_it_is_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draws, gradients = FusedMADDPG._draws, FusedMADDPG._both_gradients
    keys = list[tuple[int, ...]]()

    def noted(self: FusedMADDPG, unit_batches: Any, key: tuple[int, ...]) -> list[HostDraw]:
        keys.append(key)
        return draws(self, unit_batches, key)

    def spoilt(self: FusedMADDPG, unit_batch: UnitBatch, *rest: Any) -> None:
        gradients(self, unit_batch, *rest)
        if keys[-1] == (3,) and 1 in unit_batch.agents:
            unit_batch.buffers.gradient[unit_batch.agents.index(1), 7] = np.inf

    monkeypatch.setattr(FusedMADDPG, "_draws", noted)
    monkeypatch.setattr(FusedMADDPG, "_both_gradients", spoilt)
    refused = refusals("maddpg", tmp_path, monkeypatch)
    assert "iteration 3: the update of unit 1 has an entry of inf, in the critic" in refused[0]
    assert refused[0] == refused[1]


def test_a_summand_that_is_not_finite_is_refused_on_its_device_before_it_is_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = FusedValueGradients.rows

    def spoilt(
        self: FusedValueGradients, batch: Rows, units: Sequence[int], *, iteration: int, **rest: Any
    ) -> Iterator[tuple[int, Tensor]]:
        for unit, row in rows(self, batch, units, iteration=iteration, **rest):
            if unit == 2 and iteration == 3:
                yield unit, row.index_fill(0, torch.tensor(7), np.nan)
            else:
                yield unit, row

    monkeypatch.setattr(FusedValueGradients, "rows", spoilt)
    refused = refusals("qmix", tmp_path, monkeypatch)
    assert "iteration 3: the update of unit 2 has an entry of nan, in the agent" in refused[0]
    assert refused[0] == refused[1]


def refusals(team: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Why a run is refused after three iterations, in host memory and on a device."""
    found = list[str]()
    for of_cuda in (False, True):
        take_paths(monkeypatch, of_cuda=of_cuda)
        run = folder / str(of_cuda)
        with pytest.raises(Unsound) as refused:
            train(run, *TEAMS[team])
        found.append(str(refused.value))
        assert len(entries_of(run)) == len(read_records(run / "metrics.jsonl")) == 3
    return found
