"""A step on a device asks nothing of the host, so that CUDA can capture it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from fullrank.algorithms import EnvironmentSpec, algorithms
from fullrank.environments import make_environment
from fullrank.networks.fused import products
from fullrank.networks.fused.cuda import DeviceRows, Graphs
from fullrank.training.centralised import Centralised
from fullrank.training.device_rollouts import DeviceRollout

from .algorithm_cases import LAYERED, build, transitions
from .paths import take_products
from .pretended_device import DEVICE, pretended_device

TASKS = {
    "cooperative_navigation": {},
    "keep_away": {"agents": 4},
    "physical_deception": {"agents": 4},
    "predator_prey": {"agents": 4},
    "rover_tower": {"agents": 4},
    "speaker_listener": {},
}

CAPTURED = ("ippo", "mappo", "pqn", "qmix", LAYERED, "pqn of networks apart")
"""Teams that learn from episodes, with updates that are graphs."""

FEW = 4
"""Transitions of an update, whose operations are looked at, not its numbers."""


class WithoutHost(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Refuses every operation that reads or writes host memory, as a capture does."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Compute an operation on tensors of the device."""
        result = func(*args, **(kwargs or {}))
        touched = tree_leaves((args, kwargs, result))
        tensors = [leaf for leaf in touched if isinstance(leaf, torch.Tensor)]
        reads = func in (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.equal.default)
        if reads or any(tensor.device.type == "cpu" for tensor in tensors):
            raise RuntimeError(f"{func} visits the host")
        return result


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


def readied_without_host(
    self: Graphs,
    key: object,
    compute: Callable[..., None],
    *,
    draw: Callable[[], torch.Tensor],
    check_cancelled: Callable[[], None],
) -> None:
    """Compute once, as before a capture, then as in one."""
    noise = draw().to(self._device)
    compute(noise.clone, check_cancelled)
    with WithoutHost():
        compute(noise.clone, lambda: None)


@pytest.mark.integration
@pytest.mark.parametrize("name", ["maddpg", "mfac", "darl1n", "maddpg of several choices"])
def test_an_update_and_a_step_on_a_device_do_not_visit_the_host(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_products(monkeypatch)
    monkeypatch.setattr(products, "_multiply_in_order", lambda *words, **_: words[2].zero_())
    monkeypatch.setattr(Graphs, "run", readied_without_host)
    with pretended_device(monkeypatch):
        algorithm = build(name, device=DEVICE)
        compute = Centralised(algorithm.problem, algorithm.gradients, seed=0).compute
        rows = DeviceRows(torch.from_numpy(transitions(name, FEW)).to(DEVICE))
        targets = compute(rows, iteration=0)
        algorithm.optimiser.step(targets.updates)
    assert targets.updates.shape == (len(algorithm.problem.units), algorithm.problem.vector_size)


@pytest.mark.integration
@pytest.mark.parametrize("name", CAPTURED)
def test_an_update_from_episodes_on_a_device_does_not_visit_the_host(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Graphs, "run", readied_without_host)
    with pretended_device(monkeypatch):
        algorithm = build(name, device=DEVICE)
        compute = Centralised(algorithm.problem, algorithm.gradients, seed=0).compute
        targets = compute(transitions(name, FEW), iteration=0)
        algorithm.optimiser.step(targets.updates)
    assert isinstance(targets.updates, DeviceRows)


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
