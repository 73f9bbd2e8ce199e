"""Devices: names of them, and which of several processes of a host computes on which."""

import torch

from fullrank.common.errors import ConfigError


def visible() -> int:
    """Return the number of CUDA devices that this process sees."""
    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def placed(name: str, number: int = 0, *, devices: int) -> str:
    """Return the device of one of the processes on a host: ``cpu`` or ``cuda:K``.

    ``cuda`` places process j on device j mod the number of devices; ``auto`` does so where there
    are any. ``cuda:K`` is device K for every process.

    Args:
        name: A configured name.
        number: Number of the process on its host.
        devices: CUDA devices of the host.

    Raises:
        ConfigError: The name is unknown, or there is no such device.
    """
    kind, colon, index = name.partition(":")
    if kind not in ("auto", "cpu", "cuda") or (colon and (kind != "cuda" or not index.isdecimal())):
        raise ConfigError(f"unknown device {name!r}; use 'auto', 'cpu', 'cuda' or 'cuda:K'")
    if kind == "cpu" or (kind == "auto" and not devices):
        return "cpu"
    if not devices:
        raise ConfigError(f"device {name!r} is not available here; use 'cpu' or 'auto'")
    if index and int(index) >= devices:
        raise ConfigError(
            f"device {name!r} is not available here: this host has cuda:0 to cuda:{devices - 1}"
        )
    return f"cuda:{int(index) if index else number % devices}"


def device_of(name: str) -> torch.device:
    """Return the device of a name for this process alone: of several, the current one.

    Raises:
        ConfigError: The device is unknown or not available.
    """
    device = placed(name, devices=visible())
    return torch.device(device if device == "cpu" or ":" in name else "cuda")
