"""Perceptrons of any depth with hand-written passes, one network and one batch at a time.

Activations lie feature by feature, shape (features, columns), a column being one input. A product
has all columns of a batch, and nothing else, so its bits depend on these alone. Arrays are kept
from batch to batch: fresh memory of this size costs as much as the arithmetic.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from fullrank.networks.fused.mlp import mask


class Workspace:
    """Arrays that are used again, by name; each begins on a boundary of 64 bytes."""

    def __init__(self) -> None:
        self._kept, self._views = dict[str, Tensor](), dict[str, Tensor]()

    def take(self, name: str, *shape: int) -> Tensor:
        """Return an array of a shape, whose entries are those of its last use."""
        view = self._views.get(name)
        if view is None or view.shape != shape:
            size, kept = torch.Size(shape).numel(), self._kept.get(name)
            if kept is None or len(kept) < size:
                kept = self._kept[name] = torch.empty(size)
            view = self._views[name] = kept[:size].view(shape)
        return view


class Perceptron:
    """Passes of linear layers with ReLU between them.

    Args:
        layers: The layers, whose parameters are read in each pass.
        gradients: Gradient of each parameter, which ``backward`` writes.
        memory: Memory of the activations.
    """

    def __init__(
        self,
        layers: Sequence[nn.Linear],
        gradients: Mapping[Tensor, Tensor],
        memory: Workspace,
    ) -> None:
        self._layers = [(layer.weight.data, layer.bias.data[:, None]) for layer in layers]
        self._gradients = [(gradients[layer.weight], gradients[layer.bias]) for layer in layers]
        self._memory, self._inputs = memory, list[Tensor]()

    def forward(self, inputs: Tensor) -> Tensor:
        """Map inputs, shape (inputs, columns), to outputs, shape (outputs, columns)."""
        self._inputs, last = [], len(self._layers) - 1
        for number, (weight, bias) in enumerate(self._layers):
            self._inputs.append(inputs)
            out = self._memory.take(f"layer {number}", len(weight), inputs.shape[1])
            inputs = torch.mm(weight, inputs, out=out).add_(bias)
            if number < last:
                inputs.clamp_min_(0.0)
        return inputs

    def backward(self, gradient: Tensor) -> None:
        """Write the gradients of all parameters, given that at the outputs of ``forward``.

        The gradient at a layer's inputs overwrites its outputs, which nothing reads any more, so
        that fewer arrays fill the cache; those of the last layer may hold the given gradient.
        """
        last = len(self._layers) - 1
        for number in reversed(range(len(self._layers))):
            (weight, _), inputs = self._layers[number], self._inputs[number]
            of_weight, of_bias = self._gradients[number]
            torch.mm(gradient, inputs.t(), out=of_weight)
            torch.sum(gradient, 1, out=of_bias)
            if number:
                name = "below" if number == last else f"layer {number}"
                below = self._memory.take(name, *inputs.shape)
                gradient = torch.mm(weight.t(), gradient, out=below)
                mask(gradient, inputs)


def outputs_apart(layers: Sequence[nn.Linear], inputs: Tensor, lengths: Sequence[int]) -> Tensor:
    """Return the outputs of episodes, each computed by itself.

    Every product reads and writes the beginning of the same arrays, which stay in cache: its bits
    depend on the episode's rows alone, not on its place among others.

    Args:
        layers: Linear layers with ReLU between them.
        inputs: Inputs, episode by episode, shape (rows, members, size).
        lengths: Rows of each episode.
    """
    sizes = [length * inputs.shape[1] for length in lengths]
    widths = [inputs.shape[2], *(layer.out_features for layer in layers)]
    held = [inputs.new_empty(max(sizes), width) for width in widths]
    views = {size: [array[:size] for array in held] for size in set(sizes)}
    parameters = [(layer.bias.data, layer.weight.data.t()) for layer in layers]
    outputs = inputs.new_empty(*inputs.shape[:2], widths[-1])
    episodes = (torch.split(part.flatten(0, 1), sizes) for part in (inputs, outputs))
    for size, before, after in zip(sizes, *episodes, strict=True):
        seen, *above = views[size]
        seen.copy_(before)
        for number, (out, (bias, weight)) in enumerate(zip(above, parameters, strict=True)):
            if number:
                seen.clamp_min_(0.0)
            seen = torch.addmm(bias, seen, weight, out=out)
        after.copy_(seen)
    return outputs
