"""Exported files give the policy's outputs for every kind of observation and action."""

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from safetensors import safe_open
from tests.disks import no_room_beyond

from fullrank.algorithms import Actor, EnvironmentSpec
from fullrank.algorithms.ippo import IPPO
from fullrank.algorithms.pqn import PQN
from fullrank.algorithms.roles import RecurrentLayers
from fullrank.algorithms.vdn import VDN
from fullrank.common.durable import writing
from fullrank.common.errors import FullrankError
from fullrank.common.types import FloatArray
from fullrank.environments import AgentSpec, Continuous, Discrete, MultiDiscrete
from fullrank.export import graph, parity, tensors
from fullrank.export.policy import Form, Policy, PolicyFunction
from fullrank.export.recurrent import PlayStep, RecurrentGraph, RecurrentPolicy, RecurrentTensors

SCOUT = AgentSpec(name="scout", observation_size=7, action=Discrete(5))
GRIPPER = AgentSpec(
    name="gripper", observation_size=3, action=Continuous((-1.0, 0.0), (1.0, 3.0)), side="lone"
)
HAND = AgentSpec(name="hand", observation_size=4, action=MultiDiscrete((3, 2)))
EVERY = (SCOUT, GRIPPER, HAND)
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
@pytest.mark.parametrize("agent", EVERY, ids=lambda agent: agent.name)
def test_a_file_says_what_the_policy_says(
    form: Form[Policy, PolicyFunction], agent: AgentSpec, tmp_path: Path
) -> None:
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


def test_an_action_of_several_choices_has_an_index_for_each(tmp_path: Path) -> None:
    policy, path = policy_of(HAND), tmp_path / "policy.onnx"
    graph.save(policy, path, facts=FACTS)
    (action,) = onnxruntime.InferenceSession(path).run(["action"], {"observation": seen_by(HAND)})
    logits = policy.outputs(seen_by(HAND))
    best = np.stack([logits[:, :3].argmax(axis=1), logits[:, 3:].argmax(axis=1)], axis=1)
    assert action.tolist() == best.tolist()


def test_safetensors_tell_the_range_of_the_action(tmp_path: Path) -> None:
    tensors.save(policy_of(GRIPPER), tmp_path / "policy", facts=FACTS)
    with safe_open(tmp_path / "policy", framework="numpy") as file:
        metadata = file.metadata()
    assert metadata["run"] == "mine"
    assert json.loads(metadata["action"]) == {
        "kind": "continuous", "low": [-1.0, 0.0], "high": [1.0, 3.0],
    }  # fmt: skip


def act(joint: FloatArray) -> FloatArray:
    """What the three policies take, given their observations side by side."""
    seen = dict(zip(EVERY, np.split(joint, [7, 10], axis=1), strict=True))
    scouted, gripped, handled = (policy_of(agent).outputs(own) for agent, own in seen.items())
    choices = (scouted, handled[:, :3], handled[:, 3:])
    taken = [np.eye(own.shape[1], dtype=np.float32)[own.argmax(1)] for own in choices]
    return np.column_stack([taken[0], gripped, *taken[1:]])


def differs(*plays: PolicyFunction) -> float:
    return parity.check([*map(policy_of, EVERY)], plays, act, seed=0)


def test_equal_policies_differ_by_nothing() -> None:
    assert differs(*(policy_of(agent).outputs for agent in EVERY)) == 0.0


@pytest.mark.parametrize("wrong", [1e-3, np.nan])
@pytest.mark.parametrize("agent", EVERY, ids=lambda agent: agent.name)
def test_a_policy_that_is_off_is_refused(agent: AgentSpec, wrong: float) -> None:
    def off(observation: FloatArray) -> FloatArray:
        outputs = policy_of(agent).outputs(observation)
        outputs[17, 0] += np.float32(wrong * max(1.0, np.abs(outputs).max()))
        return outputs

    with pytest.raises(FullrankError, match="differ from the run's by"):
        differs(*(off if one is agent else policy_of(one).outputs for one in EVERY))


def test_policies_of_another_run_are_refused() -> None:
    policies = [policy_of(SCOUT, hidden=9), policy_of(GRIPPER), policy_of(HAND)]
    with pytest.raises(FullrankError, match="differ from the run's by"):
        parity.check(policies, [policy.outputs for policy in policies], act, seed=0)


TEAM = (
    AgentSpec(name="tall", observation_size=7, action=Discrete(5)),
    AgentSpec(name="short", observation_size=4, action=Discrete(3)),
)
SIZES = ([7, 4], [5, 3])
RECURRENT: list[Form[RecurrentPolicy, PlayStep]] = [RecurrentGraph, RecurrentTensors]


def actor_of(
    *,
    last_action: bool = True,
    identity: bool = True,
    recurrent: bool = True,
    normalised: bool = False,
) -> Actor:
    """An actor of random parameters for unequal agents that share a network."""
    kind = PQN if normalised else VDN
    config = kind(hidden=6, last_action=last_action, identity=identity, recurrent=recurrent)
    algorithm = config.make(EnvironmentSpec(agents=TEAM), seed=3, device="cpu")
    draw = np.random.default_rng(0)
    for section in algorithm.problem.sections:
        view = algorithm.parameters.view(section.id)
        view[:] = draw.normal(scale=0.5, size=view.shape)
    algorithm.parameters.written()
    return algorithm.actor


def recurrent_of(actor: Actor) -> list[RecurrentPolicy]:
    policies = []
    for index, agent in enumerate(TEAM):
        layers = actor.policy(index)
        assert isinstance(layers, RecurrentLayers)
        policies.append(RecurrentPolicy(agent=agent, layers=layers))
    return policies


@pytest.mark.parametrize("form", RECURRENT, ids=["onnx", "safetensors"])
@pytest.mark.parametrize("last_action", [True, False])
@pytest.mark.parametrize("normalised", [True, False])
@pytest.mark.parametrize(("identity", "recurrent"), [(True, True), (False, True), (True, False)])
def test_recurrent_files_act_as_the_team_over_episodes(
    form: Form[RecurrentPolicy, PlayStep],
    last_action: bool,
    identity: bool,
    recurrent: bool,
    normalised: bool,
    tmp_path: Path,
) -> None:
    actor = actor_of(
        last_action=last_action, identity=identity, recurrent=recurrent, normalised=normalised
    )
    policies, steps = recurrent_of(actor), list[PlayStep]()
    for number, policy in enumerate(policies):
        form.save(policy, tmp_path / str(number), facts=FACTS)
        steps.append(form.load(policy, tmp_path / str(number)))
    assert parity.check_recurrent(policies, steps, actor, seed=0) < 1e-5


@pytest.mark.parametrize("form", RECURRENT, ids=["onnx", "safetensors"])
def test_recurrent_files_of_several_choices_act_as_the_team(
    form: Form[RecurrentPolicy, PlayStep], tmp_path: Path
) -> None:
    agents = (HAND, replace(HAND, name="other"))
    config = IPPO(hidden=6, recurrent=True)
    actor = config.make(EnvironmentSpec(agents=agents), seed=3, device="cpu").actor
    policies, steps = list[RecurrentPolicy](), list[PlayStep]()
    for number, agent in enumerate(agents):
        layers = actor.policy(number)
        assert isinstance(layers, RecurrentLayers)
        policies.append(RecurrentPolicy(agent=agent, layers=layers))
        form.save(policies[-1], tmp_path / agent.name, facts=FACTS)
        steps.append(form.load(policies[-1], tmp_path / agent.name))
    assert parity.check_recurrent(policies, steps, actor, seed=0) < 1e-5


def test_a_state_that_is_not_carried_is_refused() -> None:
    actor = actor_of()
    policies = recurrent_of(actor)

    def forgets(policy: RecurrentPolicy) -> PlayStep:
        return lambda seen, last, state: policy.step(seen, last, np.zeros_like(state))

    with pytest.raises(FullrankError, match="differ from the run's by"):
        parity.check_recurrent(policies, list(map(forgets, policies)), actor, seed=0)


def test_onnx_takes_the_actions_of_the_team_through_a_whole_episode(tmp_path: Path) -> None:
    """State, last action and mask go in as the file's description says; nothing else is known."""
    actor, sessions = actor_of(), []
    for number, policy in enumerate(recurrent_of(actor)):
        RecurrentGraph.save(policy, tmp_path / str(number), facts=FACTS)
        sessions.append(onnxruntime.InferenceSession(tmp_path / str(number)))
    draw, memory = np.random.default_rng(1), actor.memory(8)
    state = [np.zeros((8, 6), np.float32)] * 2
    last = [np.full(8, -1)] * 2
    for _ in range(30):
        seen = [draw.standard_normal((8, size), dtype=np.float32) for size in SIZES[0]]
        masks = [draw.random((8, size)) < 0.5 for size in SIZES[1]]
        for mask in masks:
            mask[:, 1] |= ~mask.any(axis=1)
        joint, permitted = np.concatenate(seen, axis=1), np.concatenate(masks, axis=1)
        action, memory = actor.act_greedily(joint, memory, available=permitted)
        taken = np.split(action, [SIZES[1][0]], axis=1)
        for agent, session in enumerate(sessions):
            inputs = {
                "observation": seen[agent],
                "available": masks[agent],
                "last_action": last[agent],
                "state": state[agent],
            }
            names = ["action", "next_state"]
            last[agent], state[agent] = session.run(names, inputs)
            assert last[agent].tolist() == taken[agent].argmax(axis=1).tolist()


@pytest.mark.parametrize("kind", ["perceptron", "recurrent"])
@pytest.mark.parametrize("form", [0, 1], ids=["onnx", "safetensors"])
def test_a_full_disk_is_one_line(kind: str, form: int, tmp_path: Path) -> None:
    policy, team, path = policy_of(SCOUT), recurrent_of(actor_of()), tmp_path / "policy"
    said = pytest.raises(FullrankError, match=f"^cannot write {path}: File too large$")
    with said, writing(path), no_room_beyond(100):
        if kind == "perceptron":
            (graph, tensors)[form].save(policy, path, facts=FACTS)
        else:
            RECURRENT[form].save(team[0], path, facts=FACTS)
