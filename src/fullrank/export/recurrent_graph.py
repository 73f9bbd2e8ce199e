"""Policies of teams of values as ONNX: one step of one agent, with its recurrent state in and out.

Inputs: ``observation`` float32 (batch, observation size); ``available`` bool (batch, actions);
``last_action`` int64 (batch,), if the network sees it; ``state`` float32 (batch, hidden). Outputs:
``action`` int64 (batch,), the available action of highest value; ``values`` float32 (batch,
actions); ``next_state`` float32 (batch, hidden). Policies without memory have no states.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from fullrank.common.types import FloatArray, IntArray
from fullrank.export import graph
from fullrank.export.recurrent import PlayStep, RecurrentPolicy

USAGE = (
    "ONNX, one step of an agent: the inputs are `observation` (float32, as the environment returns "
    "it), `available` (bool, the actions that may be chosen; all true without masks), "
    "`last_action` (int64, the last `action`; -1 when an episode begins) and `state` (float32, the "
    "last `next_state`; zeros when an episode begins), each with a leading batch axis. The outputs "
    "are `action` (int64, the available action of highest value), `values` and `next_state`. A "
    "policy without memory has neither state, and one that does not see it no `last_action`."
)
_TAKEN = "unsqueezed = Unsqueeze (last_action, one) same = Equal (unsqueezed, choices) "
_TAKEN += "taken = Cast <to = 1> (same) inputs = Concat <axis = 1> (observation, taken)"
_ENTER = """
entered = Gemm <transB = 1> (inputs, weight_in, bias_in)
seen = Relu (entered)
from_input = Gemm <transB = 1> (seen, weight_ih, bias_ih)
"""
_REMEMBER = """
gates_of_state = Gemm <transB = 1> (state, weight_hh, bias_hh)
reset_of_input, update_of_input, new_of_input = Split <axis = 1> (from_input)
reset_of_state, update_of_state, new_of_state = Split <axis = 1> (gates_of_state)
reset_sum = Add (reset_of_input, reset_of_state)
reset = Sigmoid (reset_sum)
update_sum = Add (update_of_input, update_of_state)
update = Sigmoid (update_sum)
remembered = Mul (reset, new_of_state)
new_sum = Add (new_of_input, remembered)
candidate = Tanh (new_sum)
difference = Sub (state, candidate)
kept = Mul (update, difference)
next_state = Add (candidate, kept)
values = Gemm <transB = 1> (next_state, weight_out, bias_out)
"""
_FORWARD = """
rectified = Relu (from_input)
values = Gemm <transB = 1> (rectified, weight_out, bias_out)
"""
_CHOOSE = """
permitted = Where (available, values, lowest)
action = ArgMax <axis = 1, keepdims = 0> (permitted)
"""


def save(policy: RecurrentPolicy, path: Path, *, facts: Mapping[str, str]) -> None:
    """Write a policy, with ``facts`` as the model's metadata."""
    layers, agent = policy.layers, policy.agent
    matrices = {"in": layers.first, "ih": layers.input_gates, "out": layers.last}
    if layers.state_gates is not None:
        matrices["hh"] = layers.state_gates
    arrays: dict[str, FloatArray | IntArray] = {"lowest": np.float32(-np.inf).reshape(1)}
    for name, matrix in matrices.items():
        arrays |= {f"weight_{name}": matrix[:, :-1], f"bias_{name}": matrix[:, -1]}
    inputs = [f"float[batch, {agent.observation_size}] observation"]
    inputs.append(f"bool[batch, {agent.action.size}] available")
    results = ["int64[batch] action", f"float[batch, {agent.action.size}] values"]
    if layers.last_action:
        arrays |= {"choices": np.arange(agent.action.size)[None], "one": np.array([1])}
        inputs.append("int64[batch] last_action")
    if layers.state_gates is not None:
        inputs.append(f"float[batch, {policy.hidden}] state")
        results.append(f"float[batch, {policy.hidden}] next_state")
    body = _TAKEN if layers.last_action else "inputs = Identity (observation)"
    body += _ENTER + (_FORWARD if layers.state_gates is None else _REMEMBER) + _CHOOSE
    signature = f"({', '.join(inputs)}) => ({', '.join(results)})"
    graph.write(f"{signature} {{ {body} }}", arrays, path, facts=facts)


def load(policy: RecurrentPolicy, path: Path) -> PlayStep:
    """The policy in a file, run by the ONNX runtime."""
    session, layers = graph.session(path), policy.layers

    def step(
        observation: FloatArray, last_action: IntArray, state: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        inputs = {
            "observation": observation,
            "available": np.ones((len(observation), policy.agent.action.size), bool),
        }
        if layers.last_action:
            inputs["last_action"] = last_action
        if layers.state_gates is None:
            return session.run(["values"], inputs)[0], state
        inputs["state"] = state
        values, after = session.run(["values", "next_state"], inputs)
        return values, after

    return step
