"""Clipping: a variable whose norm overflows is marked, and no other one looks like it."""

import torch
from torch import Tensor

from fullrank.algorithms.actor_critic import clip_to
from fullrank.algorithms.autograd import clipped
from fullrank.networks.fused.mlp import VANISHED, Clipper, Linear, take_mark

HUGE = 1e25
"""Entries whose squares overflow."""


def gradients(weight: float, bias: float) -> Linear:
    """Gradients of one layer of two units, the second of which has moderate entries."""
    scales = torch.tensor([1.0, 1e-30])[:, None, None]
    return Linear(torch.full((2, 3, 4), weight) * scales, torch.full((2, 3, 1), bias) * scales)


def test_only_what_overflows_is_marked() -> None:
    layer = gradients(HUGE, 1.0)
    out = gradients(0.0, 0.0)
    Clipper([layer], [out], norm=0.5).clip()
    lost, kept = out.weight
    assert lost[0, 0] == VANISHED
    assert lost.count_nonzero() == 1
    torch.testing.assert_close(kept, layer.weight[1])
    torch.testing.assert_close(out.bias[0].flatten().norm(), torch.tensor(0.5))
    assert [take_mark(variable) for variable in (lost, kept, *out.bias)] == [True] + [False] * 3
    assert not lost.any()


def test_all_ways_of_clipping_mark_alike() -> None:
    def by_hand(gradient: Tensor) -> Tensor:
        variable = gradient.clone()
        clip_to(0.5, variable)
        return variable

    for gradient in (torch.full((3, 4), HUGE), torch.full((5,), -HUGE)):
        for result in (clipped(gradient, 0.5), by_hand(gradient)):
            assert take_mark(result)
            assert not result.any()


def test_a_gradient_of_zeros_and_one_of_a_grid_step_carry_no_mark() -> None:
    for gradient in (torch.zeros(4), torch.full((4,), VANISHED), torch.full((1,), VANISHED)):
        assert not take_mark(gradient.clone())
        assert torch.equal(clipped(gradient, 0.5), gradient)
