"""Images of bytes: three pixels' bytes as one number of a row, and their convolutional encoder.

A whole number below 2^24 has a float32 of its own. Rows of numbers therefore hold an image in a
third of its entries, as they hold anything else (docs/adr/0125).
"""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, nn

from fullrank.common.errors import ConfigError
from fullrank.environments.base import AgentSpec
from fullrank.networks.normalised import Normalising
from fullrank.networks.value_networks import activated
from fullrank.replay.episodes import EpisodeLayout, packed_size

Image: TypeAlias = tuple[int, int, int]
"""Height, width and channels."""

Model: TypeAlias = Literal["auto", "mlp", "gru", "cnn"]
"""Networks by name: a perceptron, one with a recurrent state, or convolutions below either;
``auto`` takes these for images."""

LAYERS: dict[int, tuple[tuple[int, int, int], ...]] = {
    36: ((16, 8, 4), (32, 4, 2)),
    5: ((16, 3, 1), (32, 3, 2)),
}
"""Channels, width and stride of the convolutions of images by their least side; the former are
those of [Mnih13]."""

BRIGHTEST = 255.0
"""The largest byte."""


def image_of(model: Model, agents: Sequence[AgentSpec]) -> Image | None:
    """Return the image that all agents observe and convolutions are to see; None: a perceptron.

    Raises:
        ConfigError: Convolutions are asked for where observations are no images of one shape.
    """
    images, least = {agent.image for agent in agents}, min(LAYERS)
    (first, *others) = images
    seen = first is not None and not others and min(first[:2]) >= least
    if model in ("auto", "cnn") and seen:
        return first
    if model == "cnn":
        shown = ", ".join(f"{agent.name} {agent.image or 'no image'}" for agent in agents)
        raise ConfigError(
            "algorithm.model = 'cnn' needs observations that are images of bytes, of one shape for "
            f"all agents and at least {least} pixels high and wide ({shown}); use 'mlp'"
        )
    return None


def name_recurrent(settings: Any) -> None:
    """Set ``recurrent`` of an algorithm's settings whose ``model`` is ``gru``.

    Raises:
        ConfigError: It is true by default, and was set to false.
    """
    if settings.model != "gru" or settings.recurrent:
        return
    if any(each.name == "recurrent" and each.default for each in fields(settings)):
        raise ConfigError(
            "algorithm.model = 'gru' has a recurrent state, and algorithm.recurrent = false has "
            "none: leave out one of them"
        )
    object.__setattr__(settings, "recurrent", True)


def kept(layout: EpisodeLayout, model: Model, agents: Sequence[AgentSpec]) -> EpisodeLayout:
    """Return the layout of a step in which images are packed if convolutions are to see them."""
    return layout if image_of(model, agents) is None else layout.of_images()


def layers_for(image: Image) -> tuple[tuple[int, int, int], ...]:
    """Return channels, width and stride of the convolutions of an image."""
    return next(layers for side, layers in LAYERS.items() if min(image[:2]) >= side)


class ImageEncoder(nn.Module):
    """Features of an image: two convolutions with ReLU, and a linear layer with ReLU.

    Args:
        image: Height, width and channels.
        features: Number of features.
        normalised: Normalise the last layer before ReLU [Ba16], without a learned scale.
    """

    def __init__(self, image: Image, features: int, *, normalised: bool = False) -> None:
        super().__init__()
        self.image, self.normalised = image, normalised
        self.entries = packed_size(image[0] * image[1] * image[2])
        height, width, channels = image
        convolutions: list[nn.Module] = []
        for outputs, side, stride in layers_for(image):
            convolutions.append(nn.Conv2d(channels, outputs, side, stride))
            height, width = ((size - side) // stride + 1 for size in (height, width))
            channels = outputs
        self.convolutions = nn.ModuleList(convolutions)
        self.last = nn.Linear(channels * height * width, features)
        for layer in (*convolutions, self.last):
            nn.init.kaiming_uniform_(layer.weight, nonlinearity="relu")  # type: ignore[arg-type]
            nn.init.zeros_(layer.bias)  # type: ignore[arg-type]

    def forward(self, packed: Tensor) -> Tensor:
        """Return the features of packed images, shape (..., features); images lie last."""
        return self.of_bytes(unpacked(packed, self.image))

    def of_bytes(self, images: Tensor) -> Tensor:
        """Return the features of images, shape (..., height x width x channels)."""
        height, width, channels = self.image
        signal = images.reshape(-1, height, width, channels).permute(0, 3, 1, 2)
        for number, layer in enumerate(self.convolutions):
            assert isinstance(layer, nn.Conv2d)
            weight = layer.weight if number else layer.weight / BRIGHTEST
            signal = nn.functional.conv2d(signal, weight, layer.bias, layer.stride).relu()
        features = activated(self.last(signal.flatten(1)), normalised=self.normalised)
        return features.view(*images.shape[:-1], -1)


class Seeing(nn.Module):
    """A network that sees the features of an image, and what follows it as it is.

    Args:
        encoder: Makes the features.
        network: Maps features and the rest of the inputs to outputs.
    """

    def __init__(self, encoder: ImageEncoder, network: nn.Module) -> None:
        super().__init__()
        self.encoder, self.network = encoder, network

    def sees(self, images: Tensor) -> Tensor:
        """Return the features of images of bytes, shape (..., entries)."""
        return self.encoder.of_bytes(images)

    def forward(self, inputs: Tensor, *state: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        """Return what the network returns of inputs that begin with a packed image."""
        features = self.encoder(inputs[..., : self.encoder.entries])
        seen = torch.cat([features, inputs[..., self.encoder.entries :]], -1)
        found: Tensor | tuple[Tensor, Tensor] = self.network(seen, *state)
        return found


def above(network: nn.Module) -> nn.Module:
    """Return the part of a network that sees features or normalised inputs, if there is one."""
    return network.network if isinstance(network, Seeing | Normalising) else network


def unpacked(packed: Tensor, image: Image) -> Tensor:
    """Return the bytes of packed images as numbers, shape (..., height x width x channels)."""
    each = packed.to(torch.int32).contiguous().view(torch.uint8)  # little-endian
    triples = torch.unflatten(each, -1, (-1, 4))[..., :3].to(packed.dtype)
    return triples.flatten(-2)[..., : image[0] * image[1] * image[2]]
