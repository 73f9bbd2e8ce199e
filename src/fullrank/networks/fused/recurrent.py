"""Hand-written passes of ``RecurrentAgent``, online and target, batched over units.

Time is cut into chunks of 16 steps. A unit has the same R rows (episodes and agents) in every step.
Products of rows with weights are one product for each network; weight gradients are one product for
each unit over a whole chunk, so that no shape depends on the length of a unit's episodes. A chunk
that a unit has no step in adds exact zeros. Rows lie by step where steps are computed one after the
other, and by unit around weight gradients.

With x the output of the first layer and h the state, a step is

    r, z = sigmoid(a),           n = tanh(b),    h' = n + z (h - n)
    a = W_i x + W_h h + biases,  b = W_n x + b_n + r (V_n h + c_n)

Weights of n are packed with the factor 2, so that n = 2 s - 1 with s = sigmoid(2 b). With the state
h = 2 k - 1, a step is k' = s + z (k - s). The backward pass carries the gradient at k.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from fullrank.networks.fused.products import (
    Blocks,
    PackedArray,
    add_gradient,
    add_sum,
    by_unit,
    multiply,
    places_of,
    product,
    widen,
    width_of,
)
from fullrank.networks.value_networks import RecurrentAgent

CHUNK = 16
"""Number of time steps over which a product sums."""


class Chunk(NamedTuple):
    """Values of one chunk for the backward pass, for some units; H wide."""

    inputs: Tensor
    """Inputs of the first layer and a one, (units, 16, R, I)."""
    below: Tensor
    """Outputs of the first layers of both networks, (2, units, 16, R, H)."""
    states: Tensor
    """States of both networks before each step and after the last, (2, 17, units x R, H)."""
    change: Tensor
    """k - s of the online network, (16, units x R, H)."""
    gates: Tensor
    """[s | r | z | 2 (V_n h + c_n)] of the online network, and at last the gradients at
    [2 b | a | 2 (V_n h + c_n)], (16, units x R, 4 H)."""
    forward: list[tuple[Tensor, ...]]
    """Outputs of the first layers, states before and after, k - s and the gates of each step."""
    backward: list[tuple[Tensor, ...]]
    """k - s, and of the gates [r | z | V], [r | z], s, r, z and V of each step."""


class ChunkBuffers:
    """Buffers of one chunk for up to U units of R rows.

    Args:
        units: U, most units in a call.
        rows: R, rows of a unit in one step.
        inputs: Inputs of the first layer and a one.
        wide: H.
        device: Device of the buffers.
    """

    def __init__(
        self, *, units: int, rows: int, inputs: int, wide: int, device: torch.device
    ) -> None:
        self._rows, self._inputs, self._wide = rows, width_of(inputs), wide
        sizes = (torch.Size(shape).numel() for shape in self._shapes(units))
        self._flat = [torch.zeros(size, device=device) for size in sizes]
        self._chunk: Chunk | None = None

    def _shapes(self, units: int) -> tuple[tuple[int, ...], ...]:
        """Return the shapes of all values for a number of units, in the order of ``Chunk``."""
        wide, rows, by_unit = self._wide, units * self._rows, (units, CHUNK, self._rows)
        return (
            (*by_unit, self._inputs),
            (2, *by_unit, wide),
            (2, CHUNK + 1, rows, wide),
            (CHUNK, rows, wide),
            (CHUNK, rows, 4 * wide),
        )

    def of(self, units: int) -> Chunk:
        """View the buffers for a number of units; keep the views, which take 1 % of an update."""
        if self._chunk is None or len(self._chunk.inputs) != units:
            self._chunk = self._views(units)
        return self._chunk

    def _views(self, units: int) -> Chunk:
        wide, pairs = self._wide, zip(self._flat, self._shapes(units), strict=True)
        inputs, below, states, change, gates = (view(flat, *shape) for flat, shape in pairs)
        before, after = states[:, :-1], states[:, 1:]
        forward = below.unbind(2), before.unbind(1), after.unbind(1), change, gates
        alone = gates[:, None]  # one network
        opening, outer = alone[..., wide : 3 * wide], alone[..., wide:]
        backward = change[:, None], outer, opening, *alone.chunk(4, 3)
        return Chunk(
            inputs,
            below,
            states,
            change,
            gates,
            list(zip(*forward, strict=True)),
            list(zip(*backward, strict=True)),
        )


def view(flat: Tensor, *shape: int) -> Tensor:
    """View the first entries of a flat buffer in a shape."""
    return flat[: torch.Size(shape).numel()].view(shape)


SERIAL = 2**15
"""Most entries that torch never splits between threads, in one elementwise function. ``sigmoid``
has other bits in the last entries of a part, unless there are a multiple of 16."""

_sigmoid_backward = torch.ops.aten.sigmoid_backward.grad_input
_threshold_backward = torch.ops.aten.threshold_backward.grad_input


class _Weights(NamedTuple):
    """Packed weights of both networks, or gradients of units; gates in order n, r, z or r, z, n."""

    first: Tensor
    """The last row is the bias."""
    gates: Tensor
    recurrent: Tensor
    gate_bias: Tensor
    """Biases of [n | r | z | V_n h]."""
    last: Tensor
    last_bias: Tensor


def weight_blocks(network: RecurrentAgent, start: int) -> list[PackedArray]:
    """Arrange the parameters of an agents' network as blocks, the biases of its gates in two.

    Args:
        network: Its structure.
        start: Index of its first parameter in a flat vector.
    """
    places, wide = places_of(network, start), width_of(network.fc1.out_features)
    actions = width_of(network.fc2.out_features)

    def gates(name: str, order: Sequence[int]) -> PackedArray:
        """Arrange the rows of the gates r, z, n as columns."""
        place = torch.unflatten(places[name], 0, (3, -1))[list(order)]
        factor = torch.tensor([1.0, 1.0, 2.0])[list(order)]
        if place.dim() == 2:
            padded = widen(place, wide)
            return PackedArray(padded.flatten(), factor.repeat_interleave(wide))
        padded = widen(place.permute(2, 0, 1), wide, 3, wide).flatten(1)
        return PackedArray(padded, factor.repeat_interleave(wide).expand(wide, -1))

    def extended(block: PackedArray, *, before: int, after: int) -> PackedArray:
        pad = (before, after)
        return PackedArray(
            torch.nn.functional.pad(block.place, pad, value=-1),
            torch.nn.functional.pad(block.factor, pad),
        )

    first = torch.cat([places["fc1.weight"].t(), places["fc1.bias"][None]])
    return [
        PackedArray.of(first, network.fc1.in_features + 1, wide),
        gates("rnn.weight_ih_l0", (2, 0, 1)),
        gates("rnn.weight_hh_l0", (0, 1, 2)),
        extended(gates("rnn.bias_ih_l0", (2, 0, 1)), before=0, after=wide),
        extended(gates("rnn.bias_hh_l0", (0, 1, 2)), before=wide, after=0),
        PackedArray.of(places["fc2.weight"].t(), wide, actions),
        PackedArray.of(places["fc2.bias"], actions),
    ]


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
    """

    def __init__(
        self, network: RecurrentAgent, start: int, *, units: int, rows: int, device: torch.device
    ) -> None:
        self._units, self._rows, self._device = units, rows, device
        self._entries = network.fc1.in_features + 1
        self._width = width_of(network.fc1.out_features)
        self._actions = width_of(network.fc2.out_features)
        self.blocks = weight_blocks(network, start)
        self._chunks: list[ChunkBuffers] = []
        wide, total = self._width, units * rows
        self._minus_one = torch.tensor(-1.0, device=device)
        self._sums, self._state = self._zeros(2 * total * 4 * wide), self._zeros(2 * total * wide)
        self._spare, self._other = (self._zeros(1, total, size) for size in (2 * wide, wide))
        self._values = self._zeros(2 * CHUNK * total * self._actions)
        self._above, self._carry = self._zeros(CHUNK * total * wide), self._zeros(1, total, wide)
        self._last_state = self._zeros(2, total, wide)
        self._left = self._zeros((CHUNK + 1) * total * wide)
        self._right = self._zeros(CHUNK * total * max(4 * wide, self._actions))
        first, gates, recurrent, gate_bias, _, last, last_bias = (
            self._zeros(units, *block.place.shape) for block in self.blocks
        )
        self._gradients = _Weights(first, gates, recurrent, gate_bias, last, last_bias)

    def _zeros(self, *shape: int) -> Tensor:
        return torch.zeros(shape, device=self._device)

    @property
    def gradients(self) -> list[Tensor]:
        """Accumulated gradients at the blocks of each unit, shape (U, *block)."""
        own = self._gradients
        both = own.gate_bias  # of which each bias is a part
        return [*own[:3], both, both, *own[4:]]

    def begin(self, packed: Sequence[Tensor], chunks: int) -> None:
        """Take the packed weights of both networks, (2, *block), and clear the gradients."""
        first, gates, recurrent, own, other, last, last_bias = packed
        self._weights = _Weights(first, gates, recurrent, own + other, last, last_bias)
        turned = [part[:1].transpose(1, 2).contiguous() for part in (gates, recurrent, last)]
        self._gates_back, self._recurrent_back, self._last_back = turned
        for part in turned[1:]:  # h = 2 k - 1
            part.mul_(2.0)
        for gradient in (*self._gradients, self._carry, self._last_state):
            gradient.zero_()
        self._chunks += [
            ChunkBuffers(
                units=self._units,
                rows=self._rows,
                inputs=self._entries,
                wide=self._width,
                device=self._device,
            )
            for _ in range(len(self._chunks), chunks)
        ]

    def inputs_of(self, chunk: int, units: int) -> Tensor:
        """Return the buffer of a chunk's inputs, shape (units, 16, R, inputs)."""
        inputs = self._chunks[chunk].of(units).inputs[..., : self._entries]
        inputs[..., -1] = 1.0
        return inputs[..., :-1]

    def gradient_buffer(self, units: int) -> Tensor:
        """Return a zero gradient at the values of a chunk, shape (16, units x R, actions)."""
        return view(self._values, CHUNK, units * self._rows, self._actions).zero_()

    def forward(self, chunk: int, *, units: int, steps: int) -> Tensor:
        """Compute the values of all actions in the first ``steps`` steps of a chunk.

        Args:
            chunk: Index of the chunk; the one before it must have been computed.
            units: Number of units, the first of those of the chunk before.
            steps: Steps that any of them has in this chunk.

        Returns:
            Values by the online and the target network, shape (2, 16, units x R, actions); they
            share memory with the next call's.
        """
        own, weights, rows = self._chunks[chunk].of(units), self._weights, units * self._rows
        own.states[:, 0] = self._last_state[:, :rows]
        own.states[:, steps + 1 :] = 0.0
        inputs = own.inputs.view(1, -1, own.inputs.shape[3])[..., : self._entries]
        below = own.below.view(2, -1, self._width)
        self._multiply(inputs.expand(2, -1, -1), weights.first, below)
        own.below.clamp_min_(0.0)
        self._recur(own, steps)
        self._last_state[:, :rows] = own.states[:, CHUNK]
        values = view(self._values, 2, CHUNK, rows, self._actions)
        values.copy_(weights.last_bias[:, None, None])
        states = own.states[:, 1:].flatten(1, 2)
        self._multiply(states, weights.last, values.flatten(1, 2), beta=1.0)
        return values

    def _multiply(self, inputs: Tensor, weights: Tensor, out: Tensor, beta: float = 0.0) -> None:
        """Multiply the rows of a chunk, shapes (networks, 16 x units x R, .)."""
        blocks = Blocks(self._rows, CHUNK, self._units)
        multiply(inputs, weights, out, blocks=blocks, beta=beta)

    def _recur(self, own: Chunk, steps: int) -> None:
        """Compute the states after each step, and save the inputs of the backward pass."""
        wide, rows, weights = self._width, own.states.shape[2], self._weights
        sums = view(self._sums, 2, rows, 4 * wide)
        state = view(self._state, 2, rows, wide)
        new, reset, keep, feed = sums.chunk(4, 2)
        opening, inner = sums[..., wide : 3 * wide], sums[..., : 3 * wide]
        outer, bias = sums[..., wide:], weights.gate_bias[:, None]
        blocks = Blocks(self._rows, 1, self._units)
        add_inner = product(own.states[:, 0], weights.gates, inner, blocks=blocks, beta=1.0)
        add_outer = product(own.states[:, 0], weights.recurrent, outer, blocks=blocks, beta=1.0)
        torch.add(own.states[:, 0], 1.0, out=state).mul_(0.5)
        online, first_state, first_new = sums[0], state[0], new[0]
        for below, before, after, change, gates in own.forward[:steps]:
            sums.copy_(bias)
            add_inner(below.flatten(1, 2), inner)
            add_outer(before, outer)
            sigmoid_(opening)
            sigmoid_(new.addcmul_(feed, reset))
            torch.sub(first_state, first_new, out=change)
            torch.lerp(new, state, keep, out=state)
            torch.add(self._minus_one, state, alpha=2.0, out=after)
            gates.copy_(online)

    def backward(self, chunk: int, gradient: Tensor, *, steps: int) -> None:
        """Add the gradients of a chunk; chunks are taken from the last to the first.

        Args:
            chunk: Index of the chunk.
            gradient: Gradient at the values of the online network, contiguous, shape
                (16, units x R, actions), zero from ``steps`` on.
            steps: Steps with a gradient.
        """
        wide, rows = self._width, gradient.shape[1]
        units = rows // self._rows
        own = self._chunks[chunk].of(units)
        sums = _Weights(*(part[:units] for part in self._gradients))
        above = view(self._above, CHUNK, rows, wide)
        self._multiply(
            gradient.view(1, -1, self._actions), self._last_back, above.view(1, -1, wide)
        )
        outer = by_unit(gradient, units, self._right)
        states = by_unit(own.states[0], units, self._left)
        add_gradient(sums.last, states[:, self._rows :], outer)
        add_sum(sums.last_bias, outer)
        own.gates[steps:] = 0.0
        self._recur_back(own, above, steps)
        inner, below = by_unit(own.gates, units, self._right), own.below[0].flatten(1, 2)
        add_gradient(sums.recurrent, states[:, : -self._rows], inner[..., wide:])
        add_gradient(sums.gates, below, inner[..., : 3 * wide])
        add_sum(sums.gate_bias, inner)
        first = above.view(below.shape)
        inner, out = inner.view(1, -1, 4 * wide), first.view(1, -1, wide)
        self._multiply(inner[..., : 3 * wide], self._gates_back, out)
        _threshold_backward(first, below, 0.0, grad_input=first)
        add_gradient(sums.first, own.inputs.flatten(1, 2)[..., : self._entries], first)

    def _recur_back(self, own: Chunk, above: Tensor, steps: int) -> None:
        """Turn the gates of each step into gradients, given those at k after it."""
        rows, blocks = above.shape[1], Blocks(self._rows, 1, self._units)
        carry, spare, other = (part[:, :rows] for part in (self._carry, self._spare, self._other))
        at_reset, at_keep = spare.chunk(2, 2)
        above[steps - 1] += carry[0]
        inner, back = own.backward[0][1], self._recurrent_back
        add_product = product(inner, back, carry, blocks=blocks, beta=1.0)
        gradients = above[:steps, None].unbind(0)
        parts = zip(gradients, [carry, *gradients[:-1]], own.backward[:steps], strict=True)
        carry.zero_()
        for gradient, earlier, gates in reversed(list(parts)):
            change, inner, opening, new, reset, keep, feed = gates
            torch.mul(gradient, keep, out=other)
            earlier.add_(other)
            torch.sub(gradient, other, out=other)
            _sigmoid_backward(other, new, grad_input=new)
            torch.mul(new, feed, out=at_reset)
            torch.mul(new, reset, out=feed)
            torch.mul(gradient, change, out=at_keep)
            _sigmoid_backward(spare, opening, grad_input=opening)
            add_product(inner, earlier)


def sigmoid_(values: Tensor) -> None:
    """Apply sigmoid in parts that one thread computes, shape (networks, rows, a multiple of 16)."""
    if values.numel() <= SERIAL or torch.get_num_threads() == 1:
        values.sigmoid_()
        return
    for part in torch.split(values, max(SERIAL // values[:, 0].numel(), 1), 1):
        part.sigmoid_()
