"""Policies as ONNX, from ``observation`` to ``action``, and ``logits`` if the action is discrete.

``observation`` is float32 of shape (batch, observation size), as the environment returns it. A
discrete ``action`` is the index of the most likely one, int64 of shape (batch,), or (batch,
choices) if it is of several choices; a continuous one is the point in the box, float32 of shape
(batch, action size).
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fullrank.common.errors import ConfigError
from fullrank.common.types import FloatArray, IntArray
from fullrank.environments.base import Continuous
from fullrank.export.policy import Policy, PolicyFunction, centre_and_half

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

OPSET, IR_VERSION = 17, 8
"""Versions of 2022, which every runtime in use supports."""
_INTO_THE_BOX = "scaled = Mul (squashed, half) action = Add (scaled, centre)"
USAGE = (
    "ONNX: the input `observation` is float32 of shape (batch, observation size), as the "
    "environment returns it; the output `action` is the index of the most likely action, or of "
    "that of each choice (with `logits`), or the point in the range of the action."
)


def save(policy: Policy, path: Path, *, facts: Mapping[str, str]) -> None:
    """Write a policy, with ``facts`` as the model's metadata."""
    agent = policy.agent
    arrays, signal, lines = dict[str, FloatArray | IntArray](), "observation", list[str]()
    for depth, layer in enumerate(policy.layers):
        arrays |= {f"weight_{depth}": layer[:, :-1], f"bias_{depth}": layer[:, -1]}
        if depth:
            lines.append(f"hidden_{depth} = Relu ({signal})")
            signal = f"hidden_{depth}"
        lines.append(f"layer_{depth} = Gemm <transB = 1> ({signal}, weight_{depth}, bias_{depth})")
        signal = f"layer_{depth}"
    if isinstance(agent.action, Continuous):
        results = f"float[batch, {agent.action.size}] action"
        arrays["centre"], arrays["half"] = centre_and_half(agent.action)
        lines += [f"squashed = Tanh ({signal})", _INTO_THE_BOX]
    else:
        kind, nodes, constants = likeliest("logits", agent.action.choices)
        results = f"{kind} action, float[batch, {agent.action.size}] logits"
        lines += [f"logits = Identity ({signal})", nodes]
        arrays |= constants
    signature = f"float[batch, {agent.observation_size}] observation"
    write(f"({signature}) => ({results}) {{ {' '.join(lines)} }}", arrays, path, facts=facts)


def load(policy: Policy, path: Path) -> PolicyFunction:
    """The policy in a file, run by the ONNX runtime."""
    running = session(path)
    wanted = "logits" if policy.agent.action.choices else "action"

    def play(observation: FloatArray) -> FloatArray:
        outputs: FloatArray = running.run([wanted], {"observation": observation})[0]
        return outputs

    return play


def likeliest(
    values: str, choices: Sequence[int]
) -> tuple[str, str, Mapping[str, FloatArray | IntArray]]:
    """Type, nodes and constants of ``action``, the largest of ``values`` in each choice."""
    if len(choices) == 1:
        return "int64[batch]", f"action = ArgMax <axis = 1, keepdims = 0> ({values})", {}
    every = range(len(choices))
    parts, firsts = ", ".join(f"part_{k}" for k in every), ", ".join(f"first_{k}" for k in every)
    nodes = [f"{parts} = Split <axis = 1> ({values}, sizes)"]
    nodes += [f"first_{k} = ArgMax <axis = 1, keepdims = 1> (part_{k})" for k in every]
    nodes.append(f"action = Concat <axis = 1> ({firsts})")
    return f"int64[batch, {len(choices)}]", " ".join(nodes), {"sizes": np.array(choices)}


def write(
    body: str,
    arrays: Mapping[str, FloatArray | IntArray],
    path: Path,
    *,
    facts: Mapping[str, str],
) -> None:
    """Write a model.

    Args:
        body: Inputs, outputs and nodes in ONNX's textual syntax.
        arrays: Constants by name.
        path: The file.
        facts: Metadata.

    Raises:
        ConfigError: ONNX is not installed.
    """
    try:
        import onnx
        from onnx import numpy_helper, parser
    except ImportError:
        raise _missing() from None
    header = f'<ir_version: {IR_VERSION}, opset_import: ["": {OPSET}], producer_name: "fullrank">'
    model = parser.parse_model(f"{header} policy {body}")
    model.graph.initializer.extend(
        numpy_helper.from_array(np.ascontiguousarray(array), name) for name, array in arrays.items()
    )
    onnx.helper.set_model_props(model, dict(facts))
    onnx.checker.check_model(model)
    path.write_bytes(model.SerializeToString())


def session(path: Path) -> "InferenceSession":
    """A session of the ONNX runtime that runs a file.

    Raises:
        ConfigError: The runtime is not installed.
    """
    try:
        import onnxruntime
    except ImportError:
        raise _missing() from None
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


def _missing() -> ConfigError:
    return ConfigError("ONNX is not installed: pip install 'fullrank[onnx]'")
