"""An agent's part of a team's network of action values, as plain arrays and as files.

fc - ReLU - GRU - fc; without a recurrent state fc - ReLU - fc - ReLU - fc. Where layers are
normalised, ``layer_norm`` precedes each ReLU but those of convolutions, which make features of an
image.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from safetensors import safe_open
from safetensors.numpy import load_file
from safetensors.numpy import save as save_arrays

from fullrank.algorithms.roles import Convolution, ImageLayers, RecurrentLayers
from fullrank.common.types import FloatArray, IntArray
from fullrank.environments.base import AgentSpec
from fullrank.export import graph
from fullrank.export.policy import affine
from fullrank.export.tensors import action_facts

NOTHING_YET = -1
"""Last action in the first step of an episode, where the recurrent state is zero."""

LEAST_VARIANCE = np.float32(1e-5)
"""Term added to variances by ``torch.nn.functional.layer_norm``."""

PlayStep: TypeAlias = Callable[[FloatArray, IntArray, FloatArray], tuple[FloatArray, FloatArray]]
"""Observations, last actions and recurrent states to values and states, as of
``RecurrentPolicy.step``."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RecurrentPolicy:
    """An agent's policy with a recurrent state of H entries."""

    agent: AgentSpec
    layers: RecurrentLayers

    @property
    def hidden(self) -> int:
        """Return H; the state of a policy without memory is not used."""
        return len(self.layers.first)

    def step(
        self, observation: FloatArray, last_action: IntArray, state: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return the values of all actions, shape (B, actions), and the new states.

        Args:
            observation: As the environment returns it, shape (B, observation size) float32.
            last_action: Index of the last action, or ``NOTHING_YET``, shape (B,).
            state: Recurrent states before the step, shape (B, H).
        """
        layers, inputs = self.layers, observation
        if layers.image is not None:
            inputs = _features(layers.image, observation, normalised=layers.normalised)
        if layers.last_action:
            taken = last_action[:, None] == np.arange(self.agent.action.size)
            inputs = np.concatenate([inputs, taken.astype(np.float32)], axis=1)
        below = _activated(affine(layers.first, inputs), normalised=layers.normalised)
        from_input = affine(layers.input_gates, below)
        if layers.state_gates is None:
            above = _activated(from_input, normalised=layers.normalised)
            return affine(layers.last, above), state
        reset, update, new = np.split(from_input, 3, axis=1)
        of_state = np.split(affine(layers.state_gates, state), 3, axis=1)
        keep = _sigmoid(update + of_state[1])
        candidate = np.tanh(new + _sigmoid(reset + of_state[0]) * of_state[2])
        after = candidate + keep * (state - candidate)
        return affine(layers.last, after), after


def _features(layers: ImageLayers, images: FloatArray, *, normalised: bool) -> FloatArray:
    """Return the features of images, shape (B, height x width x channels)."""
    signal = images.reshape(-1, *layers.image).transpose(0, 3, 1, 2)
    for kernel, bias, stride in layers.convolutions:
        windows = np.lib.stride_tricks.sliding_window_view(signal, kernel.shape[2:], (2, 3))
        every = windows[:, :, ::stride, ::stride]
        products = np.tensordot(every, kernel, ((1, 4, 5), (1, 2, 3))) + bias
        signal = np.maximum(products, 0.0).transpose(0, 3, 1, 2)
    last = affine(layers.last, signal.reshape(len(images), -1))
    return _activated(last, normalised=normalised)


def _activated(signal: FloatArray, *, normalised: bool) -> FloatArray:
    if normalised:
        centred = signal - signal.mean(axis=1, keepdims=True)
        signal = centred / np.sqrt(np.square(centred).mean(axis=1, keepdims=True) + LEAST_VARIANCE)
    return np.maximum(signal, 0.0)


def _sigmoid(signal: FloatArray) -> FloatArray:
    half = np.float32(0.5)
    gate: FloatArray = half * np.tanh(half * signal) + half
    return gate


_NAMES = {"first": "in", "input_gates": "ih", "state_gates": "hh", "last": "out"}
_FACTS = ("last_action", "normalised")


class RecurrentTensors:
    """Safetensors: the layers of one agent, named as in ``torch.nn.GRUCell``."""

    USAGE = (
        "safetensors: `weight_in`, `bias_in`, then ReLU, then a GRU cell with `weight_ih`, "
        "`bias_ih`, `weight_hh`, `bias_hh` as in `torch.nn.GRUCell`, then `weight_out`, "
        "`bias_out` to the values of actions. Without `weight_hh` the policy has no memory: "
        "`weight_ih`, `bias_ih` and ReLU replace the GRU cell. Where `image` in the metadata is "
        "height, width and channels, the observation is such an image of numbers from 0 to 255; "
        "`kernel_0`, `kernel_bias_0`, ... of convolutions with `strides` and ReLU, then "
        "`weight_image`, `bias_image` and ReLU on their flat outputs (channels first) make "
        "features that replace it. If `normalised` in the metadata is true, "
        "`torch.nn.functional.layer_norm` precedes each ReLU but those of convolutions. The input "
        "is the observation and, if `last_action` in the metadata is true, the last action as "
        "one-hot. State and last "
        "action are zero when an episode begins; choose the available action of highest value, "
        "in each choice if there are several."
    )

    @staticmethod
    def save(policy: RecurrentPolicy, path: Path, *, facts: Mapping[str, str]) -> None:
        """Write a policy, with ``facts`` and the agent's action space as metadata."""
        arrays = {}
        for layer, name in _NAMES.items():
            matrix: FloatArray | None = getattr(policy.layers, layer)
            if matrix is None:
                continue
            arrays[f"weight_{name}"] = np.ascontiguousarray(matrix[:, :-1])
            arrays[f"bias_{name}"] = np.ascontiguousarray(matrix[:, -1])
        metadata = {**facts, **action_facts(policy.agent)}
        metadata |= {name: json.dumps(getattr(policy.layers, name)) for name in _FACTS}
        if (seen := policy.layers.image) is not None:
            arrays |= {name: np.ascontiguousarray(own) for name, own in _constants(seen).items()}
            strides = [each.stride for each in seen.convolutions]
            metadata |= {"image": json.dumps(seen.image), "strides": json.dumps(strides)}
        path.write_bytes(save_arrays(arrays, metadata=metadata))

    @staticmethod
    def load(policy: RecurrentPolicy, path: Path) -> PlayStep:
        """The policy in a file."""
        arrays = load_file(path)
        matrices: dict[str, Any] = {
            layer: np.column_stack([arrays[f"weight_{name}"], arrays[f"bias_{name}"]])
            for layer, name in _NAMES.items()
            if f"weight_{name}" in arrays
        }
        state_gates = matrices.pop("state_gates", None)
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata()
        facts = {name: json.loads(metadata[name]) for name in _FACTS}
        if "image" in metadata:
            convolutions = tuple(
                Convolution(arrays[f"kernel_{number}"], arrays[f"kernel_bias_{number}"], stride)
                for number, stride in enumerate(json.loads(metadata["strides"]))
            )
            last = np.column_stack([arrays["weight_image"], arrays["bias_image"]])
            height, width, channels = json.loads(metadata["image"])
            facts["image"] = ImageLayers(
                image=(height, width, channels), convolutions=convolutions, last=last
            )
        layers = RecurrentLayers(**matrices, state_gates=state_gates, **facts)
        return RecurrentPolicy(agent=policy.agent, layers=layers).step


def _constants(layers: ImageLayers) -> dict[str, FloatArray]:
    """Return the arrays of an image's layers by name."""
    arrays = {"weight_image": layers.last[:, :-1], "bias_image": layers.last[:, -1]}
    for number, each in enumerate(layers.convolutions):
        arrays |= {f"kernel_{number}": each.kernel, f"kernel_bias_{number}": each.bias}
    return arrays


def _sight(layers: ImageLayers) -> str:
    """Return the nodes that make ``features`` of the observation."""
    signal, lines = "channels", ["screen = Reshape (observation, image_shape)"]
    lines.append("channels = Transpose <perm = [0, 3, 1, 2]> (screen)")
    for number, each in enumerate(layers.convolutions):
        inputs = f"{signal}, kernel_{number}, kernel_bias_{number}"
        strides = f"strides = [{each.stride}, {each.stride}]"
        lines.append(f"convolved_{number} = Conv <{strides}> ({inputs})")
        lines.append(f"lit_{number} = Max (convolved_{number}, nought)")
        signal = f"lit_{number}"
    lines.append(f"flat = Flatten ({signal})")
    lines.append("dense = Gemm <transB = 1> (flat, weight_image, bias_image)")
    return "\n".join([*lines, "features = Relu (dense)\n"])


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
_CHOOSE = "permitted = Where (available, values, lowest)\n"
_RELU = re.compile(r"(\w+) = Relu \((\w+)\)")
_NORMALISED_RELU = r"normal_\2 = LayerNormalization (\2, scale) \1 = Relu (normal_\2)"
"""The layer normalisation of ONNX adds the same term to variances."""


class RecurrentGraph:
    """ONNX: one step of one agent, with its recurrent state in and out.

    Inputs: ``observation`` float32 (batch, observation size); ``available`` bool (batch, actions);
    ``last_action`` int64 (batch,), if the network sees it; ``state`` float32 (batch, hidden).
    Outputs: ``action`` int64 (batch,), the available action of highest value, or (batch, choices),
    that of each choice; ``values`` float32 (batch, actions); ``next_state`` float32 (batch,
    hidden). Policies without memory have no states.
    """

    USAGE = (
        "ONNX, one step of an agent: the inputs are `observation` (float32, as the environment "
        "returns it), `available` (bool, the actions that may be chosen; all true without masks), "
        "`last_action` (int64, the last `action`; -1 when an episode begins) and `state` "
        "(float32, the last `next_state`; zeros when an episode begins), each with a leading "
        "batch axis. The outputs are `action` (int64, the available action of highest value, or "
        "that of each choice), `values` and `next_state`. A policy without memory has neither "
        "state, and one that does not see it no `last_action`."
    )

    @staticmethod
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
        kind, nodes, constants = graph.likeliest("permitted", agent.action.choices)
        arrays |= constants
        results = [f"{kind} action", f"float[batch, {agent.action.size}] values"]
        if layers.last_action:
            arrays |= {"choices": np.arange(agent.action.size)[None], "one": np.array([1])}
            inputs.append("int64[batch] last_action")
        if layers.state_gates is not None:
            inputs.append(f"float[batch, {policy.hidden}] state")
            results.append(f"float[batch, {policy.hidden}] next_state")
        body = _TAKEN if layers.last_action else "inputs = Identity (observation)"
        if (seen := layers.image) is not None:
            body = _sight(seen) + body.replace("observation", "features")
            arrays |= _constants(seen)
            arrays["image_shape"] = np.array([-1, *seen.image])
            arrays["nought"] = np.zeros(1, np.float32)
        body += _ENTER + (_FORWARD if layers.state_gates is None else _REMEMBER) + _CHOOSE + nodes
        if layers.normalised:
            arrays["scale"] = np.ones(policy.hidden, np.float32)
            body = _RELU.sub(_NORMALISED_RELU, body)
        signature = f"({', '.join(inputs)}) => ({', '.join(results)})"
        graph.write(f"{signature} {{ {body} }}", arrays, path, facts=facts)

    @staticmethod
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
