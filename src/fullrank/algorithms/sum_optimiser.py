"""Optimiser of groups of agents that share networks, along the sums of their gradients."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from fullrank.algorithms.optimiser import GroupedOptimiser
from fullrank.algorithms.updates import CLAMPED, Entries
from fullrank.common.rows import Rows
from fullrank.networks.adam import Adam, RMSprop, moved, steps_at_once
from fullrank.networks.fused.cuda import Graphs, tensor_of
from fullrank.networks.normalised import Normalising
from fullrank.networks.parameters import GroupedParameters, ParameterGroup


class SumOptimiser(GroupedOptimiser):
    """RMSprop or Adam along summed gradients, with hard target copies; an ``Optimiser``.

    Target k is the sum of the k-th group, whose global norm is clipped here, because
    clipping is no linear map and does not commute with decoding.

    Args:
        parameters: Groups of one row, updated in place.
        rule: Update rule with its hyperparameters.
        entries: Statistics that follow the gradient.
        scale: Factor by which learners scale their updates where the exponent is 0, a power of two.
        clip_norm: L2 norm to which the whole gradient is clipped.
        target_every: Number of steps between two copies of the parameters to the targets.
        rate: Learning rate after a number of steps; None: that of the rule.
        moved: Moves what no gradient moves, given a group and its statistics; None: nothing.
        averaged: Returns the columns of a group's averages of inputs, whose part of a sum holds
            moments in place of a gradient.
    """

    def __init__(
        self,
        parameters: GroupedParameters,
        rule: Adam | RMSprop,
        *,
        entries: Entries,
        scale: float,
        clip_norm: float,
        target_every: int,
        rate: Callable[[int], float] | None = None,
        moved: Callable[[ParameterGroup, Mapping[str, float]], None] | None = None,
        averaged: Callable[[ParameterGroup], Sequence[slice]] = lambda group: (),
    ) -> None:
        super().__init__(parameters, learning_rate=float(rule.learning_rate))
        self._rule, self._entries, self._scale = rule, entries, scale
        self._clip_norm, self._target_every = clip_norm, target_every
        self._rate, self._moved, self._averaged = rate, moved, averaged
        self._device = parameters.groups[0].rows.online.device
        self._graphs, self._read = Graphs(self._device), dict[int, Tensor]()
        self._norms = torch.zeros(len(parameters.groups), dtype=torch.float64, device=self._device)

    def step(self, targets: Rows) -> Mapping[str, float]:
        """Apply the decoded sums, shape (groups, P); equal input gives equal bits.

        They are moved to the device of the parameters, whose order their norm is added up in.

        Returns:
            Of each group, with its number after a slash if there are several: the statistics that
            follow the gradient; its norm before clipping, ``grad_norm``; and the number of units
            that were clamped, ``clamped/role``, with the network of the largest entry, if there
            are any; and the number of inputs of a network whose averages stayed, because moments
            were clamped, ``clamped/averages/role``; and the
            ``learning_rate``.

        Raises:
            Unsound: A parameter or moment is not finite afterwards.
        """
        rule, groups = self._rule, self._parameters.groups
        sums = moved(tensor_of(targets), self._device)
        if self._rate is not None:
            rule = replace(rule, learning_rate=self._rate(self._steps))
        statistics = {"learning_rate": float(rule.learning_rate)}
        self._steps += 1
        for number, (group, own) in enumerate(zip(groups, sums, strict=True)):
            self._move(number, group, own, rule)
        self.check(targets)
        norms = self._norms.tolist()
        for number, (group, own) in enumerate(zip(groups, sums, strict=True)):
            found = {**self._told(number, group, own), "grad_norm": norms[number]}
            several = f"/{number}" if len(groups) > 1 else ""
            statistics |= {f"{name}{several}": value for name, value in found.items()}
        return statistics

    def _move(
        self, number: int, group: ParameterGroup, target: Tensor, rule: Adam | RMSprop
    ) -> None:
        """Step the networks of a group along its sum."""
        rows = group.rows
        with torch.inference_mode():
            self._along(number, group, target, rule)
            for own in self._averaged(group):
                row = rows.online[0, own]
                averages = Normalising.moved(row.cpu().numpy(), target[own].cpu().numpy())
                row.copy_(torch.from_numpy(averages))
            if self._moved is not None:
                self._moved(group, self._entries.sums(target[group.size :].cpu().numpy()))
            if self._steps % self._target_every == 0:
                rows.target.copy_(rows.online)
            group.changed()

    def _along(
        self, number: int, group: ParameterGroup, target: Tensor, rule: Adam | RMSprop
    ) -> None:
        """Move the networks of a group, on CUDA as a graph, and keep the norm of its gradient."""
        if steps_at_once(self._device):
            if number not in self._read:
                self._read[number] = torch.empty_like(target)
            target = self._read[number].copy_(target)  # where a graph reads it
        scale = self._scale * self._parameters.factor(number)
        facts = torch.tensor([scale, self._steps, rule.learning_rate], dtype=torch.float64)

        def compute(draw: Callable[[], Tensor], check_cancelled: Callable[[], None]) -> None:
            scale, count, rate = draw()
            whole = self.gradient(number, target).to(torch.float64) / scale
            norm = squares(whole).sqrt()
            self._norms[number].copy_(norm)
            whole *= (self._clip_norm / (norm + 1e-6)).clamp_max(1.0)
            gradient, rows = whole.to(torch.float32)[None], group.rows
            own = rule if self._rate is None else rule.at(rate)
            if isinstance(own, Adam):
                rows.step(gradient, own, count=count.float())
            else:
                end = group.size
                own.step(rows.online[:, :end], gradient, rows.second_moment[:, :end])

        self._graphs.run(number, compute, draw=lambda: facts, check_cancelled=lambda: None)

    def gradient(self, number: int, target: Tensor) -> Tensor:
        """Return the scaled gradient of the sum of a group, by number; it is 0 at averages."""
        group = self._parameters.groups[number]
        gradient = target[: group.size]
        for own in self._averaged(group):
            gradient = gradient.clone()
            gradient[own] = 0.0
        return gradient

    def _told(self, number: int, group: ParameterGroup, target: Tensor) -> dict[str, float]:
        """Fit a group's exponent, and return the statistics that follow its gradient."""
        gradient, entries = self.gradient(number, target), target[group.size :].cpu().numpy()
        statistics, units = self._entries.sums(entries), self._entries.clamped_units(entries)
        self.fit(number, gradient, exceeded=units > 0)
        if units:
            role = group.role_at(int(gradient.abs().argmax()))
            statistics[f"{CLAMPED}/{role}"] = float(units)
        for own in self._averaged(group):
            if inputs := np.count_nonzero(Normalising.clamped(target[own].cpu().numpy())):
                statistics[f"{CLAMPED}/averages/{group.role_at(own.start)}"] = float(inputs)
        return statistics


def squares(values: Tensor) -> Tensor:
    """Sum the squares of a vector, on the CPU in the order of NumPy."""
    if values.device.type == "cpu":
        return torch.as_tensor(np.square(values.numpy()).sum())
    return values.square().sum()
