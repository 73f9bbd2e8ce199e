"""Exported files give the policy's outputs for every kind of observation and action."""

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from safetensors import safe_open

from fullrank.common.errors import FullrankError
from fullrank.common.types import FloatArray
from fullrank.environments import AgentSpec, Continuous, Discrete
from fullrank.export import graph, parity, tensors
from fullrank.export.policy import Form, Play, Policy

SCOUT = AgentSpec(name="scout", observation_size=7, action=Discrete(5))
GRIPPER = AgentSpec(
    name="gripper", observation_size=3, action=Continuous((-1.0, 0.0), (1.0, 3.0)), side="lone"
)
FACTS = {"run": "mine"}


def policy_of(agent: AgentSpec, *, hidden: int = 6) -> Policy:
    draw = np.random.default_rng(agent.observation_size).standard_normal
    sizes = (agent.observation_size, hidden, hidden, agent.action.size)
    shapes = [(after, before + 1) for before, after in pairwise(sizes)]
    return Policy(agent=agent, layers=tuple(draw(shape, dtype=np.float32) for shape in shapes))


def seen_by(agent: AgentSpec, *, batch: int = 50) -> FloatArray:
    shape = (batch, agent.observation_size)
    return np.random.default_rng(1).standard_normal(shape, dtype=np.float32)


@pytest.mark.parametrize("form", [graph, tensors], ids=["onnx", "safetensors"])
@pytest.mark.parametrize("agent", [SCOUT, GRIPPER], ids=["discrete", "continuous"])
def test_a_file_says_what_the_policy_says(form: Form, agent: AgentSpec, tmp_path: Path) -> None:
    policy, path = policy_of(agent), tmp_path / "policy"
    form.save(policy, path, facts=FACTS)
    play = form.load(policy, path)
    for batch in (1, 50):
        observation = seen_by(agent, batch=batch)
        np.testing.assert_allclose(play(observation), policy.outputs(observation), atol=1e-5)


@pytest.mark.parametrize(("bias", "point"), [((0.0, 0.0), (0.0, 1.5)), ((9.0, -9.0), (1.0, 0.0))])
def test_a_continuous_action_lies_in_its_box(
    bias: tuple[float, float], point: tuple[float, float]
) -> None:
    layer = np.array([[0, 0, 0, bias[0]], [0, 0, 0, bias[1]]], np.float32)
    (action,) = Policy(agent=GRIPPER, layers=(layer,)).outputs(seen_by(GRIPPER, batch=1))
    assert action == pytest.approx(point, abs=1e-5)


def test_a_discrete_action_of_onnx_is_the_index_of_the_largest_logit(tmp_path: Path) -> None:
    policy, path = policy_of(SCOUT), tmp_path / "policy.onnx"
    graph.save(policy, path, facts=FACTS)
    session = onnxruntime.InferenceSession(path)
    observation = seen_by(SCOUT)
    (action,) = session.run(["action"], {"observation": observation})
    assert action.tolist() == policy.outputs(observation).argmax(axis=1).tolist()
    assert session.get_modelmeta().custom_metadata_map == FACTS


def test_safetensors_tell_the_range_of_the_action(tmp_path: Path) -> None:
    tensors.save(policy_of(GRIPPER), tmp_path / "policy", facts=FACTS)
    with safe_open(tmp_path / "policy", framework="numpy") as file:
        metadata = file.metadata()
    assert metadata["run"] == "mine"
    assert json.loads(metadata["action"]) == {
        "kind": "continuous", "low": [-1.0, 0.0], "high": [1.0, 3.0],
    }  # fmt: skip


def act(joint: FloatArray) -> FloatArray:
    """Observations of the scout's and the gripper's policies."""
    scouted = policy_of(SCOUT).outputs(joint[:, :7])
    return np.column_stack(
        [np.eye(5, dtype=np.float32)[scouted.argmax(1)], policy_of(GRIPPER).outputs(joint[:, 7:])]
    )


def differs(scout: Play, gripper: Play) -> float:
    policies = [policy_of(SCOUT), policy_of(GRIPPER)]
    return parity.check(policies, [scout, gripper], act, seed=0)


def test_equal_policies_differ_by_nothing() -> None:
    assert differs(policy_of(SCOUT).outputs, policy_of(GRIPPER).outputs) == 0.0


@pytest.mark.parametrize("wrong", [1e-3, np.nan])
@pytest.mark.parametrize("agent", [SCOUT, GRIPPER], ids=["discrete", "continuous"])
def test_a_policy_that_is_off_is_refused(agent: AgentSpec, wrong: float) -> None:
    def off(observation: FloatArray) -> FloatArray:
        outputs = policy_of(agent).outputs(observation)
        outputs[17, 0] += np.float32(wrong * max(1.0, np.abs(outputs).max()))
        return outputs

    plays = {one: off if one is agent else policy_of(one).outputs for one in (SCOUT, GRIPPER)}
    with pytest.raises(FullrankError, match="differ from the run's by"):
        differs(plays[SCOUT], plays[GRIPPER])


def test_policies_of_another_run_are_refused() -> None:
    policies = [policy_of(SCOUT, hidden=9), policy_of(GRIPPER)]
    with pytest.raises(FullrankError, match="differ from the run's by"):
        parity.check(policies, [policy.outputs for policy in policies], act, seed=0)
