"""Hand-written passes of ``RecurrentAgent``, online and target, batched over units.

Time is cut into chunks of 16 steps. A unit has the same R rows (episodes and agents) in every step,
and all its products have the shapes of one step or of one chunk: they depend neither on the length
of its episodes nor on other units. A chunk that a unit has no step in adds exact zeros.

With x the output of the first layer and h the state, a step is

    r, z = 1 / (1 + exp(-a)),    n = tanh(b),    h' = n + z (h - n)
    a = W_i x + W_h h + biases,  b = W_n x + b_n + r (V_n h + c_n)

tanh(b) = 2 / (1 + exp(-2 b)) - 1. Weights are packed with the factors -1 and -2, so that every gate
is 1 / (1 + exp) of a sum. ``exp`` has the same bits in every place of a vector, which ``sigmoid``
has not. The backward pass through a step is linear in the gradient at h'; its coefficients are
computed for a whole chunk at a time.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from fullrank.networks.fused.packing import Block, places_of, widen, width_of
from fullrank.networks.fused.row_products import add_gradient, multiply, multiply_apart, product
from fullrank.networks.recurrent import RecurrentAgent

CHUNK = 16
"""Number of time steps over which a product sums."""

_threshold_backward = torch.ops.aten.threshold_backward.grad_input


class _Chunk(NamedTuple):
    """What the backward pass reads of one chunk; U units, R rows, H wide.

    ``slopes`` holds [1 + exp(-2 b) | 1 + exp(-a) | V_n h + c_n] after the steps; then the gradients
    at [b | a | V_n h + c_n], first for a gradient of 1 at h', and at last for the loss's.
    """

    inputs: Tensor
    """Inputs of the first layer, shape (U, 16, R, I)."""
    below: Tensor
    """Outputs of the first layers of both networks, shape (2, U, 16, R, H)."""
    states: Tensor
    """States of both networks before each step and after the last, shape (2, U, 17, R, H)."""
    keep: Tensor
    """Gate z of the online network, shape (U, 16, R, H)."""
    slopes: Tensor
    """Shape (U, 16, R, 4 H)."""


class _Weights(NamedTuple):
    """Packed weights of one network; gates lie in the order n, r, z or r, z, n."""

    first: Tensor
    first_bias: Tensor
    gates: Tensor
    recurrent: Tensor
    gate_bias: Tensor
    """Biases of [n | r | z | V_n h]."""
    last: Tensor
    last_bias: Tensor


class RecurrentUnits:
    """Buffers and passes for up to U units of R rows.

    Args:
        network: The agents' network, of which only the structure is used.
        start: Index of its first parameter in a flat vector.
        units: U, most units in a call.
        rows: R, rows of a unit in one step: its episodes and their agents.
        device: Device of the buffers.

    Attributes:
        blocks: Blocks in which weights are packed, in the order of ``gradients``.
        inputs: Width of the inputs, padded.
    """

    def __init__(
        self, network: RecurrentAgent, start: int, *, units: int, rows: int, device: torch.device
    ) -> None:
        self._units, self._rows, self._device = units, rows, device
        self.inputs = width_of(network.fc1.in_features)
        self._width = width_of(network.fc1.out_features)
        self._actions = width_of(network.fc2.out_features)
        self.blocks = self._blocks(network, start)
        self._chunks: list[_Chunk] = []
        wide, steps = self._width, (2, units, CHUNK, rows)
        self._two = torch.tensor(2.0, device=device)
        self._input, self._state, self._mean = (self._zeros(2, units, rows, wide) for _ in range(3))
        self._sums = self._zeros(2, units, rows, 4 * wide)
        self._values = self._zeros(*steps, self._actions)
        self._above = self._zeros(*steps[1:], wide)
        self._gradient = self._zeros(units, rows, wide)
        self._slope = self._zeros(units, rows, 3 * wide)
        first, first_bias, gates, recurrent, gate_bias, _, last, last_bias = (
            self._zeros(units, *block.place.shape) for block in self.blocks
        )
        self._gradients = _Weights(first, first_bias, gates, recurrent, gate_bias, last, last_bias)

    def _zeros(self, *shape: int) -> Tensor:
        return torch.zeros(shape, device=self._device)

    def _blocks(self, network: RecurrentAgent, start: int) -> list[Block]:
        places, wide = places_of(network, start), self._width

        def gates(name: str, order: Sequence[int]) -> Block:
            """Arrange the rows of the gates r, z, n as columns."""
            place = torch.unflatten(places[name], 0, (3, -1))[list(order)]
            factor = torch.tensor([-1.0, -1.0, -2.0])[list(order)]
            if place.dim() == 2:
                padded = widen(place, wide)
                return Block(padded.flatten(), factor.repeat_interleave(wide))
            padded = widen(place.permute(2, 0, 1), wide, 3, wide).flatten(1)
            return Block(padded, factor.repeat_interleave(wide).expand(wide, -1))

        def extended(block: Block, *, before: int, after: int) -> Block:
            pad = (before, after)
            return Block(
                torch.nn.functional.pad(block.place, pad, value=-1),
                torch.nn.functional.pad(block.factor, pad),
            )

        return [
            Block.of(places["fc1.weight"].t(), self.inputs, wide),
            Block.of(places["fc1.bias"], wide),
            gates("rnn.weight_ih_l0", (2, 0, 1)),
            gates("rnn.weight_hh_l0", (0, 1, 2)),
            extended(gates("rnn.bias_ih_l0", (2, 0, 1)), before=0, after=wide),
            extended(gates("rnn.bias_hh_l0", (0, 1, 2)), before=wide, after=0),
            Block.of(places["fc2.weight"].t(), wide, self._actions),
            Block.of(places["fc2.bias"], self._actions),
        ]

    @property
    def gradients(self) -> list[Tensor]:
        """Accumulated gradients at the blocks of each unit, shape (U, *block)."""
        own = self._gradients
        both = own.gate_bias  # of which each bias is a part
        return [*own[:4], both, both, *own[5:]]

    def begin(self, packed: Sequence[Tensor], chunks: int) -> None:
        """Take the packed weights of both networks, (2, *block), and clear what is accumulated."""
        first, first_bias, gates, recurrent, own, other, last, last_bias = packed
        parts = first, first_bias, gates, recurrent, own + other, last, last_bias
        self._weights = [_Weights(*(part[net] for part in parts)) for net in range(2)]
        self._gate_bias = parts[4][:, None, None]
        for gradient in (*self._gradients, self._gradient):
            gradient.zero_()
        for _ in range(len(self._chunks), chunks):
            steps, wide = (self._units, CHUNK, self._rows), self._width
            self._chunks.append(
                _Chunk(
                    self._zeros(*steps, self.inputs),
                    self._zeros(2, *steps, wide),
                    self._zeros(2, self._units, CHUNK + 1, self._rows, wide),
                    self._zeros(*steps, wide),
                    self._zeros(*steps, 4 * wide),
                )
            )

    def inputs_of(self, chunk: int, units: int) -> Tensor:
        """Return the buffer of a chunk's inputs, shape (units, 16, R, inputs)."""
        return self._chunks[chunk].inputs[:units]

    def gradient_buffer(self, units: int) -> Tensor:
        """Return a zero gradient at the values of a chunk, shape (units, 16, R, actions)."""
        return self._values[1, :units].zero_()

    def forward(self, chunk: int, *, units: int, steps: int) -> Tensor:
        """Compute the values of all actions in the first ``steps`` steps of a chunk.

        Args:
            chunk: Index of the chunk; the one before it must have been computed.
            units: Number of units, the first of those of the chunk before.
            steps: Steps that any of them has in this chunk.

        Returns:
            Values by the online and the target network, shape (2, units, 16, R, actions); they
            share memory with the next call's.
        """
        own = self._chunks[chunk]
        states = own.states[:, :units]
        if chunk:
            states[:, :, 0] = self._chunks[chunk - 1].states[:, :units, CHUNK]
        else:
            states[:, :, 0] = 0.0
        below = own.below[:, :units]
        for net, weights in enumerate(self._weights):
            x = below[net].flatten(1, 2)
            self._multiply(own.inputs[:units].flatten(1, 2), weights.first, x)
            x.add_(weights.first_bias).clamp_min_(0.0)
        self._recur(own.slopes[:units], below, states, steps)
        states[:, :, steps + 1 :] = 0.0
        self._prepare(own, units)
        values = self._values[:, :units]
        for net, weights in enumerate(self._weights):
            out = values[net].flatten(1, 2)
            multiply_apart(states[net, :, 1:].flatten(1, 2), weights.last, out)
            out.add_(weights.last_bias)
        return values

    def _multiply(self, inputs: Tensor, weights: Tensor, out: Tensor, beta: float = 0.0) -> None:
        multiply(inputs, weights, out, most=self._units, beta=beta)

    def _recur(self, slopes: Tensor, below: Tensor, states: Tensor, steps: int) -> None:
        """Compute the states after each step, and save what the backward pass is made of."""
        units, wide = states.shape[1], self._width
        x, state, mean = self._input[:, :units], self._state[:, :units], self._mean[:, :units]
        sums, bias = self._sums[:, :units], self._gate_bias
        state.copy_(states[:, :, 0])
        products = []
        for net, weights in enumerate(self._weights):
            for inputs, matrix, out in (
                (x[net], weights.gates, sums[net, ..., : 3 * wide]),
                (state[net], weights.recurrent, sums[net, ..., wide:]),
            ):
                products.append(product(inputs, matrix, out, most=self._units, beta=1.0))
        new, reset, keep, feed = torch.split(sums, wide, 3)
        opening = sums[..., wide : 3 * wide]
        online = sums[0]
        for own, saved, after in zip(
            below[:, :, :steps].unbind(2),
            slopes[:, :steps].unbind(1),
            states[:, :, 1 : steps + 1].unbind(2),
            strict=True,
        ):
            x.copy_(own)
            sums.copy_(bias)
            for multiplied in products:
                multiplied()
            opening.exp_().add_(1.0)
            new.addcdiv_(feed, reset).exp_().add_(1.0)
            saved.copy_(online)
            torch.div(self._two, new, out=mean).sub_(1.0)
            state.sub_(mean).div_(keep).add_(mean)
            after.copy_(state)

    def _prepare(self, chunk: _Chunk, units: int) -> None:
        """Compute the coefficients of the backward pass through each step, in place."""
        wide = self._width
        chunk.slopes[:units, ..., : 3 * wide].reciprocal_()
        new, reset, keep, feed = torch.split(chunk.slopes[:units], wide, 3)
        chunk.keep[:units] = keep
        away, spare = torch.sub(1.0, keep), torch.sub(chunk.states[0, :units, :CHUNK], new)
        keep.mul_(spare.sub_(new).add_(1.0)).mul_(away).neg_()  # n = 2 new - 1
        new.mul_(torch.sub(new, 1.0, out=spare)).mul_(away.mul_(2.0))
        torch.mul(new, reset, out=spare)
        reset.sub_(1.0).mul_(feed).mul_(spare)
        feed.copy_(spare)

    def backward(self, chunk: int, gradient: Tensor, *, steps: int) -> None:
        """Add the gradients of a chunk; chunks are taken from the last to the first.

        Args:
            chunk: Index of the chunk.
            gradient: Gradient at the values of the online network, contiguous, shape
                (units, 16, R, actions), zero from ``steps`` on.
            steps: Steps with a gradient.
        """
        units, wide, own = len(gradient), self._width, self._chunks[chunk]
        weights, sums = self._weights[0], _Weights(*(part[:units] for part in self._gradients))
        states, slopes = own.states[0, :units], own.slopes[:units]
        above, outer = self._above[:units], gradient.flatten(1, 2)
        self._multiply(outer, weights.last.t(), above.flatten(1, 2))
        add_gradient(sums.last, sums.last_bias, states[:, 1:].flatten(1, 2), outer)
        slopes[:, steps:] = 0.0
        self._recur_back(own, above, steps)
        inner = slopes.flatten(1, 2)
        below, gates = own.below[0, :units].flatten(1, 2), inner[:, :, : 3 * wide]
        add_gradient(sums.gates, None, below, gates)
        add_gradient(sums.recurrent, None, states[:, :CHUNK].flatten(1, 2), inner[:, :, wide:])
        sums.gate_bias.add_(inner.sum(1))
        first = above.flatten(1, 2)
        self._multiply(gates, weights.gates.t(), first)
        _threshold_backward(first, below, 0.0, grad_input=first)
        add_gradient(sums.first, sums.first_bias, own.inputs[:units].flatten(1, 2), first)

    def _recur_back(self, chunk: _Chunk, above: Tensor, steps: int) -> None:
        """Turn the coefficients of each step into gradients, given those at the states."""
        units, wide = len(above), self._width
        gradient, slope = self._gradient[:units], self._slope[:units]
        transposed, each = self._weights[0].recurrent.t(), gradient.unsqueeze(2)
        add_product = product(slope, transposed, gradient, most=self._units, beta=1.0)
        parts = (
            above[:, :steps].unbind(1),
            torch.unflatten(chunk.slopes[:units, :steps], 3, (4, wide)).unbind(1),
            chunk.slopes[:units, :steps, :, wide:].unbind(1),
            chunk.keep[:units, :steps].unbind(1),
        )
        for own, four, three, keep in reversed(list(zip(*parts, strict=True))):
            gradient.add_(own)
            four.mul_(each)
            gradient.mul_(keep)
            slope.copy_(three)
            add_product()
