"""A step on a device asks nothing of the host, so that CUDA can capture it."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from fullrank.algorithms import EnvironmentSpec, algorithms
from fullrank.environments import make_environment
from fullrank.networks.fused import products
from fullrank.networks.fused.cuda import DeviceRows, Graphs
from fullrank.training.centralised import Centralised
from fullrank.training.device_rollouts import DeviceRollout

from .algorithm_cases import build, transitions
from .paths import take_products
from .pretended_device import DEVICE, WithoutHost, pretended_device

TASKS = {
    "cooperative_navigation": {},
    "keep_away": {"agents": 4},
    "physical_deception": {"agents": 4},
    "predator_prey": {"agents": 4},
    "rover_tower": {"agents": 4},
    "speaker_listener": {},
}

FEW = 4
"""Transitions of an update, whose operations are looked at, not its numbers."""


def without_host(self: Graphs, key: str, compute: Callable[..., None], **_: Any) -> None:
    with WithoutHost():
        compute(None, None)


@pytest.mark.integration
@pytest.mark.parametrize(
    ("task", "layers"), [*((task, 2) for task in TASKS), ("cooperative_navigation", 3)]
)
def test_a_step_of_a_rollout_on_a_device_does_not_visit_the_host(
    task: str, layers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment: Any = make_environment(task, copies=2, **TASKS[task])
    spec = EnvironmentSpec(agents=environment.agents)
    configured = algorithms.build("maddpg", hidden=8, hidden_layers=layers)
    monkeypatch.setattr(Graphs, "run", without_host)
    with pretended_device(monkeypatch):
        actor: Any = configured.make(spec, seed=0, device=DEVICE).actor
        rollout = DeviceRollout(environment, actor, spec.layout, seed=0, stagger=2)
        rows = rollout.collect(2, 0).rows
    assert rows.shape == (2 * 2, spec.layout.row_size)
    assert rows.dtype == np.float32


@pytest.mark.integration
@pytest.mark.parametrize("name", ["darl1n", "maddpg of several choices"])
def test_an_update_by_kernels_and_a_step_do_not_visit_the_host(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_products(monkeypatch)
    monkeypatch.setattr(products, "_multiply_in_order", lambda *words, **_: words[2].zero_())
    with pretended_device(monkeypatch):
        algorithm = build(name, device=DEVICE)
        compute = Centralised(algorithm.problem, algorithm.gradients, seed=0).compute
        rows = DeviceRows(torch.from_numpy(transitions(name, FEW)).to(DEVICE))
        targets = compute(rows, iteration=0)
        algorithm.optimiser.step(targets.updates)
    assert targets.updates.shape == (len(algorithm.problem.units), algorithm.problem.vector_size)


@pytest.mark.parametrize(
    "visit",
    [
        lambda there: there.cpu(),
        lambda there: there.sum().item(),
        lambda there: there.copy_(torch.zeros(3)),
        lambda there: there.add(torch.zeros(())),
    ],
)
def test_a_visit_to_the_host_is_refused(
    visit: Callable[[torch.Tensor], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pretended_device(monkeypatch):
        there = torch.zeros(3, device=DEVICE)
        with WithoutHost(), pytest.raises(RuntimeError, match="visits the host"):
            visit(there)
