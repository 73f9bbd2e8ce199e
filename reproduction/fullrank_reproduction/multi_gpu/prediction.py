"""Times of two devices, predicted from the curve of one and a bandwidth between them."""

from collections.abc import Callable
from dataclasses import dataclass

from fullrank.algorithms import Problem
from fullrank.training.ranks import Split, received_bytes

TARGET_SHARE = 0.07
"""Part of an update that every rank repeats when agents are divided: all target policies."""

UpdateTimes = Callable[[float], float]
"""Seconds of an update by one device over the size of the minibatch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceModel:
    """A device of two numbers, and the bandwidth between two of them."""

    flops: float
    """Floating-point operations a second that an update reaches."""
    bandwidth: float
    """Bytes a second that a device receives in a reduction."""

    def curve(self, flop: float) -> UpdateTimes:
        """Return T_MU(B), given the operations of one transition."""
        return lambda batch: batch * flop / self.flops


PAPERS = DeviceModel(flops=36e12, bandwidth=25e9)
"""Two H100: 0.7 of a card's float32 peak, and a usual all-reduce over PCIe 5; neither was
measured."""


def flop_of(problem: Problem) -> float:
    """Operations that a transition costs in an update.

    Six for each parameter of a critic and of a policy, forward and backward, two for each of their
    targets, and a critic's forward and backward pass for the policies' gradient.
    """
    size = dict.fromkeys(("policy", "critic"), 0)
    for section in problem.sections:
        if section.role in size:
            size[section.role] += section.size
    return (6 + 2 + 4) * float(size["critic"]) + (6 + 2) * float(size["policy"])


def speed_up(
    curve: UpdateTimes, problem: Problem, batch: int, split: Split, bandwidth: float, *, exact: bool
) -> float:
    """Predicted agent-updates per second of two devices, relative to one.

    Args:
        curve: Seconds of one device.
        problem: Sizes of the networks.
        batch: Size of the whole minibatch.
        split: Division of the update.
        bandwidth: Bytes a second that a device receives.
        exact: True if gradients are added in float64.
    """
    moved_s = received_bytes(problem, 2, split, exact=exact) / bandwidth
    if split == "transitions":
        return curve(batch) / (curve(batch / 2) + moved_s)
    return curve(batch) / ((0.5 + TARGET_SHARE / 2) * curve(batch) + moved_s)
