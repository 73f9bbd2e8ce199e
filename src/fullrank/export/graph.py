"""Policies as ONNX, from ``observation`` to ``action``, and ``logits`` if the action is discrete.

``observation`` is float32 of shape (batch, observation size), as the environment returns it. A
discrete ``action`` is the index of the most likely one, int64 of shape (batch,); a continuous one
is the point in the box, float32 of shape (batch, action size).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fullrank.common.errors import ConfigError
from fullrank.common.types import FloatArray, IntArray
from fullrank.environments.base import Discrete
from fullrank.export.policy import Policy, PolicyFunction, centre_and_half

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

OPSET, IR_VERSION = 17, 8
"""Versions of 2022, which every runtime in use supports."""
_LIKELIEST = "action = ArgMax <axis = 1, keepdims = 0> (logits)"
_INTO_THE_BOX = "scaled = Mul (squashed, half) action = Add (scaled, centre)"
USAGE = (
    "ONNX: the input `observation` is float32 of shape (batch, observation size), as the "
    "environment returns it; the output `action` is the index of the most likely action (with "
    "`logits`), or the point in the range of the action."
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
    if isinstance(agent.action, Discrete):
        results = f"int64[batch] action, float[batch, {agent.action.size}] logits"
        lines += [f"logits = Identity ({signal})", _LIKELIEST]
    else:
        results = f"float[batch, {agent.action.size}] action"
        arrays["centre"], arrays["half"] = centre_and_half(agent.action)
        lines += [f"squashed = Tanh ({signal})", _INTO_THE_BOX]
    signature = f"float[batch, {agent.observation_size}] observation"
    write(f"({signature}) => ({results}) {{ {' '.join(lines)} }}", arrays, path, facts=facts)


def load(policy: Policy, path: Path) -> PolicyFunction:
    """The policy in a file, run by the ONNX runtime."""
    running = session(path)
    wanted = "logits" if isinstance(policy.agent.action, Discrete) else "action"

    def play(observation: FloatArray) -> FloatArray:
        outputs: FloatArray = running.run([wanted], {"observation": observation})[0]
        return outputs

    return play


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
