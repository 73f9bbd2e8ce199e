"""Policies as safetensors: ``weight_0``, ``bias_0``, ... from the input up, ReLU between them."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file
from safetensors.numpy import save as save_arrays

from fullrank.environments.base import AgentSpec
from fullrank.export.policy import Policy, PolicyFunction

USAGE = (
    "safetensors: `weight_0`, `bias_0`, ... of a perceptron from the input up, with ReLU between "
    "layers. The outputs are logits if the action is discrete, choice by choice if it is of "
    "several; otherwise tanh maps them into the range of the action."
)


def save(policy: Policy, path: Path, *, facts: Mapping[str, str]) -> None:
    """Write a policy, with ``facts`` and the agent's action space as metadata."""
    arrays = {}
    for depth, layer in enumerate(policy.layers):
        arrays[f"weight_{depth}"] = np.ascontiguousarray(layer[:, :-1])
        arrays[f"bias_{depth}"] = np.ascontiguousarray(layer[:, -1])
    path.write_bytes(save_arrays(arrays, metadata={**facts, **action_facts(policy.agent)}))


def action_facts(agent: AgentSpec) -> Mapping[str, str]:
    """Return the agent's action space as metadata."""
    kind = {"kind": type(agent.action).__name__.lower(), **asdict(agent.action)}
    return {"action": json.dumps(kind)}


def load(policy: Policy, path: Path) -> PolicyFunction:
    """The policy in a file."""
    arrays = load_file(path)
    layers = tuple(
        np.column_stack([arrays[f"weight_{depth}"], arrays[f"bias_{depth}"]])
        for depth in range(len(arrays) // 2)
    )
    return Policy(agent=policy.agent, layers=layers).outputs
