"""Optimiser of all agents' parameters: Adam with Polyak-averaged targets."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fullrank.common.errors import CheckpointUnusable
from fullrank.common.types import FloatArray
from fullrank.networks.adam import Adam
from fullrank.networks.parameters import GroupedParameters, ParameterGroup


class AdamOptimiser:
    """Adam with Polyak-averaged target networks; implements ``Optimiser``.

    Row i of the decoded targets is the gradient of agent i's networks.

    Args:
        parameters: Parameters of all agents, updated in place.
        adam: Hyperparameters.
        clip: Clips a group's decoded gradients in place; None if learners clip.
    """

    def __init__(
        self,
        parameters: GroupedParameters,
        adam: Adam,
        *,
        clip: Callable[[ParameterGroup, Tensor], None] | None = None,
    ) -> None:
        self._parameters, self._adam, self._clip = parameters, adam, clip
        self._steps = 0

    def step(self, targets: FloatArray) -> None:
        """Apply Adam to every online row, then move the targets; equal input gives equal bits."""
        self._steps += 1
        gradients = torch.from_numpy(np.require(targets, requirements="W"))
        with torch.inference_mode():
            for group in self._parameters.groups:
                whole = len(group.agents) == len(gradients)
                gradient = gradients if whole else gradients[[*group.agents]]
                gradient = gradient[:, : group.size]
                if self._clip is not None:
                    gradient = gradient.clone()
                    self._clip(group, gradient)
                group.rows.step(gradient, self._adam, count=self._steps)
                group.pull()

    def state(self) -> Mapping[str, np.ndarray[Any, Any]]:
        """Return copies of every network (``role/agent``), both moments and the step count."""
        state = {name: part.cpu().numpy().copy() for name, part in self._parameters.parts()}
        return {**state, "steps": np.array([self._steps], np.int64)}

    def load(self, state: Mapping[str, np.ndarray[Any, Any]]) -> None:
        """Restore the arrays returned by ``state``.

        Raises:
            CheckpointUnusable: A name is missing or a shape differs.
        """
        parts = dict(self._parameters.parts())
        shapes = {name: tuple(part.shape) for name, part in parts.items()} | {"steps": (1,)}
        for name, shape in shapes.items():
            stored = state[name].shape if name in state else "nothing"
            if stored != shape:
                raise CheckpointUnusable(
                    f"the checkpoint holds {stored} as {name!r} where this configuration needs "
                    f"{shape}; resume with the configuration that wrote it"
                )
        for name, part in parts.items():
            part.copy_(torch.from_numpy(np.array(state[name])))
        self._steps = int(state["steps"][0])
        for group in self._parameters.groups:
            group.pull()
