"""Averages of inputs move by moments that are exact, and by no others."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fullrank.networks.fused.gradients import COARSE
from fullrank.networks.normalised import Normalising

ONE = torch.ones(1)
LARGE = 2.0**12
"""A half of the root of the largest second moment."""


def moved(*inputs: Tensor) -> Tensor:
    """Averages of inputs, each part a unit's, after an update."""
    network, count = Normalising(inputs[0].shape[-1], nn.Identity()), sum(map(len, inputs))
    entries = np.stack([network.moments(own, ONE, count) for own in inputs]).sum(axis=0)
    averages = network.averages.detach().numpy().reshape(-1)
    return torch.from_numpy(Normalising.moved(averages, entries)).reshape(4, -1)


def test_averages_stay_where_moments_of_a_unit_are_clamped_and_move_elsewhere() -> None:
    torch.manual_seed(0)
    moderate = 1e3 * torch.randn(4, 8, 1)
    for far in (-1e5, 8.0 * LARGE, 1e30):
        extreme = 2.7 * LARGE * torch.ones(4, 8, 1)
        extreme[1] = far
        weight, mean, variance, none = moved(*torch.cat([moderate, extreme], -1))
        assert [weight[0], weight[1]] == [pytest.approx(1e-3), 0.0]
        assert [mean[1], variance[1], *none] == [0.0] * 4
        torch.testing.assert_close(mean[0], moderate.mean())
        torch.testing.assert_close(variance[0], moderate.var(correction=0))


@pytest.mark.parametrize("units", [1, 7, 64])
def test_moments_up_to_the_bound_are_exact_whatever_their_sum(units: int) -> None:
    """Each unit's share is just within the bound, and their first moments are the largest."""
    near = np.sqrt(0.999 * COARSE / 2) * np.sqrt(units)
    _, mean, variance, _ = moved(*torch.full((units, 3, 1), near))
    assert float(mean[0]) == pytest.approx(near, rel=1e-6)
    assert float(variance[0]) < 1e-6 * near**2


def test_a_first_moment_at_odd_multiples_of_half_a_step_is_not_clamped() -> None:
    inputs = torch.full((1, 2, 1), 2.0**-11)
    assert float(moved(*inputs)[1, 0]) == 2.0**-11
