"""An agent's policy as plain arrays, and the interface of export formats."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias, TypeVar

import numpy as np

from fullrank.common.types import FloatArray
from fullrank.environments.base import AgentSpec, Continuous

PolicyFunction: TypeAlias = Callable[[FloatArray], FloatArray]
"""Observations of one agent, shape (B, observation size), to outputs as of ``Policy.outputs``."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Policy:
    """An agent's policy: a perceptron with ReLU between its layers."""

    agent: AgentSpec
    layers: tuple[FloatArray, ...]
    """Matrices [W | b] of shape (outputs, inputs + 1), from the input up."""

    def outputs(self, observation: FloatArray) -> FloatArray:
        """Logits (discrete), or the point in the box (continuous), shape (B, action size).

        Args:
            observation: As the environment returns it, shape (B, observation size) float32.
        """
        *hidden, last = self.layers
        signal = observation
        for layer in hidden:
            signal = np.maximum(affine(layer, signal), 0.0)
        values = affine(last, signal)
        if isinstance(self.agent.action, Continuous):
            centre, half = centre_and_half(self.agent.action)
            return np.tanh(values) * half + centre
        return values


def affine(layer: FloatArray, signal: FloatArray) -> FloatArray:
    """Return what a layer, biases in its last column, makes of a signal, shape (rows, inputs)."""
    outputs: FloatArray = signal @ layer[:, :-1].T + layer[:, -1]
    return outputs


def centre_and_half(box: Continuous) -> tuple[FloatArray, FloatArray]:
    """Centre and half length of the range of each entry."""
    low, high = (np.array(bound, np.float32) for bound in (box.low, box.high))
    half = np.float32(0.5)
    return (high + low) * half, (high - low) * half


P_contra = TypeVar("P_contra", contravariant=True)
R_co = TypeVar("R_co", covariant=True)


class Form(Protocol[P_contra, R_co]):
    """A file format of one kind of policies P, read back as R: a module, or a class."""

    USAGE: str
    """Instructions for reading a file."""

    def save(self, policy: P_contra, path: Path, *, facts: Mapping[str, str]) -> None:
        """Write a policy, with ``facts`` about it.

        Raises:
            ConfigError: A required package is not installed.
            OSError: The file cannot be written.
        """

    def load(self, policy: P_contra, path: Path) -> R_co:
        """The policy in a file that ``save`` wrote for ``policy``."""
