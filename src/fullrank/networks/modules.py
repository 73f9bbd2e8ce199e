"""Modules whose parameters lie in one flat vector, as updates and broadcasts require.

Every ``nn.Linear`` is stored as one matrix [W | b], row by row, as perceptrons are everywhere in
Fullrank; any other parameter keeps its own order. After ``bind`` a module reads the vector itself,
so that broadcast parameters need no copy.
"""

from collections.abc import Iterator
from itertools import pairwise

import torch
from torch import Tensor, nn

from fullrank.common.errors import ConfigError


def perceptron(
    inputs: int, hidden: int, outputs: int, *, layers: int = 2, normalised: bool = False
) -> nn.Sequential:
    """Build a perceptron: ``layers`` hidden ReLU layers, Glorot-uniform weights, zero biases.

    Hidden layers are ``normalised`` before ReLU [Ba16], without a learned scale, if asked for.
    """
    widths = [inputs, *[hidden] * layers]
    parts: list[nn.Module] = []
    for before, after in pairwise(widths):
        normal = [nn.LayerNorm(after, elementwise_affine=False)] if normalised else []
        parts += [nn.Linear(before, after), *normal, nn.ReLU()]
    network = nn.Sequential(*parts, nn.Linear(widths[-1], outputs))
    for module in network:
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            nn.init.zeros_(module.bias)
    return network


def flat_size(module: nn.Module) -> int:
    """Return the number of entries in the module's parameters.

    Raises:
        ConfigError: The module has buffers, which updates do not carry.
    """
    if any(True for _ in module.buffers()):
        raise ConfigError(
            f"{type(module).__name__} has buffers, as batch normalisation does; an update is a "
            "function of parameters alone: use another layer, for example LayerNorm"
        )
    return sum(parameter.numel() for parameter in module.parameters())


def views(module: nn.Module, flat: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield each parameter with its view of a flat vector, shape (flat_size,)."""
    start, done = 0, set[int]()
    for part in module.modules():
        parameters = [
            parameter for parameter in part.parameters(recurse=False) if id(parameter) not in done
        ]
        done.update(id(parameter) for parameter in parameters)
        if isinstance(part, nn.Linear) and len(parameters) == 2:
            matrix = flat[start : start + part.out_features * (part.in_features + 1)]
            matrix = matrix.view(part.out_features, part.in_features + 1)
            yield part.weight, matrix[:, :-1]
            yield part.bias, matrix[:, -1]
            start += matrix.numel()
        else:
            for parameter in parameters:
                yield parameter, flat[start : start + parameter.numel()].view_as(parameter)
                start += parameter.numel()


def bind(module: nn.Module, flat: Tensor) -> None:
    """Let a module read its parameters from a flat vector; its own are dropped."""
    bound = {parameter: nn.Parameter(view) for parameter, view in views(module, flat)}
    for part in module.modules():
        for name, parameter in list(part.named_parameters(recurse=False)):
            setattr(part, name, bound[parameter])


def write(module: nn.Module, flat: Tensor) -> None:
    """Write a module's parameters into a flat vector."""
    with torch.no_grad():
        for parameter, view in views(module, flat):
            view.copy_(parameter)


def layers_of(module: nn.Module) -> list[nn.Linear] | None:
    """Return the layers of a perceptron with ReLU between them; None for any other module."""
    if not isinstance(module, nn.Sequential):
        return None
    parts = list(module)
    linear, between = parts[::2], parts[1::2]
    alike = all(isinstance(part, nn.ReLU) for part in between) and len(parts) % 2 == 1
    layers = [part for part in linear if isinstance(part, nn.Linear) and part.bias is not None]
    return layers if alike and len(layers) == len(linear) else None
