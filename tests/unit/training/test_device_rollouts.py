"""A rollout on the device of the policies collects what any rollout collects.

Tests that are not marked ``gpu`` take the CPU for the device.
"""

from typing import Any

import numpy as np
import pytest
import torch

from fullrank.config import RunConfig, load
from fullrank.environments import make_environment
from fullrank.networks.fused.cuda import Graphs
from fullrank.training.device_rollouts import DeviceRollout, plays_there
from fullrank.training.rollouts import Collected
from fullrank.wiring import training as wiring
from fullrank.wiring.training import Training, training_of

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
NEAR = 1e-6
"""Largest difference of rows between worlds that round otherwise."""
TASKS = {
    "cooperative_navigation": ("environment.agents=3",),
    "keep_away": ("environment.agents=4",),
    "physical_deception": ("environment.agents=4",),
    "predator_prey": ("environment.agents=4",),
    "rover_tower": ("environment.agents=4",),
    "speaker_listener": (),
}
ALGORITHMS = {
    "hand-written passes": (),
    "modules": ("algorithm.hidden_layers=3",),
    "one-hot actions": ("algorithm.name=isac",),
}


def config(*overrides: str) -> RunConfig:
    settings = ("environment.copies=12", "algorithm.hidden=16", "collect.warmup=256")
    return load(environ={}, overrides=[*settings, *overrides]).check().config


def begun(patch: pytest.MonkeyPatch, *overrides: str, device: str, there: bool) -> Training:
    """A run that plays on its device or on the host."""
    patch.setattr(wiring, "plays_there", lambda environment, player: there)
    places = (f"compute.device={device}", f"controller.device={device}")
    return training_of(config(*places, *overrides))


def collected(run: Training, numbers: range) -> list[Collected]:
    return [run.collector.collect(number) for number in numbers]


def assert_alike(one: Collected, other: Collected, layout: Any, *, one_hot: bool) -> None:
    assert other.rows.flags.c_contiguous
    assert other.rows.dtype == np.float32
    np.testing.assert_allclose(other.rows, one.rows, rtol=0, atol=NEAR)
    for part in (layout.terminated, layout.alive, *[layout.action] * one_hot):
        np.testing.assert_array_equal(other.rows[:, part], one.rows[:, part])
    assert [*other.side_returns] == [*one.side_returns]
    for name, returns in one.side_returns.items():
        np.testing.assert_allclose(other.side_returns[name], returns, rtol=1e-5)
    np.testing.assert_allclose(other.returns, one.returns, rtol=1e-5)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("task", "algorithm", "steps"),
    [
        *((task, "hand-written passes", 7) for task in TASKS),
        *(("cooperative_navigation", "hand-written passes", steps) for steps in (1, 25)),
        ("cooperative_navigation", "modules", 7),
        ("keep_away", "one-hot actions", 7),
    ],
)
def test_rows_and_returns_are_those_of_the_host(
    task: str, algorithm: str, steps: int, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    overrides = (f"environment.name={task}", *TASKS[task], *ALGORITHMS[algorithm])
    here, there = (
        begun(monkeypatch, *overrides, f"collect.steps={steps}", device=device, there=there)
        for there in (False, True)
    )
    numbers = range(2 + 25 // steps)
    pairs = [*zip(collected(here, numbers), collected(there, numbers), strict=True)]
    for one, other in pairs:
        assert_alike(one, other, here.collector.layout, one_hot=algorithm == "one-hot actions")
    assert sum(len(one.returns) for one, _ in pairs) >= 12
    marks = [run.collector.collection.state(resume_at=len(numbers)) for run in (here, there)]
    assert [*marks[0]] == [*marks[1]]
    for name, array in marks[0].items():
        assert marks[1][name].dtype == array.dtype
        np.testing.assert_allclose(marks[1][name], array, rtol=0, atol=NEAR)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("steps", [1, 7, 25])
def test_a_resumed_run_goes_on_within_episodes_to_the_same_bits(
    steps: int, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    overrides = ("environment.name=predator_prey", f"collect.steps={steps}")
    going, resumed = (begun(monkeypatch, *overrides, device=device, there=True) for _ in range(2))
    collected(going, range(3))
    resumed.collector.collection.load(going.collector.collection.state(resume_at=3), resume_at=3)
    for one, other in zip(
        collected(going, range(3, 6)), collected(resumed, range(3, 6)), strict=True
    ):
        assert one.rows.tobytes() == other.rows.tobytes()
        assert one.returns.tobytes() == other.returns.tobytes()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("first", [False, True])
def test_host_and_device_go_on_from_each_other_s_checkpoints(
    first: bool, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    overrides = ("environment.name=keep_away", "collect.steps=7")
    going = begun(monkeypatch, *overrides, device=device, there=first)
    resumed = begun(monkeypatch, *overrides, device=device, there=not first)
    collected(going, range(2))
    state = going.collector.collection.state(resume_at=2)
    seen = state["rollout.observation"]
    seen[...] = np.nextafter(seen, np.float32(9))  # as a device may round otherwise
    resumed.collector.collection.load(state, resume_at=2)
    for one, other in zip(
        collected(going, range(2, 6)), collected(resumed, range(2, 6)), strict=True
    ):
        assert_alike(one, other, going.collector.layout, one_hot=False)


def test_a_run_plays_on_cuda_where_environment_and_policies_can() -> None:
    run = training_of(config("compute.device=cpu"))
    actor: Any = run.algorithm.actor
    navigation = make_environment("cooperative_navigation", copies=1)
    assert not plays_there(navigation, actor)
    actor.device = torch.device("cuda")
    assert plays_there(navigation, actor)
    assert not plays_there(make_environment("switch_riddle", agents=3, copies=1), actor)
    recurrent: Any = training_of(
        config("algorithm.name=qmix", "environment.name=two_step_game", "algorithm.batch_size=4")
    ).algorithm.actor
    assert not plays_there(navigation, recurrent)


def test_an_emulated_time_of_steps_is_that_of_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    monkeypatch.setattr(
        wiring, "StepCollection", lambda *_, make_rollout, **__: made.append(make_rollout)
    )
    for step_s in (0.0, 0.001):
        begun(monkeypatch, f"compute.emulate_step_s={step_s}", device="cpu", there=True)
    assert [make is DeviceRollout for make in made] == [True, False]


@pytest.mark.gpu
def test_a_replayed_step_has_the_bits_of_a_launched_one(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = []
    for captures in (True, False):
        run = begun(monkeypatch, "environment.name=predator_prey", device="cuda", there=True)
        if not captures:
            monkeypatch.setattr(Graphs, "run", lambda self, key, compute, **_: compute(None, None))
        rows.append([each.rows.tobytes() for each in collected(run, range(30))])
    assert rows[0] == rows[1]
