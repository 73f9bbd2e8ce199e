"""Recurrent policies as safetensors: the layers of one agent, named as in ``torch.nn.GRUCell``."""

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from fullrank.algorithms.roles import RecurrentLayers
from fullrank.common.types import FloatArray
from fullrank.export.recurrent import PlayStep, RecurrentPolicy
from fullrank.export.tensors import action_facts

USAGE = (
    "safetensors: `weight_in`, `bias_in`, then ReLU, then a GRU cell with `weight_ih`, `bias_ih`, "
    "`weight_hh`, `bias_hh` as in `torch.nn.GRUCell`, then `weight_out`, `bias_out` to the values "
    "of actions. Without `weight_hh` the policy has no memory: `weight_ih`, `bias_ih` and ReLU "
    "replace the GRU cell. The input is the observation and, if `last_action` in the metadata is "
    "true, the last action as one-hot. State and last action are zero when an episode begins; "
    "choose the available action of highest value."
)
_NAMES = {"first": "in", "input_gates": "ih", "state_gates": "hh", "last": "out"}


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
    metadata["last_action"] = json.dumps(policy.layers.last_action)
    save_file(arrays, path, metadata=metadata)


def load(policy: RecurrentPolicy, path: Path) -> PlayStep:
    """The policy in a file."""
    arrays = load_file(path)
    matrices: dict[str, FloatArray] = {
        layer: np.column_stack([arrays[f"weight_{name}"], arrays[f"bias_{name}"]])
        for layer, name in _NAMES.items()
        if f"weight_{name}" in arrays
    }
    state_gates = matrices.pop("state_gates", None)
    with safe_open(path, framework="numpy") as file:
        last_action = json.loads(file.metadata()["last_action"])
    layers = RecurrentLayers(**matrices, state_gates=state_gates, last_action=last_action)
    return RecurrentPolicy(agent=policy.agent, layers=layers).step
