"""Hand-written passes from agents' values to the value that is learned, batched over units.

Rows are those of one chunk of time steps, each an episode in one step. Agents' values and their
gradients have shape (units, rows, n), the learned values (units, rows, values).
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from fullrank.networks.fused.products import (
    Blocks,
    PackedArray,
    add_gradient,
    add_sum,
    multiply,
    places_of,
    total,
    widen,
    width_of,
)
from fullrank.networks.value_networks import MonotonicMixer

_ABSENT = torch.empty(0)

_threshold_backward = torch.ops.aten.threshold_backward.grad_input


class Mixing(Protocol):
    """Passes of one kind of team, for up to U units.

    Attributes:
        blocks: Blocks in which weights are packed, in the order of ``gradients``.
        gradients: Accumulated gradients at the blocks, each (U, *block).
    """

    blocks: list[PackedArray]
    gradients: list[Tensor]

    def begin(self, packed: Sequence[Tensor]) -> None:
        """Take the packed weights of both networks, (2, *block), and clear the gradients."""

    def state(self, units: int) -> Tensor | None:
        """Return the buffer of the states that ``forward`` reads, shape (units, rows, S)."""

    def forward(self, values: Tensor, *, target: bool) -> Tensor:
        """Return the learned values."""

    def backward(self, gradient: Tensor) -> Tensor:
        """Return the gradient at the agents' values of the last online pass, and add the others."""


class _Unweighted:
    """A team without a mixing network."""

    def __init__(self, units: int, rows: int) -> None:
        self.blocks: list[PackedArray] = []
        self.gradients: list[Tensor] = []

    def begin(self, packed: Sequence[Tensor]) -> None:
        """Take no weights."""

    def state(self, units: int) -> None:
        """Read no state."""


class Sum(_Unweighted):
    """The team's value is the sum of its n agents' values."""

    def forward(self, values: Tensor, *, target: bool) -> Tensor:
        """Return the sums over agents."""
        self._agents = values.shape[2]
        return total(values)[..., None]

    def backward(self, gradient: Tensor) -> Tensor:
        """Return every agent's gradient: that of the sum."""
        return gradient.expand(-1, -1, self._agents)


class Apart(_Unweighted):
    """Every agent's value is learned for itself."""

    def forward(self, values: Tensor, *, target: bool) -> Tensor:
        """Return the values."""
        return values

    def backward(self, gradient: Tensor) -> Tensor:
        """Return the gradients."""
        return gradient


class _Weights(NamedTuple):
    """Packed weights of one mixing network, or their gradients.

    The outputs of ``first`` are [w_1 | w_2 | V | b_1]: the hidden layers of the hypernetworks of
    weights or, where these have one layer, their outputs; the hidden layer of V; the bias.
    """

    first: Tensor
    """The last row is the bias."""
    value: Tensor
    value_bias: Tensor
    second: Tensor = _ABSENT
    second_bias: Tensor = _ABSENT
    second_last: Tensor = _ABSENT
    second_last_bias: Tensor = _ABSENT


class _Pass(NamedTuple):
    """Intermediate values for the backward pass; n agents, E the padded width of mixing."""

    values: Tensor
    """Values of the agents, shape (units, rows, n)."""
    state: Tensor
    """State and a one, shape (units, rows, S + 1)."""
    below: Tensor
    """Outputs of the first layers, shape (units, rows, sum of widths)."""
    raw: Tensor
    """Signed W_1, shape (units, rows, n E)."""
    raw_last: Tensor
    """Signed w_2, shape (units, rows, E)."""
    magnitude: Tensor
    """Absolute values of W_1."""
    magnitude_last: Tensor
    """Absolute values of w_2."""
    mixed: Tensor
    """Output of the mixing layer, shape (units, rows, E)."""
    slope: Tensor
    """Derivative of its elu."""


class Monotonic:
    """``MonotonicMixer``; the first layers of all hypernetworks are one product.

    Args:
        network: Mixing network, of which only the structure is used.
        start: Index of its first parameter in a flat vector.
        units: U, most units in a call.
        rows: Rows of a unit in a chunk.
        device: Device of the buffers.
    """

    def __init__(
        self, network: MonotonicMixer, start: int, units: int, rows: int, *, device: torch.device
    ) -> None:
        places = places_of(network, start)
        self._agents, self._blocks_of_rows = network.agents, Blocks(rows, 1, units)
        self._embed, self._entries = width_of(network.embed), network.state_size + 1
        self._deep = "hyper_w_1.0.bias" in places
        if self._deep:
            self._outer = self._outer_last = width_of(places["hyper_w_1.0.bias"].numel())
        else:
            self._outer, self._outer_last = self._agents * self._embed, self._embed
        self.blocks = self._blocks(places)
        wide = self._outer + self._outer_last + 2 * self._embed

        def zeros(*shape: int) -> Tensor:
            return torch.zeros(units, *shape, device=device)

        self._state = zeros(rows, width_of(self._entries))
        self._state[..., self._entries - 1] = 1.0
        self._below, self._below_gradient = zeros(rows, wide), zeros(rows, wide)
        self._raw, self._magnitude, self._spare = (
            zeros(rows, self._agents * self._embed) for _ in range(3)
        )
        self._raw_last, self._mixed, self._slope = (zeros(rows, self._embed) for _ in range(3))
        self._hyper = zeros(rows, self._outer)
        self.gradients = [zeros(*block.place.shape) for block in self.blocks]

    def _blocks(self, places: dict[str, Tensor]) -> list[PackedArray]:
        wide, states, hyper = self._embed, self._entries, self._outer
        embed = places["hyper_b_1.bias"].numel()

        def by_agent(name: str, inputs: int) -> tuple[Tensor, Tensor]:
            """Arrange a layer with outputs (n, embed) as [W, b] with padded columns."""
            weight = torch.unflatten(places[f"{name}.weight"].t(), 1, (self._agents, embed))
            bias = torch.unflatten(places[f"{name}.bias"], 0, (self._agents, embed))
            return (
                widen(weight, inputs, self._agents, wide).flatten(1),
                widen(bias, wide).flatten(),
            )

        def layer(name: str, inputs: int, outputs: int) -> tuple[Tensor, Tensor]:
            weight, bias = places[f"{name}.weight"].t(), places[f"{name}.bias"]
            return widen(weight, inputs, outputs), widen(bias, outputs)

        ends = [layer("V.0", states - 1, wide), layer("hyper_b_1", states - 1, wide)]
        if self._deep:
            names = ("hyper_w_1.0", "hyper_w_final.0")
            first = [layer(name, states - 1, hyper) for name in names]
            second = [*by_agent("hyper_w_1.2", hyper), *layer("hyper_w_final.2", hyper, wide)]
        else:
            first = [by_agent("hyper_w_1", states - 1), layer("hyper_w_final", states - 1, wide)]
            second = []
        weights, biases = zip(*first, *ends, strict=True)
        value = [places["V.2.weight"].flatten(), places["V.2.bias"]]
        arrays = [
            torch.cat([torch.cat(weights, 1), torch.cat(biases)[None]]),
            widen(value[0], wide),
            widen(value[1], width_of(1)),
            *second,
        ]
        return [PackedArray(place, torch.ones(place.shape)) for place in arrays]

    def begin(self, packed: Sequence[Tensor]) -> None:
        """Take the packed weights of both networks; see ``Mixing.begin``."""
        self._weights = [_Weights(*(part[net] for part in packed)) for net in range(2)]
        if self._deep:
            online = self._weights[0]
            second = (online.second, online.second_last)
            self._second_back = [part.t().contiguous() for part in second]
        for gradient in self.gradients:
            gradient.zero_()

    def _multiply(self, inputs: Tensor, weights: Tensor, out: Tensor) -> None:
        """Multiply all rows, shapes (units, rows, .), by one matrix."""
        depth, outputs = weights.shape
        inputs, out = inputs.view(1, -1, depth), out.view(1, -1, outputs)
        multiply(inputs, weights[None], out, blocks=self._blocks_of_rows)

    def state(self, units: int) -> Tensor:
        """Return the buffer of states; see ``Mixing.state``."""
        return self._state[:units, :, : self._entries - 1]

    def forward(self, values: Tensor, *, target: bool) -> Tensor:
        """Return Q_tot; see ``Mixing.forward``."""
        weights, units, wide = self._weights[target], len(values), self._embed
        inputs = self._state[:units, :, : self._entries]
        below = self._below[:units]
        self._multiply(inputs, weights.first, below)
        raw, raw_last, value, bias = self._parts(below)
        if self._deep:
            below[..., :-wide].clamp_min_(0.0)
            hyper, hyper_last = raw, raw_last
            raw, raw_last = self._raw[:units], self._raw_last[:units]
            self._multiply(hyper, weights.second, raw)
            self._multiply(hyper_last, weights.second_last, raw_last)
            raw.add_(weights.second_bias)
            raw_last.add_(weights.second_last_bias)
        else:
            value.clamp_min_(0.0)
        magnitude = torch.abs(raw, out=self._magnitude[:units])
        mixed, slope = self._mixed[:units], self._slope[:units]
        agents = self._agents
        for part, own in zip(magnitude.chunk(agents, 2), values.chunk(agents, 2), strict=True):
            bias = torch.addcmul(bias, part, own, out=mixed)
        torch.clamp_max(mixed, 0.0, out=slope).exp_()
        mixed.clamp_min_(0.0).add_(slope).sub_(1.0)
        magnitude_last = raw_last.abs()
        self._pass = _Pass(
            values, inputs, below, raw, raw_last, magnitude, magnitude_last, mixed, slope
        )
        joint = torch.mul(mixed, magnitude_last).addcmul_(value, weights.value)
        return total(joint)[..., None].add_(weights.value_bias[:1])

    def _parts(self, below: Tensor) -> tuple[Tensor, ...]:
        """Split the outputs of the first layers into their parts."""
        widths = [self._outer, self._outer_last, self._embed, self._embed]
        return below.split_with_sizes(widths, 2)

    def backward(self, gradient: Tensor) -> Tensor:
        """Return the gradient at the agents' values; see ``Mixing.backward``."""
        own, units, wide = self._pass, len(gradient), self._embed
        sums = _Weights(*(part[:units] for part in self.gradients))
        raw_last = torch.mul(own.mixed, gradient).mul_(own.raw_last.sign())
        mixed = torch.mul(own.magnitude_last, gradient).mul_(own.slope)
        raw = torch.sign(own.raw, out=self._spare[:units])
        parts = (whole.chunk(self._agents, 2) for whole in (raw, own.values, own.magnitude))
        for part, each, magnitude in zip(*parts, strict=True):
            part.mul_(each).mul_(mixed)
            magnitude.mul_(mixed)
        below = self._below_gradient[:units]
        outer, outer_last, value, bias = self._parts(below)
        hyper, hyper_last, hidden, _ = self._parts(own.below)
        if self._deep:
            add_gradient(sums.second, hyper, raw)
            add_gradient(sums.second_last, hyper_last, raw_last)
            add_sum(sums.second_bias, raw)
            add_sum(sums.second_last_bias, raw_last)
            inner = self._hyper[:units]
            for part, above, back, out in zip(
                (hyper, hyper_last),
                (raw, raw_last),
                self._second_back,
                (outer, outer_last),
                strict=True,
            ):
                self._multiply(above, back, inner)
                _threshold_backward(inner, part, 0.0, grad_input=out)
        else:
            outer.copy_(raw)
            outer_last.copy_(raw_last)
        torch.mul(gradient, self._weights[0].value, out=value)
        _threshold_backward(value, hidden, 0.0, grad_input=value)
        bias.copy_(mixed)
        add_gradient(sums.first, own.state, below)
        add_sum(sums.value, torch.mul(hidden, gradient))
        add_sum(sums.value_bias[:, :1], gradient)
        return total(torch.unflatten(own.magnitude, 2, (-1, wide)))
